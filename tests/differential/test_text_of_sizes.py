"""Text made of sizes and numbers that vary: shown or returned it costs no version for each number; looked at, it is fixed."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker import log

LOGGER = logging.getLogger("stoker.tests.text_of_sizes")
SIZES = (3, 7, 4, 9, 12, 5)


def prints_a_field(x, seen):
    print(f"{x.shape[0]} rows of {x.shape[1]:>4}, {x.shape[0] * 2 + 1!r}")
    return x * 2


def prints_numbers(x, seen):
    print("rows", x.shape[0], x.numel(), sep=": ")
    return x * 2


def prints_shapes(x, seen):
    print(x.shape, tuple(x.shape), f"{x.shape} and {(x.shape[0], 'a', 2.5)}", x.size())
    return x + 1


def prints_in_a_function(x, seen):
    def told(words, *numbers):
        print(words % numbers)

    told("%d by %03d", x.shape[0], x.shape[1])
    return x + 1


def formats(x, seen):
    return x * 2, "{} of {rows:5}".format(x.shape[1], rows=x.shape[0]), str(x.shape[0]), repr(x.shape)


def joins(x, seen):
    text = "rows: " + str(x.shape[0])
    text += f" ({x.shape[1]})"
    return x * 2, text, [text, text + "!"], {"text": text}


def appends(x, seen):
    seen.append(f"{x.shape[0]}")
    seen.insert(0, str(x.shape[1]))
    return x * 2


def warns(x, seen):
    warnings.warn(f"{x.shape[0]} rows")
    return x * 2


def asserts(x, seen):
    assert x.shape[0] > 1, f"{x.shape[0]} rows"
    if x.shape[1] < 2:
        raise ValueError(f"too narrow: {x.shape}")
    return x * 2


def raises_and_catches(x, seen):
    try:
        raise ValueError(f"{x.shape[0]} rows")
    except ValueError as error:
        return x * 2, error.args[0]


def stores(x, seen):
    seen.append({"shape": f"{tuple(x.shape)}", "rows": str(x.shape[0])})
    return x * 2


def is_text(x, seen):
    text = f"{x.shape[0]}"
    return (x * 2, text) if isinstance(text, str) and type(text) is str else x


def would_be_said(x, seen):
    torch._assert(x.dim() == 2, f"of shape {x.shape}")
    torch._assert(x.shape[0] < 100, f"{x.shape[0]} rows")
    return x * 2


ONCE = [would_be_said, prints_a_field, prints_numbers, prints_shapes, prints_in_a_function, formats, joins, appends, warns, asserts, raises_and_catches, stores, is_text]  # fmt: skip


def logs(x, seen):
    y = x * 2
    LOGGER.warning(f"{x.shape[0]} rows")
    return y + 1


def logs_once(x, seen):
    y = x * 2
    told_once(f"{x.shape[0]} rows")
    return y + 1


@functools.lru_cache(None)
def told_once(words):
    LOGGER.warning(words)


BREAK_ONCE = [logs, logs_once]


def compares(x, seen):
    return x * 2 if f"{x.shape[0]}" == "4" else x * 3


def contains(x, seen):
    return x * 2 if "1" in str(x.shape[0]) or str(x.shape[0]) in ("7", "9") else x * 3


def is_a_key(x, seen):
    names = {"4": x * 2, "rows": x}
    names[f"{x.shape[0]}"] = x + 1
    return names, names.get(str(x.shape[1])), {str(x.shape[0])}


def has_methods(x, seen):
    text = f"{x.shape[0]} rows"
    return (
        x,
        text.upper(),
        text.split(),
        len(text),
        text[0],
        list(text),
        text * 2,
        text.startswith("1"),
        "-".join([text, text]),
    )


def is_a_name(x, seen):
    return getattr(x, f"{'sin' if str(x.shape[0]) > '5' else 'cos'}")() + int(f"{x.shape[0]}") + float(str(x.shape[1]))


def is_iterated(x, seen):
    return x * sum(int(digit) for digit in f"{x.shape[0]}"), sorted([str(x.shape[0]), "44"]), max(str(x.shape[0]), "5")


def is_formatted_again(x, seen):
    text = f"{x.shape[0]}"
    return x, f"{text:>6}|{text!r}", "%s" % text, "{}".format(text), text % (), (text or "none"), bool(text)


def is_of_whole_shapes(x, seen):
    return x, f"{x.shape}" == "torch.Size([4, 6])", str({"a": x.shape, "b": [x.shape[1:]]}), f"{x.shape}".split(",")


LOOKED_AT = [
    *(compares, contains, is_a_key, has_methods, is_a_name, is_iterated, is_formatted_again, is_of_whole_shapes),
]


def outcome(function: Callable[..., Any], rows: int, capture: pytest.CaptureFixture[str]) -> Any:
    x = torch.arange(rows * (rows + 2), dtype=torch.float32).view(rows, rows + 2)
    seen: list[Any] = []
    told_once.cache_clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = function(x, seen)
    texts = [str(w.message) for w in warned]
    return plain(found), plain(seen), texts, capture.readouterr().out


def plain(found: Any) -> Any:
    match found:
        case torch.Tensor():
            return found.tolist()
        case dict():
            return {key: plain(value) for key, value in found.items()}
        case tuple() | list():
            return [type(found).__name__, *map(plain, found)]
    return found


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [*ONCE, *BREAK_ONCE, *LOOKED_AT], ids=lambda f: f.__name__)
def test_says_what_eager_says(program, dynamic, capsys, caplog):
    compiled = stoker.compile(program, backend="aot_eager", dynamic=dynamic)
    for rows in SIZES:
        expected, heard = outcome(program, rows, capsys), caplog.messages
        caplog.clear()
        assert outcome(compiled, rows, capsys) == expected
        assert caplog.messages == heard
        caplog.clear()


@pytest.mark.parametrize("program", [*ONCE, *BREAK_ONCE], ids=lambda f: f.__name__)
def test_is_no_code_for_each_number(program, capsys):
    log.clear()
    compiled = stoker.compile(program, backend="eager")
    for rows in SIZES:
        outcome(compiled, rows, capsys)
    breaks = program in BREAK_ONCE
    captured = [e for e in log.events("captured") if e.subject == program.__name__]
    assert len(captured) <= (4 if breaks else 2), [e.reason for e in log.events("recompile")]
    assert bool(log.events("break")) == breaks


def test_warnings_that_are_errors_for_some_texts(capsys):
    compiled = stoker.compile(warns, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="9 rows")
        for rows in SIZES:
            x = torch.ones(rows, 2)
            if rows == 9:
                with pytest.raises(UserWarning, match="9 rows"):
                    compiled(x, [])
            else:
                assert torch.equal(compiled(x, []), x * 2)
