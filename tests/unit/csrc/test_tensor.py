"""Tensor specs and the torch state, in both directions and in words."""

import gc
import types
import weakref

import pytest
import torch

from stoker import _C
from stoker.guard.explain import tensor_mismatch

A, C = types.SimpleNamespace(**_C.ACCESSORS), types.SimpleNamespace(**_C.CHECKS)


def plain():
    return None


class Subclass(torch.Tensor):
    pass


def program(spec):
    return _C.GuardProgram([(A.LOCAL, 0, [(C.TENSOR, spec, 3)], [], 0)], 1)


def agrees(spec, tensor):
    """Whether the guard holds; it must say the same as the words."""
    passed = isinstance(program(spec).check([tensor], plain), tuple)
    assert passed == (tensor_mismatch(spec, tensor) is None)
    return passed


EXAMPLE = torch.zeros(2, 3)


@pytest.mark.parametrize(
    "tensor, words",
    [
        (torch.zeros(2, 3, dtype=torch.float64), "dtype: was float32, is float64"),
        (torch.zeros(2, 3, device="meta"), "device: was cpu, is meta"),
        (torch.zeros(2, 3).to_sparse(), "layout: was strided, is sparse_coo"),
        (torch.zeros(2, 3, requires_grad=True), "requires_grad: was False, is True"),
        (torch.zeros(2), "number of dimensions: was 2, is 1"),
        (torch.zeros(3, 2), "sizes: was (2, 3), is (3, 2)"),
        (torch.zeros(3, 2).T, "strides: was (3, 1), is (1, 2)"),
        (torch.zeros(2, 3).as_subclass(Subclass), "class: was Tensor, is Subclass"),
        (torch.nn.Parameter(torch.zeros(2, 3), requires_grad=False), "class: was Tensor, is Parameter"),
        (3, "class: was Tensor, is int"),
    ],
)
def test_each_difference_fails_in_words(tensor, words):
    spec = _C.tensor_spec(EXAMPLE)
    assert agrees(spec, torch.ones(2, 3))
    assert not agrees(spec, tensor)
    assert tensor_mismatch(spec, tensor) == words


def test_dispatch_keys_tell_views_of_another_kind_apart():
    spec = _C.tensor_spec(torch.zeros(2, dtype=torch.complex64))
    conjugate = torch.zeros(2, dtype=torch.complex64).conj()
    assert not agrees(spec, conjugate)
    assert tensor_mismatch(spec, conjugate).startswith("dispatch keys: was ")
    with torch.inference_mode():
        assert not agrees(_C.tensor_spec(EXAMPLE), torch.zeros(2, 3))


def test_any_size_and_stride():
    spec = _C.tensor_spec(EXAMPLE, (-1, 3), (-1, 1))
    assert (
        agrees(spec, torch.zeros(7, 3)) and agrees(spec, torch.zeros(7, 6)[:, :3]) and agrees(spec, torch.zeros(0, 3))
    )
    assert not agrees(spec, torch.zeros(7, 4)) and not agrees(spec, torch.zeros(3, 7).T)
    assert tensor_mismatch(spec, torch.zeros(7, 4)) == "sizes: was (any, 3), is (7, 4)"
    assert agrees(_C.tensor_spec(torch.tensor(1.0)), torch.tensor(2.0))


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.to_mkldnn])
def test_layouts_without_strides(convert):
    try:
        spec = _C.tensor_spec(convert(torch.ones(2, 3)))
    except RuntimeError as error:
        pytest.skip(str(error))
    assert agrees(spec, convert(torch.zeros(2, 3)))
    assert not agrees(spec, torch.ones(2, 3)) and not agrees(spec, convert(torch.ones(3, 2)))


def test_subclasses_match_exactly():
    spec = _C.tensor_spec(EXAMPLE.as_subclass(Subclass))
    assert agrees(spec, torch.ones(2, 3).as_subclass(Subclass)) and not agrees(spec, torch.ones(2, 3))


def test_wrong_arguments():
    with pytest.raises(TypeError):
        _C.tensor_spec(3)
    with pytest.raises(ValueError):
        _C.tensor_spec(EXAMPLE, (1,), None)


@pytest.mark.parametrize(
    "constant, passing, failing",
    [
        (torch.float32, [torch.float32], [torch.float64]),
        (torch.device("cpu"), [torch.device("cpu")], [torch.device("meta")]),
        (torch.Size([2, 3]), [torch.Size([2, 3])], [torch.Size([2]), (2, 3)]),
    ],
)
def test_constants_of_torch(constant, passing, failing):
    tree = _C.GuardProgram([(A.LOCAL, 0, [(C.EQUALS, constant, 3)], [], -1)], 0)
    assert all(tree.check([value], plain) == () for value in passing)
    assert all(tree.check([value], plain) == 3 for value in failing)


def test_size_of_a_tensor():
    tree = _C.GuardProgram([(A.LOCAL, 0, [], [(A.SIZE, 1, [(C.EQUALS, 3, 5)], [], 0)], -1)], 1)
    assert tree.check([torch.zeros(2, 3)], plain) == (3,)
    assert tree.check([torch.zeros(2, 4)], plain) == 5
    assert tree.check([torch.zeros(2)], plain) == 5, "a dimension that is not there"


def test_symbols_from_sizes_and_strides():
    op = _C.SHAPE_OPS
    conditions = [
        [(op["SYMBOL"], 0), (op["SYMBOL"], 1), (op["EQ"], None)],
        [(op["SYMBOL"], 2), (op["SYMBOL"], 0), (op["EQ"], None)],
    ]
    roots = [(A.LOCAL, i, [], [], i) for i in range(2)]
    tree = _C.GuardProgram(roots, 2, ([(0, 1), (1, 0), (0, ~0)], conditions, [0, 1]))
    x = torch.zeros(4, 3)
    assert isinstance(tree.check([x, torch.zeros(3)], plain), tuple)
    assert tree.check([x, torch.zeros(4)], plain) == 0
    assert tree.check([torch.zeros(3, 4).T, torch.zeros(3)], plain) == 1
    assert tree.check([torch.zeros(4), torch.zeros(3)], plain) == 0, "a dimension that is not there"


def test_tensors_are_not_kept_by_their_guards():
    tensor = torch.zeros(3)
    roots = [(A.LOCAL, 0, [(C.TENSOR, _C.tensor_spec(tensor), 0), (C.IS, tensor, 1)], [], 0)]
    entry = _C.Entry((lambda x, again: (x, again)).__code__, _C.GuardProgram(roots, 1), False, None)
    compiled = _C.Compiled(lambda x: x, _C.Compiler(lambda *_: entry))
    assert compiled(tensor)[1] is tensor
    death = weakref.ref(tensor)
    del tensor, roots
    gc.collect()
    assert death() is None


# State


class FunctionMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class DispatchMode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class DefaultDtype:
    def __enter__(self):
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_):
        torch.set_default_dtype(torch.float32)


class Deterministic:
    def __init__(self, warn_only):
        self.warn_only = warn_only

    def __enter__(self):
        torch.use_deterministic_algorithms(True, warn_only=self.warn_only)

    def __exit__(self, *_):
        torch.use_deterministic_algorithms(False)


CHANGES = {
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "default dtype": DefaultDtype,
    "deterministic": lambda: Deterministic(False),
    "deterministic, warn only": lambda: Deterministic(True),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast dtype": lambda: torch.autocast("cpu", torch.float16),
    "autocast cache": lambda: torch.autocast("cpu", cache_enabled=False),
    "no torch function": torch._C.DisableTorchFunction,
    "function mode": FunctionMode,
    "device": lambda: torch.device("meta"),
    "dispatch mode": DispatchMode,
}


@pytest.mark.parametrize("case", CHANGES)
def test_state_sees_each_change(case):
    change = CHANGES[case]
    state = _C.torch_state()
    tree = _C.GuardProgram([], 0, None, (state, 9))
    assert tree.check([], plain) == () and state.holds() and tree.size == 1 and tree.state is state
    with change():
        assert tree.check([], plain) == 9 and not state.holds()
        inside = _C.torch_state()
        assert inside.holds()
    assert state.holds() and not inside.holds()


def test_modes_compare_by_identity_and_device_contexts_by_device():
    mode = FunctionMode()
    with mode:
        state = _C.torch_state()
        assert state.holds()
    with mode:
        assert state.holds()
    with FunctionMode():
        assert not state.holds()
    with torch.device("cpu"):
        state = _C.torch_state()
    with torch.device("cpu"):
        assert state.holds()
    with torch.device("meta"):
        assert not state.holds()
