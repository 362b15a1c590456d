"""Warnings, of the program and of torch's functions: as often as in eager, of the same line, by the filters of the moment."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import stoker
from stoker import log


class Stale(DeprecationWarning):
    pass


def _of_a_softmax(x):
    return functional.softmax(x) + functional.log_softmax(x * 2)


def _of_losses(x):
    return functional.mse_loss(x, x[:1]) + functional.l1_loss(x, x[:1]) + functional.smooth_l1_loss(x, x[:1])


def _of_an_older_argument(x):
    return functional.mse_loss(x, x * 2, size_average=True)


def _of_a_mean(x):
    return functional.kl_div(x.log_softmax(0), x.softmax(0))


def _of_a_resize(x):
    return functional.upsample(x[None, None], scale_factor=2)


def _of_a_dropout(x):
    return functional.dropout2d(x[None], 0.0)


def _of_a_module(x):
    return nn.Softmax()(x)


def _its_own(x):
    y = x * 2
    warnings.warn("of its own")
    warnings.warn("of another kind", Stale)
    warnings.warn("by name", category=RuntimeWarning, stacklevel=1)
    return y + 1


def _above(x, level=2):
    warnings.warn(f"at level {level}", stacklevel=level)
    return x * 2


def _of_callers(x):
    def between(x):
        return _above(x, 3)

    return _above(x) + between(x)


def _of_whoever_calls(x):
    return _above(x, 3)


def _in_a_loop(x):
    for i in range(3):
        warnings.warn("again")
        x = x + i
    return x


def _heard_inside(x):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        y = _above(x * 2)
    return y + len(heard)


def _as_an_object(x):
    warnings.warn(Stale("made before"))
    return x + 1


def _caught(x):
    try:
        warnings.warn("maybe raised")
    except UserWarning as error:
        return x * len(str(error))
    return x * 2


def _of_a_spread(x):
    y = x[:1] + 1
    return y.std(0).nan_to_num(1.0) + x.var(1, correction=3).nan_to_num(2.0, posinf=3.0) + x.std(correction=0)


def _of_spreads_and_means(x):
    spread, mean = torch.var_mean(x[0, 0])
    return spread.nan_to_num(1.0) + mean + torch.std_mean(x[:, :1], 1)[1]


def _of_copies(x):
    y = torch.tensor(x * 2)
    return y + x.new_tensor(y.int()) + torch.tensor(x.t(), dtype=torch.float64).float()


def _of_a_copy_in_a_module(x):
    return nn.Parameter(torch.tensor(x)) * torch.tensor(x, requires_grad=True)


def _filtered(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x.sin() + 1
    with warnings.catch_warnings(action="ignore", category=Stale):
        return y * 2


def _filtered_by_text(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="of .*")
        warnings.warn("of its own")
        warnings.warn("not of its own")
        y = functional.softmax(x) + torch.tensor(x)
    warnings.warn("after")
    return y


def _recorded(x):
    with warnings.catch_warnings(record=True) as kept:
        warnings.simplefilter("always")
        y = x * 2
        warnings.warn("kept")
        y = y + len(kept)
    return y + len(kept) * 10


def _recorded_nothing(x):
    with warnings.catch_warnings(record=True) as kept:
        y = x * 2
    return y + len(kept)


def _filtered_for_good(x):
    y = x + 1
    warnings.simplefilter("ignore")
    return y + len(warnings.filters[:1])


def _filtered_by_a_wrapper(x):
    return _quiet(_its_own)(x) + _quiet(torch.sin)(x)


def _quiet(function):
    def quiet(*args):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*args)

    return quiet


def _left_by_an_error(x):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raise ValueError("inside")
    except ValueError:
        warnings.warn("outside")
    return x + 1


PROGRAMS = [
    _filtered, _filtered_by_text, _recorded, _recorded_nothing, _filtered_for_good, _filtered_by_a_wrapper, _left_by_an_error,
    _of_a_softmax, _of_losses, _of_an_older_argument, _of_a_mean, _of_a_resize, _of_a_dropout, _of_a_module, _its_own,
    _of_callers, _of_whoever_calls, _in_a_loop, _heard_inside, _as_an_object, _caught, _of_a_spread, _of_spreads_and_means,
    _of_copies, _of_a_copy_in_a_module,
]  # fmt: skip


def _heard(function: Callable[..., Any], actions: list[str]) -> list[Any]:
    """What is heard of each call, and its result or what it raised."""
    found: list[Any] = []
    for action in actions:
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            for _ in range(2):
                try:
                    result: Any = function(torch.arange(9.0).reshape(3, 3)).mul(1000).round().tolist()
                except Warning as warning:
                    result = type(warning), str(warning)
                found.append(result)
            found.append(list(warnings.filters[:2]))
        found.append([(w.category, w.filename, w.lineno, str(w.message)) for w in heard])
    return found


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize(
    "actions", [["always"], ["default", "ignore", "always"], ["always", "error", "once"], ["error"]]
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager(program: Callable[..., Any], actions: list[str], backend: str) -> None:
    assert _heard(stoker.compile(program, backend=backend), actions) == _heard(program, actions)


ONE_GRAPH = [
    _of_a_softmax, _of_losses, _of_a_mean, _its_own, _in_a_loop, _of_copies, _filtered, _recorded_nothing, _filtered_for_good,
]  # fmt: skip


@pytest.mark.parametrize("program", ONE_GRAPH)
def test_one_graph(program: Callable[..., Any]) -> None:
    with warnings.catch_warnings(action="ignore"):
        stoker.compile(program, fullgraph=True)(torch.ones(3, 3))


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_spreads_of_sizes_that_change(dynamic: bool | None) -> None:
    def spread(x):
        return (x * 2).std(correction=2)

    compiled = stoker.compile(spread, dynamic=dynamic)
    for size in (3, 1, 2, 4, 0, 2, 5):
        counts = []
        for function in (spread, compiled):
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                function(torch.arange(float(size)))
            counts.append([str(w.message) for w in heard])
        assert counts[0] == counts[1]


def test_spreads_that_fit_are_one_graph() -> None:
    compiled = stoker.compile(lambda x: x.std() + x.var(0).sum(), fullgraph=True, dynamic=True)
    log.clear()
    for size in (2, 3, 7):
        compiled(torch.randn(size, 3))
    assert not log.events("recompile")


def test_a_copy_is_laid_out_as_in_eager() -> None:
    def copies(x: torch.Tensor) -> Any:
        return torch.tensor(x.t()), x.new_tensor(x[:, ::2]), torch.tensor(x, dtype=torch.int32), torch.tensor(x[0, 0])

    with warnings.catch_warnings(action="ignore"):
        x = torch.arange(12.0).reshape(3, 4).requires_grad_()
        for mine, theirs in zip(stoker.compile(copies, fullgraph=True)(x), copies(x)):
            assert (mine.stride(), mine.requires_grad, mine.is_leaf) == (theirs.stride(), theirs.requires_grad, True)
            assert torch.equal(mine, theirs)
            assert mine.dtype is theirs.dtype


def _of_a_range(x):
    y = x + 1
    return torch.range(0, 2) + y


def _of_a_gradient_in_the_middle(x):
    y = x.requires_grad_() * 2
    return y.detach() + (1 if y.grad is None else 0)


def _of_a_result_of_another_size(x):
    made = torch.ones(2)
    torch.add(x, 1, out=made)
    return made * 2


def _of_all_dimensions_turned(x):
    return x[None].T + torch.cat([x[None].T, x[None].T])[:3]


def _of_one_that_is_ignored(x):
    return torch.range(0, 2) + x.sum()


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize(
    "program",
    [_of_a_range, _of_a_gradient_in_the_middle, _of_a_result_of_another_size, _of_all_dimensions_turned],
)
def test_warnings_of_torchs_c_code_are_of_the_programs_line(program: Callable[..., Any], backend: str) -> None:
    """Told once of each line, as by Python's own rule, though the program is evaluated, traced and run."""

    def heard(function: Callable[..., Any]) -> list[Any]:
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("default")
            results = [function(torch.arange(9.0).reshape(3, 3)).tolist() for _ in range(3)]
        return [results, [(w.category, str(w.message)[:40], w.filename, w.lineno) for w in told]]

    torch.set_warn_always(True)
    try:
        wanted = heard(program)
        assert wanted[1]
        assert heard(stoker.compile(program, backend=backend)) == wanted
    finally:
        torch.set_warn_always(False)


def test_a_warning_of_torchs_c_code_that_is_an_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="torch.range is deprecated"):
            stoker.compile(_of_one_that_is_ignored)(torch.ones(3))
        warnings.simplefilter("ignore")
        assert stoker.compile(_of_one_that_is_ignored)(torch.ones(3)).tolist() == [3.0, 4.0, 5.0]


def _ignored_inside(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = torch.range(0, 2)
    return y + x


def test_a_warning_of_torchs_c_code_that_the_program_ignores() -> None:
    compiled = stoker.compile(_ignored_inside)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert compiled(torch.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert not told
