"""The frame hook and Compiled: what runs when a function is called under a compiler."""

import functools
import inspect
import itertools
import sys
import threading
import traceback

import pytest

from stoker import _C

NOTHING = _C.GuardProgram([], 0)


def entry(function, keeps_hook=False, guards=NOTHING):
    return _C.Entry(function.__code__, guards, keeps_hook, None)


def argument_equals(index, value):
    return _C.GuardProgram([(_C.ACCESSORS["LOCAL"], index, [(_C.CHECKS["EQUALS"], value, 7)], [], -1)], 0)


class Script(_C.Compiler):
    """A compiler that answers from a table and remembers each question."""

    def __init__(self, answers, default=_C.SKIP):
        super().__init__(self.miss)
        self.answers, self.default, self.asked = answers, default, []

    def miss(self, code, function, bound, failures):
        assert _C.active_compiler() is None
        self.asked.append((code.co_name, bound, failures))
        answer = self.answers.get(code.co_name, self.default)
        return answer.pop(0) if isinstance(answer, list) else answer

    @property
    def names(self):
        return [name for name, *_ in self.asked]


def add(a, b):
    return a + b


def times(a, b):
    return a * b


def test_hit_runs_the_replacement_without_asking_again():
    compiler = Script({"add": entry(times)})
    compiled = _C.Compiled(add, compiler)
    assert [compiled(3, 4), compiled(5, 6)] == [12, 30]
    assert compiler.asked == [("add", [3, 4], [])]
    assert add(3, 4) == 7, "the function itself is untouched outside"
    assert [e.hits for e in compiler.entries(add.__code__)] == [2]


def test_failed_guards_are_reported_and_a_second_entry_is_added():
    first, second = entry(times, guards=argument_equals(0, 3)), entry(add)
    compiler = Script({"add": [first, second]})
    compiled = _C.Compiled(add, compiler)
    assert [compiled(3, 4), compiled(5, 6), compiled(3, 4)] == [12, 11, 12]
    assert compiler.asked[1] == ("add", [5, 6], [(first, 7)])
    assert compiler.entries(add.__code__) == [first, second]


def test_equal_calls_run_what_they_ran_unless_another_entry_runs_always():
    """Entries are tried in the order in which they were made; one that ran many times is tried first."""
    compiled = _C.Compiled(add, Script({"add": [entry(times, guards=argument_equals(0, 3)), entry(add)]}))
    compiled(3, 4)
    for _ in range(3):
        assert [compiled(5, 6), compiled(3, 4)] == [11, 12]
    for _ in range(20):
        compiled(5, 6)
    assert compiled(3, 4) == 7


def outer(x):
    return inner(x) + 1


def inner(x):
    return x * 10


def inner_replacement(x):
    return x * 1000


def test_skip_runs_the_original_and_keeps_callees_hooked():
    compiler = Script({"outer": _C.SKIP, "inner": entry(inner_replacement)})
    compiled = _C.Compiled(outer, compiler)
    assert [compiled(1), compiled(2)] == [1001, 2001]
    assert compiler.names == ["outer", "inner"]
    assert compiler.state(outer.__code__) == _C.SKIP


def test_skip_deep_turns_the_hook_off_below():
    compiler = Script({"outer": _C.SKIP_DEEP, "inner": entry(inner_replacement)})
    compiled = _C.Compiled(outer, compiler)
    assert [compiled(1), compiled(2)] == [11, 21]
    assert compiler.names == ["outer"]


def test_skip_deep_of_an_inner_frame():
    def leaf():
        return _C.active_compiler()

    def middle():
        return leaf()

    def root():
        return middle(), _C.active_compiler()

    compiler = Script({"middle": _C.SKIP_DEEP})
    assert _C.Compiled(root, compiler)() == (None, compiler)
    assert _C.Compiled(root, compiler)() == (None, compiler)


def test_run_once_asks_each_time():
    compiler = Script({"add": _C.RUN_ONCE})
    compiled = _C.Compiled(add, compiler)
    assert [compiled(1, 2), compiled(1, 2)] == [3, 3]
    assert compiler.names == ["add", "add"]


def test_freeze_keeps_entries_and_stops_asking():
    compiler = Script({"add": [entry(times, guards=argument_equals(0, 3)), _C.FREEZE]})
    compiled = _C.Compiled(add, compiler)
    assert [compiled(3, 4), compiled(5, 6), compiled(7, 8), compiled(3, 4)] == [12, 11, 15, 12]
    assert compiler.names == ["add", "add"]


def test_keeps_hook_decides_whether_callees_are_looked_up():
    def calls_inner(x):
        return inner(x) + 5

    for keeps_hook, expected in ((False, 15), (True, 1005)):
        compiler = Script({"outer": entry(calls_inner, keeps_hook), "inner": entry(inner_replacement)})
        assert _C.Compiled(outer, compiler)(1) == expected
        assert _C.active_compiler() is None


def test_an_entry_that_calls_its_own_original_recurses_through_the_hook():
    def factorial(n):
        return 1 if n == 0 else n * factorial(n - 1)

    compiler = Script({"factorial": entry(factorial, keeps_hook=True)})
    assert _C.Compiled(factorial, compiler)(20) == factorial(20)
    assert compiler.entries(factorial.__code__)[0].hits == 21


def test_recursion_error_is_the_users():
    def forever(n):
        return forever(n + 1)

    compiler = Script({"forever": entry(forever, keeps_hook=True)})
    for function in (_C.Compiled(forever, compiler), _C.Compiled(forever, Script({}))):
        with pytest.raises(RecursionError):
            function(0)
        assert _C.active_compiler() is None


def test_on_miss_exception_reaches_the_user():
    def explode(*_):
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        _C.Compiled(add, _C.Compiler(explode))(1, 2)
    assert _C.active_compiler() is None


@pytest.mark.parametrize("answer", [None, 17, -1, "SKIP"])
def test_a_wrong_answer_is_an_error(answer):
    with pytest.raises(TypeError, match="on_miss returned"):
        _C.Compiled(add, _C.Compiler(lambda *_: answer))(1, 2)


def test_an_entry_of_the_wrong_arity_is_an_error():
    with pytest.raises(TypeError, match="takes 1 arguments"):
        _C.Compiled(add, Script({"add": entry(inner)}))(1, 2)


def test_a_new_entry_whose_guards_fail_is_not_run():
    fresh = entry(times, guards=argument_equals(0, 99))
    compiler = _C.Compiler(lambda *_: fresh)
    assert _C.Compiled(add, compiler)(1, 2) == 3
    assert fresh.hits == 0 and compiler.entries(add.__code__) == [fresh]


def test_exception_in_the_replacement_has_its_traceback():
    def original(x):
        return x

    def failing(x):
        raise ValueError(x)

    with pytest.raises(ValueError) as caught:
        _C.Compiled(original, Script({"original": entry(failing)}))("here")
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names == [sys._getframe().f_code.co_name, "failing"]


def test_exception_below_the_hook_has_its_traceback():
    def thrower(x):
        raise ValueError(x)

    def root(x):
        return thrower(x)

    compiler = Script({"thrower": entry(thrower)})
    with pytest.raises(ValueError) as caught:
        _C.Compiled(root, compiler)("here")
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[1:] == ["root", "thrower"]
    assert compiler.entries(thrower.__code__)[0].hits == 1


def test_generators_and_coroutines_are_left_alone():
    def numbers(n):
        yield from range(n)

    async def answer():
        return 42

    def root():
        coroutine = answer()
        with pytest.raises(StopIteration) as stop:
            coroutine.send(None)
        return list(numbers(3)), stop.value.value

    compiler = Script({})
    assert _C.Compiled(root, compiler)() == ([0, 1, 2], 42)
    assert not {"numbers", "answer"} & set(compiler.names)
    assert list(_C.Compiled(numbers, compiler)(3)) == [0, 1, 2]


def test_class_bodies_and_exec_run_as_they_are():
    def root():
        class Local:
            value = 3

        space = {}
        exec("y = 1 + 1", space)
        return Local.value + space["y"]

    assert _C.Compiled(root, Script({}))() == 5


def test_closures_reach_the_replacement():
    def make(value):
        def read(x):
            return value + x

        return read

    def make_replacement(value):
        def read(x):
            return (value, x)

        return read

    compiler = Script({"read": _C.Entry(make_replacement(0).__code__, NOTHING, False, None)})
    assert _C.Compiled(make(1), compiler)(5) == (1, 5)
    assert _C.Compiled(make(2), compiler)(5) == (2, 5)
    assert compiler.names == ["read"], "one code, one entry, many closures"


def test_an_entry_serves_one_globals_dictionary():
    source = "def f(x):\n    return (name, x)\n"
    code = compile(source, "<test>", "exec").co_consts[0]
    functions = [type(add)(code, {"name": name}) for name in "ab"]
    compiler = Script({"f": [_C.Entry(code, NOTHING, False, i) for i in range(2)]})
    for _ in range(2):
        assert [_C.Compiled(f, compiler)(1) for f in functions] == [("a", 1), ("b", 1)]
    assert [failures and failures[0][1] for _, _, failures in compiler.asked] == [[], -1]


# Binding


def everything(a, b=2, /, c=3, *rest, d, e=5, **more):
    return a, b, c, rest, d, e, more


def few(a, b, c=3, *, d=4):
    return a, b, c, d


@pytest.mark.parametrize("function", [everything, few])
def test_binding_equals_pythons(function):
    compiler = Script({function.__name__: entry(_plain(function))})
    compiled = _C.Compiled(function, compiler)
    names = ["a", "b", "c", "d", "e", "z"]
    calls = 0
    for count in range(6):
        for chosen in itertools.chain.from_iterable(itertools.combinations(names, r) for r in range(5)):
            keywords = {name: name.upper() for name in chosen}
            try:
                expected = function(*range(count), **keywords)
            except TypeError as error:
                with pytest.raises(TypeError) as raised:
                    compiled(*range(count), **keywords)
                assert str(raised.value) == str(error)
            else:
                assert compiled(*range(count), **keywords) == expected
                calls += 1
    assert calls > 10 and len(compiler.asked) == 1


def _plain(function):
    """The same function with its bound slots as plain parameters."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    replacement = code.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~(4 | 8)
    )
    return type(function)(replacement, {})


def test_defaults_are_read_at_the_call():
    def f(a, b=1):
        return a, b

    compiled = _C.Compiled(f, Script({"f": entry(_plain(f))}))
    assert compiled(0) == (0, 1)
    f.__defaults__ = (2,)
    assert compiled(0) == (0, 2)


# Resume


def test_a_hundred_thousand_tail_calls_need_no_stack():
    def count_down(n, total):
        return total if n == 0 else again(n - 1, total + 1)

    def resume_here(n, total):
        raise AssertionError("only its entry runs")

    again = _C.Resume(resume_here, "again")
    replacement = count_down.__code__
    function = type(add)(replacement, globals(), closure=(_cell(again),))
    assert type(function(3, 0)).__name__ == "TailCall"

    def step(n, total, again):
        return total if n == 0 else again(n - 1, total + 1)

    guards = _C.GuardProgram([(_C.ACCESSORS["CONST"], again, [], [], 0)], 1)
    compiler = Script({"resume_here": entry(step, guards=guards), "start": entry(step, guards=guards)})

    def start(n, total):
        return None

    assert _C.Compiled(start, compiler)(100_000, 0) == 100_000
    assert compiler.names == ["start", "resume_here"]


def _cell(value):
    return (lambda: value).__closure__[0]


@pytest.mark.parametrize("action", [_C.SKIP, _C.SKIP_DEEP, _C.RUN_ONCE, _C.FREEZE])
def test_a_resume_function_may_be_skipped(action):
    def rest(x):
        return ("rest", x, _C.active_compiler() is not None)

    resume = _C.Resume(rest, "rest")

    def original(x):
        return x

    def replacement(x, resume):
        return resume(x)

    guards = _C.GuardProgram([(_C.ACCESSORS["CONST"], resume, [], [], 0)], 1)
    compiler = Script({"original": entry(replacement, guards=guards), "rest": action})
    compiled = _C.Compiled(original, compiler)
    for _ in range(2):
        assert compiled(1) == ("rest", 1, action != _C.SKIP_DEEP)

    def calls_original(x):
        return [original(x)]

    assert _C.Compiled(calls_original, compiler)(2) == [("rest", 2, action != _C.SKIP_DEEP)]


def test_resume_binds_a_closure():
    def make(value):
        def rest(x):
            return value, x

        return rest

    resume = _C.Resume(make(1), "rest").bind((_cell(9),))
    tail = resume(5)
    assert tail.function(*tail.arguments) == (9, 5)
    assert tail.function.__code__ is make(0).__code__


# Compiled and Disabled as objects


def test_compiled_answers_for_its_function():
    def documented(x: int, y=2) -> int:
        """Words."""

    documented.mark = 5
    for wrapped in (_C.Compiled(documented, Script({})), _C.Disabled(documented)):
        for name in (
            "__name__",
            "__qualname__",
            "__doc__",
            "__module__",
            "__annotations__",
            "__defaults__",
            "__code__",
            "mark",
        ):
            assert getattr(wrapped, name) is getattr(documented, name)
        assert wrapped.__wrapped__ is documented
        assert inspect.signature(wrapped) == inspect.signature(documented)
        assert "documented" in repr(wrapped)
        wrapped.other = 1
        assert documented.other == 1
        with pytest.raises(AttributeError):
            _ = wrapped.absent


def test_compiled_is_a_method_in_a_class_and_of_a_bound_method():
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def apply(self, x):
            return self.factor * x

    def replacement(self, x):
        return ("replaced", self.factor * x)

    compiler = Script({"apply": entry(replacement)})
    bound = _C.Compiled(Scale(3).apply, compiler)
    assert bound(2) == ("replaced", 6) and bound(x=2) == ("replaced", 6)
    Scale.apply = _C.Compiled(Scale.apply, compiler)
    assert Scale(4).apply(2) == ("replaced", 8)
    assert Scale.apply(Scale(5), 2) == ("replaced", 10)


def test_compiled_of_other_callables_runs_them_under_the_compiler():
    class Callable:
        def __call__(self, x):
            return inner(x)

    compiler = Script({"inner": entry(inner_replacement)})
    assert _C.Compiled(Callable(), compiler)(1) == 1000


def test_disabled_turns_the_hook_off():
    disabled = _C.Disabled(inner)

    def root(x):
        return disabled(x), inner(x)

    compiler = Script({"inner": entry(inner_replacement)})
    assert _C.Compiled(root, compiler)(1) == (10, 1000)


def test_one_compiler_inside_another():
    first = Script({"inner": entry(inner_replacement)})
    second = Script({"inner": entry(lambda x: -x)})
    nested = _C.Compiled(outer, second)

    def root(x):
        return inner(x), nested(x), inner(x)

    assert _C.Compiled(root, first)(1) == (1000, 0, 1000)


# The world around


def test_settrace_sees_the_replacement():
    seen = []

    def tracer(frame, event, argument):
        seen.append((frame.f_code.co_name, event))

    compiled = _C.Compiled(add, Script({"add": entry(times)}))
    compiled(1, 1)
    sys.settrace(tracer)
    try:
        assert compiled(3, 4) == 12
    finally:
        sys.settrace(None)
    assert ("times", "call") in seen and ("add", "call") not in seen


def test_threads_do_not_share_their_compiler():
    errors = []
    barrier = threading.Barrier(8)

    def work(number):
        try:
            replacement = eval(f"lambda x: x + {number}", globals())
            compiler = Script({"inner": entry(replacement)})
            compiled = _C.Compiled(outer, compiler)
            barrier.wait()
            for i in range(3000):
                assert compiled(i) == i + number + 1
                assert inner(i) == 10 * i
                assert _C.active_compiler() is None
        except BaseException as error:  # noqa: BLE001  a thread's failure belongs to the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert not errors


def test_on_miss_may_use_compiled_functions_itself():
    helper_compiler = Script({"add": entry(times)})
    helper = _C.Compiled(add, helper_compiler)

    def miss(code, function, bound, failures):
        assert helper(6, 7) == 42
        return _C.SKIP

    assert _C.Compiled(add, _C.Compiler(miss))(1, 2) == 3


def test_forgetting_while_an_entry_runs():
    def replacement(a, b, compiler):
        compiler.forget()
        return a - b

    compiler = Script({})
    guards = _C.GuardProgram([(_C.ACCESSORS["CONST"], compiler, [], [], 0)], 1)
    compiler.answers["add"] = entry(replacement, guards=guards)
    compiled = _C.Compiled(add, compiler)
    assert [compiled(5, 3), compiled(5, 3)] == [2, 2]
    assert compiler.names == ["add", "add"] and compiler.codes() == []


def test_a_call_is_answered_once():
    @functools.lru_cache(maxsize=2)
    def cached(a):
        ran.append(a)
        return a

    ran, code = [], cached.__wrapped__.__code__
    assert _C.call_answered(cached, (1,), {}, code, "one", False) == "one"
    assert [cached(1), cached(2)] == ["one", 2]
    assert _C.call_answered(cached, (1,), {}, code, "other", False) == "one", "the cache holds it: nobody asks"
    assert [cached(3), ran] == [3, [2, 3]]
    with pytest.raises(KeyError, match="four"):
        _C.call_answered(cached, (4,), {}, code, KeyError("four"), True)
    assert tuple(cached.cache_info()) == (2, 4, 2, 2)


def test_a_call_in_another_thread_is_not_answered():
    def called(a):
        return a

    def elsewhere(wanted):
        threads = [threading.Thread(target=lambda: found.append(called(1)))]
        for thread in threads:
            thread.start()
            thread.join()
        return called(2), called(3)

    found = []
    assert _C.call_answered(elsewhere, (0,), {}, called.__code__, "answer", False) == ("answer", 3)
    assert found == [1]


def test_only_entries_of_caches_have_a_result():
    with pytest.raises(TypeError, match="int is no entry of a cache"):
        _C.remembered(3)
