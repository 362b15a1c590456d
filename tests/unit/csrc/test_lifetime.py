"""Whichever of compiler, code and entry dies first takes its records along, and nothing leaks."""

import gc
import sys
import weakref

import pytest

from stoker import _C

A, C = _C.ACCESSORS, _C.CHECKS
NOTHING = _C.GuardProgram([], 0)


def fresh_function(text="lambda x: x + 1"):
    return eval(text, {})


def always(entry):
    return _C.Compiler(lambda *_: entry)


def entry_of(function, **more):
    return _C.Entry(function.__code__, more.get("guards", NOTHING), more.get("keeps_hook", False), more.get("tag"))


class Tag:
    pass


def test_the_code_dies_and_its_record_with_it():
    tag = Tag()
    compiler = always(entry_of(fresh_function("lambda x: -x"), tag=tag))
    function = fresh_function()
    compiled = _C.Compiled(function, compiler)
    assert compiled(3) == -3 and compiler.codes() == [function.__code__]
    deaths = [weakref.ref(function), weakref.ref(function.__code__)]
    del function, compiled
    gc.collect()
    assert [death() for death in deaths] == [None, None]
    assert compiler.codes() == []


def test_the_compiler_dies_and_the_code_forgets_it():
    function = fresh_function()
    tag = Tag()
    compiler = _C.Compiler(lambda *_: _C.SKIP)
    compiler.add(function.__code__, entry_of(function, tag=tag))
    other = always(entry_of(fresh_function("lambda x: -x")))
    assert _C.Compiled(function, other)(3) == -3
    deaths = [weakref.ref(compiler), weakref.ref(tag)]
    del compiler, tag
    gc.collect()
    assert [death() for death in deaths] == [None, None]
    assert _C.Compiled(function, other)(3) == -3


def test_cycles_through_a_compiler_are_collected():
    class Owner(_C.Compiler):
        def __init__(self):
            super().__init__(self.miss)

        def miss(self, code, function, bound, failures):
            return _C.Entry(code, NOTHING, False, self)

    function = fresh_function()
    owner = Owner()
    owner.compiled = _C.Compiled(function, owner)
    assert owner.compiled(1) == 2
    death = weakref.ref(owner)
    del owner
    gc.collect()
    assert death() is None


def test_closures_and_arguments_are_not_kept():
    def make(value):
        return lambda x: (value, x)

    compiler = _C.Compiler(lambda code, *_: _C.Entry(code, NOTHING, False, None))
    value, argument = Tag(), Tag()
    compiled = _C.Compiled(make(value), compiler)
    assert compiled(argument) == (value, argument)
    deaths = [weakref.ref(value), weakref.ref(argument)]
    del value, argument, compiled
    gc.collect()
    assert [death() for death in deaths] == [None, None]


def _hit(replacement):
    return _C.Compiled(fresh_function(), always(replacement))


def _resume():
    resume = _C.Resume(fresh_function(), "rest")
    guards = _C.GuardProgram([(A["CONST"], resume, [], [], 0)], 1)
    step = entry_of(fresh_function("lambda x, resume: resume(x)"), guards=guards)
    answers = {True: step}
    original = fresh_function()
    compiler = _C.Compiler(lambda code, *_: answers.get(code is original.__code__, _C.SKIP))
    return _C.Compiled(original, compiler)


def _nested():
    inner = fresh_function()
    outer = eval("lambda x: inner(x)", {"inner": inner})
    answers = {True: entry_of(fresh_function("lambda x: x"))}
    compiler = _C.Compiler(lambda code, *_: answers.get(code is inner.__code__, _C.SKIP))
    return _C.Compiled(outer, compiler)


CALLS = {
    "hit": lambda: _hit(entry_of(fresh_function("lambda x: x"))),
    "hit, hook on": lambda: _hit(entry_of(fresh_function("lambda x: x"), keeps_hook=True)),
    "fetched": lambda: _hit(
        entry_of(fresh_function("lambda x, y: y"), guards=_C.GuardProgram([(A["LOCAL"], 0, [], [], 0)], 1))
    ),
    "run once": lambda: _C.Compiled(fresh_function(), _C.Compiler(lambda *_: _C.RUN_ONCE)),
    "skip": lambda: _C.Compiled(fresh_function(), _C.Compiler(lambda *_: _C.SKIP)),
    "skip deep": lambda: _C.Compiled(fresh_function(), _C.Compiler(lambda *_: _C.SKIP_DEEP)),
    "raise": lambda: _hit(entry_of(fresh_function("lambda x: x.absent"))),
    "binding": lambda: _hit(entry_of(fresh_function("lambda x: x"))),
    "resume": _resume,
    "nested frame": _nested,
}


@pytest.mark.parametrize("case", CALLS)
def test_references_balance(case):
    compiled = CALLS[case]()
    argument = 12345.678
    keywords = {"x": argument} if case == "binding" else {}
    positional = () if keywords else (argument,)

    def call():
        try:
            compiled(*positional, **keywords)
        except AttributeError:
            assert case == "raise"

    call()
    watched = [argument, None, compiled, compiled.__code__, compiled.compiler]
    before = [sys.getrefcount(object) for object in watched]
    for _ in range(1000):
        call()
    after = [sys.getrefcount(object) for object in watched]
    assert all(abs(a - b) < 50 for a, b in zip(before, after)), (before, after)


def test_memory_stays_flat_when_functions_come_and_go():
    compiler = _C.Compiler(lambda code, *_: _C.Entry(code, NOTHING, False, None))
    for _ in range(200):
        _C.Compiled(fresh_function(), compiler)(1)
    compiler.forget()
    gc.collect()
    count = len(gc.get_objects())
    for _ in range(200):
        _C.Compiled(fresh_function(), compiler)(1)
    compiler.forget()
    gc.collect()
    assert len(gc.get_objects()) <= count + 20
    assert compiler.codes() == []


def test_wrappers_support_weak_references():
    function = fresh_function()
    for wrapped in (_C.Compiled(function, _C.Compiler(print)), _C.Disabled(function)):
        death = weakref.ref(wrapped)
        del wrapped
        assert death() is None or gc.collect() >= 0
