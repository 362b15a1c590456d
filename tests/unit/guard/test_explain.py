"""A failed guard in words, without the program's noticing."""

from __future__ import annotations

from typing import Any

import torch

import stoker


class Listening(torch.Tensor):
    """Hears of each function of torch that it is given to."""

    heard: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_class_of_the_users_does_not_see_that_we_look() -> None:
    def doubled(x: Any) -> Any:
        return x * 2

    compiled = stoker.compile(doubled, backend="eager", dynamic=False)
    for sizes in ((3,), (3, 4), (2, 3, 4)):
        given = torch.ones(sizes).as_subclass(Listening)
        Listening.heard.clear()
        compiled(given)
        assert Listening.heard == ["mul"]
    recompiled = [event for event in stoker.events() if event.kind == "recompile"]
    assert "number of dimensions: was 1, is 2" in str(recompiled)
