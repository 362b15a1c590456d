"""Full backward hooks of modules, and those that are called before a module's backward.

Hooks that only compute become graphs: from the gradients of a module's inputs and of its output to those that take their places. Autograd
calls them between two operators that stand around the module (`engine.Entrance`, `engine.Exit`), here or behind the graph.
"""

from __future__ import annotations

from typing import NoReturn

import torch
import torch.utils.hooks

from stoker.capture import engine, subgraph
from stoker.capture.builtins.hook import new_key
from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import hooking
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod, BuiltinValue, PartialValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.subclass import SubclassValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.graph import program_hook

WHAT = "a full backward hook on a module"


@handles(torch.utils.hooks.BackwardHook)
def backward_hook(m: Machine, module: Value, after: Value, before: Value) -> Value:
    return ModuleHooks(module, after, before)


class ModuleHooks(Value):
    """The hooks of one call of a module."""

    def __init__(self, module: Value, after: Value, before: Value) -> None:
        self.module, self.after, self.before = module, after, before
        self.inputs: list[Value] = []
        self.hooked = engine.HookedModule()

    def python_type(self) -> type:
        return torch.utils.hooks.BackwardHook

    def truth(self, m: Machine) -> bool:
        return True

    def attribute(self, m: Machine, name: str) -> Value:
        return BuiltinMethod(self, name)

    def method_setup_input_hook(self, m: Machine, args: Value) -> Value:
        self.inputs = args.items_list(m)
        if not self.is_called:
            return args
        tensors = [value for value in self.inputs if isinstance(value, TensorValue)]
        if any(isinstance(value, SubclassValue) for value in tensors):
            _refuse("the module is given a tensor subclass")
        made = iter(
            m.record.call(engine.Entrance(self.hooked), [TupleValue(list(tensors))], {}, keep=True).items_list(m)
        )
        return TupleValue([next(made) if isinstance(value, TensorValue) else value for value in self.inputs])

    @property
    def is_called(self) -> bool:
        return torch.is_grad_enabled() and any(_needs_grad(value) for value in self.inputs)

    def method_setup_output_hook(self, m: Machine, result: Value) -> Value:
        outputs = result.items_list(m) if isinstance(result, TupleValue) else [result]
        needing = [value for value in outputs if _needs_grad(value)]
        if not torch.is_grad_enabled() or not needing:
            return result
        if not self.is_called:
            _refuse("no input of the module needs a gradient: eager warns of it in the backward")
        if len(outputs) > 1 or not isinstance(outputs[0], TensorValue) or isinstance(outputs[0], SubclassValue):
            _refuse(
                "the module returns more than a tensor, and which gradients there are is known only in the backward"
            )
        made = self.leave(m, outputs[0])
        return TupleValue([made]) if isinstance(result, TupleValue) else made

    def leave(self, m: Machine, output: TensorValue) -> Value:
        """The output, behind the operator that calls the hooks in the backward."""
        known = set(m.record.graph.nodes)
        stands = [_stand_in(m, v) if isinstance(v, TensorValue) and _needs_grad(v) else None for v in self.inputs]
        gradient = _stand_in(m, output)
        given = [*(stand for stand in stands if stand is not None), gradient]
        of_inputs, of_output = TupleValue([stand or Constant(None) for stand in stands]), TupleValue([gradient])
        arguments = {
            hooking.before_module: [self.module, self.before, of_output],
            hooking.after_module: [self.module, self.after, of_inputs, of_output],
        }
        try:
            branches = [subgraph.capture_branch(m, WHAT, m.wrap.object(f), given) for f, given in arguments.items()]
        except Break:
            subgraph.forget(m, known)
            return self.leave_to_program(m, output)
        _refuse_other_results(branches[0], 1)
        _refuse_other_results(branches[1], len(given) - 1)
        closed = subgraph.close(m, branches, given)
        before, after = (inside if branch.tensors else None for inside, branch in zip(closed.inside, branches))
        needed = [number for number, value in enumerate(self.tensors) if _needs_grad(value)]
        return subgraph.call(m, engine.Exit(self.hooked, before, after, needed), [output.node], closed)[0]

    def leave_to_program(self, m: Machine, output: TensorValue) -> Value:
        """The same, where hooks do more than compute."""
        key, places = new_key(m), [_needs_grad(value) for value in self.inputs]
        before, after = (
            program_hook.module_graph(number, places) if hooks.items_list(m) else None
            for number, hooks in ((program_hook.BEFORE, self.before), (program_hook.AFTER, self.after))
        )
        needed = [number for number, value in enumerate(self.tensors) if _needs_grad(value)]
        given = [output, TupleValue([key]), TupleValue([])]
        (made,) = m.record.call(engine.Exit(self.hooked, before, after, needed), given, {}, keep=True).items_list(m)
        m.record.called_later.append(made)
        attached = [
            PartialValue(m.wrap.object(function), [self.module, hooks], {})
            for function, hooks in ((hooking.before_module, self.before), (hooking.after_module, self.after))
        ]
        m.effects.defer(BuiltinValue(program_hook.attach_to_module), [key, *attached], {})
        return made

    @property
    def tensors(self) -> list[Value]:
        return [value for value in self.inputs if isinstance(value, TensorValue)]


def _stand_in(m: Machine, value: TensorValue) -> TensorValue:
    made = subgraph.stand_in(m, value)
    made.fake.requires_grad_(False)
    return made


def _needs_grad(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.fake.requires_grad


def _refuse_other_results(branch: subgraph.Branch, count: int) -> None:
    """A hook gives a gradient for each that it was given, or nothing."""
    if branch.tensors and len(branch.tensors) != count:
        _refuse("the hook takes some gradients away")


def _refuse(reason: str) -> NoReturn:
    raise Break(WHAT, reason, "use a hook on a tensor, or compile the parts of the model around it")
