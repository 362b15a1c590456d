"""Replacement code without needless names: a value stored once and loaded once at once stays on the stack.

In:  instructions whose temporaries (`__out_0`, `__stoker_v_3`) are stored once each.
Out: equivalent instructions. Only straight-line neighbours are touched; jump targets stay.
"""

from __future__ import annotations

from collections import Counter

from stoker.bytecode import Code, Instruction

TEMPORARY = ("__out_", "__stoker_v_", "__kept_")


def tidy(code: Code) -> Code:
    """Rename `STORE t ... LOAD t; STORE x` to store into x at once, and drop `STORE t; LOAD t`."""
    return _drop_round_trips(_store_at_once(code))


def _uses(code: Code, name: str) -> Counter[str]:
    return Counter(i.value for i in code if i.name == name)


def _store_at_once(code: Code) -> Code:
    """A temporary that only feeds one local becomes that local, where nothing touches the local in between."""
    loads, stores = _uses(code, "LOAD_FAST"), _uses(code, "STORE_FAST")
    first_load = {i.value: n for n, i in reversed(list(enumerate(code))) if i.name == "LOAD_FAST"}
    result = list(code)
    for index in range(len(code) - 1):
        load, store = code[index], code[index + 1]
        if load.name != "LOAD_FAST" or store.name != "STORE_FAST" or not _is_temporary(load.value):
            continue
        if loads[load.value] != 1 or stores[load.value] != 1 or stores[store.value] != 1:
            continue
        begin = next(n for n, i in enumerate(code) if i.name == "STORE_FAST" and i.value == load.value)
        if (
            first_load.get(store.value, len(code)) < index
            or _jumps(code[begin:index])
            or store.value.startswith("__new_")
        ):
            continue
        result[begin] = Instruction("STORE_FAST", store.value, positions=code[begin].positions)
        result[index] = result[index + 1] = _REMOVED
    return [i for i in result if i is not _REMOVED]


def _drop_round_trips(code: Code) -> Code:
    loads = _uses(code, "LOAD_FAST")
    result: Code = []
    for instruction in code:
        before = result[-1] if result else None
        if (
            before is not None
            and before.name == "STORE_FAST"
            and instruction.name == "LOAD_FAST"
            and before.value == instruction.value
            and _is_temporary(instruction.value)
            and loads[instruction.value] == 1
        ):
            result.pop()
        else:
            result.append(instruction)
    return result


def _is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY)


def _jumps(code: Code) -> bool:
    return any(isinstance(i.value, Instruction) or i.handler is not None for i in code)


_REMOVED = Instruction("NOP")
