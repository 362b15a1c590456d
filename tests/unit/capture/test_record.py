"""Tensor operations to nodes."""

from __future__ import annotations

import operator

import pytest
import torch

from stoker.capture.evaluator import Evaluator
from stoker.capture.record import input_name
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.guard.source import Attribute, Item, Local

x = Local(0, "x")


def tensor(m: Evaluator, *size: int) -> TensorValue:
    found = m.wrap.at(torch.ones(size), x)
    assert isinstance(found, TensorValue)
    return found


def nodes(m: Evaluator) -> list[str]:
    return [node.name for node in m.record.graph.nodes]


def test_a_tensor_is_an_input(m: Evaluator) -> None:
    value = tensor(m, 2, 3)
    assert nodes(m) == ["x"]
    assert [(node, source) for node, source, _ in m.record.inputs] == [(value.node, x)]
    assert value.node.meta["example_value"] is value.fake


def test_an_operation_is_a_node_with_metadata(m: Evaluator) -> None:
    made = m.record.call(torch.add, [tensor(m, 2, 3), Constant(1)], {})
    assert isinstance(made, TensorValue) and tuple(made.fake.shape) == (2, 3)
    assert nodes(m) == ["x", "add"]
    assert made.node.meta["location"]


def test_plain_results_leave_no_node(m: Evaluator) -> None:
    value = tensor(m, 2, 3)
    assert m.record.method(value, "dim", [], {}).constant() == 2
    assert m.record.method(value, "size", [], {}).constant() == (2, 3)
    assert nodes(m) == ["x"]


def test_parts_of_a_result_are_nodes(m: Evaluator) -> None:
    pair = m.record.call(torch.max, [tensor(m, 2, 3), Constant(0)], {})
    assert isinstance(pair, TupleValue) and pair.python_type() is torch.return_types.max
    assert nodes(m) == ["x", "max_1", "getitem", "getitem_1"]


def test_a_result_that_is_an_argument_is_that_value(m: Evaluator) -> None:
    value = tensor(m, 2)
    assert m.record.method(value, "add_", [Constant(1)], {}) is value
    assert m.record.call(operator.iadd, [value, Constant(1)], {}) is value


def test_an_operation_that_eager_refuses_breaks(m: Evaluator) -> None:
    with pytest.raises(Break, match="it raised RuntimeError"):
        m.record.call(torch.matmul, [tensor(m, 2, 3), tensor(m, 2, 3)], {})
    with pytest.raises(Break, match="depends on data"):
        m.record.method(tensor(m), "equal", [tensor(m)], {})


def test_a_number_that_only_data_tells_keeps_its_node(m: Evaluator) -> None:
    found = m.record.method(tensor(m), "item", [], {})
    (node,) = [node for node in m.record.graph.nodes if node.op == "call_method"]
    assert isinstance(found, SymbolicValue) and m.record.to_node(found) is node


def test_arguments_in_structures(m: Evaluator) -> None:
    value: Value = tensor(m, 2)
    m.record.call(torch.cat, [ListValue([value, value])], {"dim": Constant(0)})
    (cat,) = [node for node in m.record.graph.nodes if node.op == "call_function"]
    assert [list(part) for part in cat.args] == [[value.node, value.node]] and cat.kwargs == {"dim": 0}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (Local(0, "self"), "self_"),
        (Item(Local(0, "xs"), 3), "xs_3"),
        (Attribute(Local(0, "3d"), "y"), "input_3d_y"),
        (Local(0, "["), "input"),
    ],
)
def test_names_of_inputs(source: Local, name: str) -> None:
    assert input_name(source) == name
