"""The end of a capture: what the replacement code does once the graph has run.

`leave_by_return` returns the rebuilt value. `leave_by_break` puts the stack and the locals in place, runs the one
instruction that could not be captured, and goes on in a resume function for wherever that instruction may lead: the next
instruction, a jump target, an exception handler.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from stoker.bytecode import Code, Handler, Instruction, build
from stoker.bytecode.versions import HAS_PRECALL, HAS_TO_BOOL, LOOP_END, NULL_BEFORE_CALLABLE
from stoker.capture.emit import Emitter
from stoker.capture.evaluator import Evaluator
from stoker.capture.frame import Frame
from stoker.capture.resume import (
    LASTI_MARK,
    NEVER_FALLS_THROUGH,
    PARAMETERS,
    VALUE_MARK,
    Continuation,
    enter_handler,
    mark_of,
    operand_count,
    results_count,
    resume_function,
)
from stoker.capture.sizes import DYNAMIC
from stoker.capture.static import HEAP_TYPE
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import cell_contents, cell_of, empty_cell
from stoker.capture.values.instance import ExceptionValue, InstanceValue, PreviousException
from stoker.capture.values.iterator import GeneratorValue
from stoker.capture.values.reference import ReferenceValue, holds_what_is_referred_to, refers_to_what_is_made
from stoker.capture.values.rounds import elements_of, goes_over_rounds
from stoker.capture.values.running import RunningIterator, is_iterator_by_rounds
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Lazy, Null, Value
from stoker.capture.while_loops import counters, left_open
from stoker.errors import Break, SkipFrame
from stoker.guard.source import Local

CONDITIONAL = frozenset(
    [
        "POP_JUMP_IF_TRUE",
        "POP_JUMP_IF_FALSE",
        "POP_JUMP_IF_NONE",
        "POP_JUMP_IF_NOT_NONE",
        "JUMP_IF_TRUE_OR_POP",
        "JUMP_IF_FALSE_OR_POP",
    ]
)
READS_LOCAL = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "DELETE_FAST"})
AT_CELL = {"LOAD_DEREF": cell_contents, "DELETE_DEREF": empty_cell}
GENERATOR = types.GeneratorType
WITH_NULL = "Nv" if NULL_BEFORE_CALLABLE else "vN"


def leave_by_return(e: Emitter, value: Value) -> None:
    e.effects()
    e.load_last(value)
    e.code += build.return_value()


def leave_by_raise(e: Emitter, error: ExceptionValue) -> None:
    """Raise what the program raises, with the traceback of the frames it left. Raising adds this frame, and what a caller handles.

    The frame forgets what it built it of: with a name of it, traceback and frame would keep each other, and all callers, alive."""
    if refers_to_what_is_made(e.m):
        raise Break("an exception", "its traceback keeps variables alive that a weak reference refers to")
    complete = "__context__" in error.links or not error.trail
    last = None if complete else error.take_last_passage()
    e.effects()
    e.load(error)
    e.forget_names()
    e.code.append(
        Instruction("RERAISE", 0) if last is None else Instruction("RAISE_VARARGS", 1, positions=last.positions)
    )


@dataclass
class _Break:
    """The state that the pieces of a break share."""

    e: Emitter
    m: Evaluator
    frame: Frame
    instruction: Instruction
    below: list[Value]
    operands: list[Value]
    names: list[str]  # where each value below the operands is kept; "" for NULL
    handled: list[Value]
    places: dict[str, str] = field(default_factory=dict)  # locals kept under another name than their own
    unused: frozenset[str] = frozenset()  # locals that nothing reads after the instruction, and that stay


def leave_by_break(e: Emitter, m: Evaluator, instruction: Instruction) -> None:
    """Run `instruction` in CPython, then continue in resume functions."""
    frame = m.root
    count = operand_count(instruction)
    depth = len(frame.stack) - count
    if depth < 0:
        raise SkipFrame(f"{instruction.name} takes more than the stack holds")
    stack = _with_dead_markers_replaced(frame)
    below, operands = stack[:depth], stack[depth:]
    if any(isinstance(value, PreviousException) for value in operands):
        raise SkipFrame(f"capture cannot break at {instruction.name} inside an exception handler's own bookkeeping")
    _refuse_frame_readers(instruction, operands)
    _refuse_hidden_receiver(frame)
    for value in below:
        known = value.forced if type(value) is Lazy else value
        if isinstance(known, RunningIterator):
            known.refuse_one_round(m)
    state = _Break(e, m, frame, instruction, below, operands, [], list(frame.handled))
    if refers_to_what_is_made(m):
        _refuse_letting_go(state)
    e.effects()
    state.unused = _kept_alive(state)
    _keep_cells(state)
    _keep_stack(state)
    _place_locals(state)
    for exception in state.handled:
        e.load(exception)
        e.code += enter_handler()
    for operand in operands:
        if instruction.name in CONDITIONAL:
            left_open(m, operand)
        e.load(operand)
    if instruction.name in READS_LOCAL and instruction.value not in frame.locals:
        _unbind(state, instruction.value)
    if m.effects.references:  # the instruction may be what lets go of their objects
        e.forget_names()
    _run(state)


FRAME_READERS = (eval, exec, locals, vars, dir, super, sys._getframe, inspect.currentframe, inspect.stack)
FRAME_READER_NAMES = frozenset({"locals", "vars", "dir", "eval", "exec"})


def _refuse_frame_readers(instruction: Instruction, operands: list[Value]) -> None:
    """A call that looks at its caller's frame would see the replacement code's."""
    if not instruction.name.startswith("CALL"):
        return
    for value in operands:
        real = getattr(value, "real", None)
        if (real is eval or real is exec) and instruction.name == "CALL" and instruction.value > 1:
            continue  # it is given a namespace
        for reader in FRAME_READERS:
            if real is reader:
                raise SkipFrame(f"{reader.__name__}() looks at the frame of the function that calls it")


def _refuse_hidden_receiver(frame: Frame) -> None:
    """Zero-argument super() looks for the first parameter in its frame; in a resume function, a cell is not there."""
    code = frame.program.origin.code
    if "__class__" in code.co_freevars and code.co_argcount and code.co_varnames[0] in code.co_cellvars:
        raise SkipFrame("super() and an inner function share the first parameter: the frame cannot be cut in two")


def _refuse_letting_go(s: _Break) -> None:
    """The arguments of a resume function live as long as it runs: no variable may let go of what a weak reference refers to."""
    origin = s.frame.program.origin
    later = origin.instructions[_index(s, s.instruction) + 1 :]
    if any(i.name.startswith("JUMP_BACKWARD") for i in later):
        later = origin.instructions
    for name in sorted({i.value for i in later if i.name in ("STORE_FAST", "DELETE_FAST")} & s.frame.locals.keys()):
        if holds_what_is_referred_to(s.m, s.frame.locals[name]):
            raise SkipFrame(f"a weak reference refers to what `{name}` lets go of after a break")


def _with_dead_markers_replaced(frame: Frame) -> list[Value]:
    """The stack. POP_EXCEPT takes a copy of the marker of what was handled before: the original is then a plain value."""
    active = len(frame.handled)
    found: list[Value] = []
    for value in frame.stack:
        if isinstance(value, PreviousException):
            active -= 1
            if active < 0:
                value = value.previous or Constant(None)
        found.append(value)
    return found


def _keep_cells(s: _Break) -> None:
    """The frame's cells, in locals of their own: every resume call takes them from there."""
    code = s.frame.program.origin.code
    for name in (*code.co_cellvars, *code.co_freevars):
        s.e.load(cell_of(s.frame, name))
        s.e.code += build.store_fast(f"__cell_{name}")


def _keep_stack(s: _Break) -> None:
    """Values below the operands wait in locals of their own: a resume function takes them from there."""
    handled = iter(s.handled)
    for index, value in enumerate(s.below):
        if isinstance(value, Null):
            s.names.append("")
            continue
        s.e.load(next(handled) if isinstance(value, PreviousException) else value)
        s.names.append(f"__kept_{index}")
        s.e.code += build.store_fast(s.names[-1])


def _place_locals(s: _Break) -> None:
    """Give live locals a name that resume calls load; parameters are never overwritten, since sources read them."""
    live = _live(s, s.instruction) | frozenset(_leading(s)) | s.unused
    parameters = s.m.request.code.co_varnames[: len(s.m.request.bound)]
    for name in sorted(live):
        value = s.frame.locals.get(name)
        if value is None or _already_there(name, value):
            continue
        s.e.load(value.forced if type(value) is Lazy and value.forced is not None else value)
        s.places[name] = f"__new_{name}" if name in parameters else name
        s.e.code += build.store_fast(s.places[name])


def _unbind(s: _Break, name: str) -> None:
    """The instruction meets an unbound local; a parameter of that name must be unbound here too."""
    if name in s.m.request.code.co_varnames[: len(s.m.request.bound)]:
        s.e.code += build.delete_fast(name)


def _already_there(name: str, value: Value) -> bool:
    return isinstance(value.source, Local) and value.source.name == name


def _live(s: _Break, instruction: Instruction) -> frozenset[str]:
    return s.frame.program.origin.live_locals[_index(s, instruction)]


def _run(s: _Break) -> None:
    """The instruction itself, and every way on from it."""
    e, instruction = s.e, s.instruction
    guard: Handler | None = None
    landing = Instruction("NOP")
    if instruction.handler is not None:
        guard = Handler(landing, len(s.handled), False)
    if instruction.name in CONDITIONAL:
        _run_jump(s, guard)
    elif instruction.name == "FOR_ITER":
        _run_loop(s, guard)
    else:
        native, shape = _native(s)
        for part in native:
            part.handler = guard
        e.code += native
        if instruction.name not in NEVER_FALLS_THROUGH:
            _continue(s, _index(s, instruction) + 1, shape)
    if guard is not None:
        e.code.append(landing)
        _continue_in_handler(s)


def _index(s: _Break, instruction: Instruction) -> int:
    origin = s.frame.program.origin
    index = origin.index.get(id(instruction))
    if index is None:
        raise SkipFrame(f"{instruction.name} belongs to a resume function's own opening")
    return index


def _native(s: _Break) -> tuple[Code, str]:
    """The instruction as replacement code runs it, and the marks of what it leaves on the stack."""
    i = s.instruction
    if i.name == "CALL":
        names = s.frame.keyword_names
        before = [Instruction("KW_NAMES", names)] if names else []
        before += [Instruction("PRECALL", i.value)] if HAS_PRECALL else []
        return [*before, _copy(i)], VALUE_MARK
    if i.name == "RERAISE":
        return [Instruction("RERAISE", 0, positions=i.positions)], ""
    if i.name in READS_LOCAL:
        return [dataclasses.replace(_copy(i), value=s.places.get(i.value, i.value))], VALUE_MARK * results_count(
            i, jump=False
        )
    if i.name in AT_CELL and i.value not in s.frame.program.origin.code.co_freevars:
        reads = i.name == "LOAD_DEREF"
        return _at_cell(s) + ([] if reads else build.pop_top()), VALUE_MARK * reads
    if i.name == "LOAD_METHOD" or (i.name == "LOAD_ATTR" and i.flag):
        return [Instruction("LOAD_ATTR", i.value, positions=i.positions)], WITH_NULL
    if i.name == "LOAD_SUPER_ATTR" and i.flag & 1:
        return [Instruction("LOAD_SUPER_ATTR", i.value, flag=i.flag & ~1, positions=i.positions)], WITH_NULL
    if i.name == "LOAD_GLOBAL" and i.flag:
        return [Instruction("LOAD_GLOBAL", i.value, positions=i.positions)], WITH_NULL
    return [_copy(i)], VALUE_MARK * results_count(i, jump=False)


def _at_cell(s: _Break) -> Code:
    """An instruction on a variable that the program's frame has in a cell of its own, and replacement code as a plain local."""
    name = s.instruction.value
    arguments = [build.load_fast(f"__cell_{name}"), build.load_const(name), build.load_const(False)]
    code = build.call(build.load_const(AT_CELL[s.instruction.name]), *arguments)
    for part in code:
        part.positions = s.instruction.positions
    return code


def _copy(i: Instruction) -> Instruction:
    return dataclasses.replace(i, handler=None, offset=None)


def _run_jump(s: _Break, guard: Handler | None) -> None:
    taken = Instruction("NOP")
    if HAS_TO_BOOL and s.instruction.name in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"):
        s.e.code.append(Instruction("TO_BOOL", positions=s.instruction.positions, handler=guard))
    s.e.code.append(dataclasses.replace(s.instruction, value=taken, handler=guard, offset=None))
    keeps = VALUE_MARK * results_count(s.instruction, jump=True)
    falls = VALUE_MARK * results_count(s.instruction, jump=False)
    _continue(s, _index(s, s.instruction) + 1, falls)
    s.e.code.append(taken)
    _continue(s, _index(s, s.instruction.value), keeps)


def _run_loop(s: _Break, guard: Handler | None) -> None:
    """FOR_ITER: one way on with the element, one when the iterator is exhausted (which pops it)."""
    target = s.instruction.value
    ends = [Instruction("END_FOR"), *build.pop_top()][:LOOP_END] if target.name == "END_FOR" else [Instruction("NOP")]
    s.e.code.append(dataclasses.replace(s.instruction, value=ends[0], handler=guard, offset=None))
    _continue(s, _index(s, s.instruction) + 1, mark_of(s.operands[0]) + VALUE_MARK)
    s.e.code += ends
    _continue(s, _index(s, target) + (LOOP_END if target.name == "END_FOR" else 0), "")


def _continue(s: _Break, target: int, results: str) -> None:
    """Return a tail call of the resume function for `target`, with `results` on top of what was below."""
    names: list[str] = []
    for position, mark in enumerate(results):
        names.append(f"__kept_{len(s.below) + position}" if mark in PARAMETERS else "")
    for name in reversed([n for n in names if n]):
        s.e.code += build.store_fast(name)
    s.e.code += [Instruction("POP_EXCEPT") for _ in s.handled]
    marks = "".join(mark_of(value) for value in s.below) + results
    _resume(s, target, marks, [n for n in [*s.names, *names] if n])


def _continue_in_handler(s: _Break) -> None:
    """The instruction raised where the user's code has a handler: go on there."""
    handler = s.instruction.handler
    assert handler is not None
    s.e.code += build.store_fast("__exception") + [Instruction("POP_EXCEPT") for _ in s.handled]
    kept = s.below[: handler.depth]
    if len(kept) < handler.depth:
        raise SkipFrame("an exception handler keeps operands of the instruction that breaks")
    marks = "".join(mark_of(value) for value in kept) + (LASTI_MARK if handler.lasti else "") + VALUE_MARK
    names = [n for n in s.names[: handler.depth] if n]
    _resume(s, _index(s, handler.target), marks, [*names, "__exception"])


def _resume(s: _Break, target: int, marks: str, stack_names: list[str]) -> None:
    origin = s.frame.program.origin
    wanted = origin.live_locals[target] | s.unused
    deleted = s.instruction.value if s.instruction.name == "DELETE_FAST" else None
    leading = _leading(s)
    kept = {name for name in wanted if name in s.frame.locals and name != deleted and name not in leading}
    live = tuple(sorted(kept, key=_order(origin.code)))
    continuation = Continuation(origin, target, marks, live, leading)
    resume = resume_function(continuation, s.m.request.function.__globals__)
    _hand_on_what_varies(s, resume.function.__code__, continuation)
    loads = [build.load_fast(s.places.get(name, name)) for name in [*leading, *stack_names, *live]]
    if resume.function.__closure__:
        callee = build.load_const(resume) + build.load_attr("bind") + _closure(resume.function.__code__.co_freevars)
        s.e.code += callee + build.call_stacked(1)
        for load in loads:
            s.e.code += load
        s.e.code += build.call_stacked(len(loads))
    else:
        s.e.code += build.call(build.load_const(resume), *loads)
    s.e.code += build.return_value()


def _hand_on_what_varies(s: _Break, code: types.CodeType, continuation: Continuation) -> None:
    """Sizes that vary before a break vary behind it; so does the number of the round, where CPython goes on with a loop."""
    values = {f"intermediate value {index}": value for index, value in enumerate(s.below)}
    values |= {name: s.frame.locals[name] for name in (*continuation.leading, *continuation.locals)}
    s.m.sizes.hand_on(code, {place: part for text, value in values.items() for place, part in _sized(text, value)})
    if s.instruction.name == "FOR_ITER" and len(continuation.shape) > len(s.below):
        _hand_on_the_element(s, code, f"intermediate value {len(continuation.shape) - 1}")
    if s.instruction.name in CONDITIONAL:
        counted = counters(s.frame.program, s.instruction, s.frame.locals)
        s.m.sizes.behind[code].numbers |= {name: DYNAMIC for name in counted if name in values}


def _hand_on_the_element(s: _Break, code: types.CodeType, text: str) -> None:
    (iterator,) = s.operands
    if goes_over_rounds(iterator):
        parts = elements_of(iterator, text)
        s.m.sizes.hand_on(code, {place: DYNAMIC if part is None else part for place, part in parts})
    elif is_iterator_by_rounds(iterator):
        s.m.sizes.behind[code].numbers[text] = DYNAMIC


def _sized(text: str, value: Value) -> Iterator[tuple[str, object]]:
    """What of a value has sizes, by the texts of the places where a resume function finds it."""
    match value.forced or value if type(value) is Lazy else value:
        case TensorValue(fake=fake):
            yield text, fake
        case SymbolicValue(symbol=symbol):
            yield text, symbol
        case Lazy(source=source):
            yield text, source
        case TupleValue() | ListValue(source=None) as sequence:
            for index, element in enumerate(sequence.raw_elements()):
                yield from _sized(f"{text}[{index}]", element)


def _order(code: types.CodeType) -> Callable[[str], tuple[int, str]]:
    """Locals in the order of the program's own code, which `locals()` shows; names that it has not come last."""
    places = {name: place for place, name in enumerate(code.co_varnames)}
    return lambda name: (places.get(name, len(places)), name)


def _leading(s: _Break) -> tuple[str, ...]:
    code = s.frame.program.origin.code
    first = code.co_varnames[:1]
    return first if "__class__" in code.co_freevars and code.co_argcount and first[0] in s.frame.locals else ()


def _kept_alive(s: _Break) -> frozenset[str]:
    """Unused locals that stay: all where the code asks for `locals()`, or refers weakly to something made here, which one of them may
    hold; else generators, closed only when it returns, objects that someone
    may refer to weakly, and references, whose callbacks are called as long as they are there."""
    code = s.frame.program.origin.code
    if not FRAME_READER_NAMES.isdisjoint(code.co_names) or refers_to_what_is_made(s.m):
        return frozenset(name for name in code.co_varnames if name in s.frame.locals)
    found = set()
    for name in code.co_varnames:
        value = s.frame.locals.get(name)
        known = value.forced or value if type(value) is Lazy else value
        is_generator = type(getattr(known, "real", None)) is GENERATOR
        is_reference = known is not None and isinstance(known.stored(), ReferenceValue)
        is_generator = is_generator or isinstance(known, (GeneratorValue, RunningIterator))
        if is_generator or is_reference or _may_be_referred_to(s, known):
            found.add(name)
    return frozenset(found)


def _may_be_referred_to(s: _Break, value: Value | None) -> bool:
    """Is it an instance of a class that knows weak references, and one that exists before the instruction is run, whatever comes after it?"""
    if value is None or type(value) not in (InstanceValue, Lazy):
        return False
    cls = value.python_type()
    given = [*s.operands, *(getattr(operand, "receiver", None) for operand in s.operands)]
    exists = value.source is not None or id(value) in s.e.names or any(value is operand for operand in given)
    return exists and bool(cls.__weakrefoffset__ and cls.__flags__ & HEAP_TYPE) and not issubclass(cls, torch.Tensor)


def _closure(names: tuple[str, ...]) -> Code:
    code: Code = []
    for name in names:
        code += build.load_fast(f"__cell_{name}")
    return code + build.build_tuple(len(names))
