"""Code made of text: eval, exec and compile."""

from __future__ import annotations

import torch
from harness import BREAK, SKIP, program

SCALE = 3


@program("eval of constants, of locals and globals, of given names", default=True)
def test_eval(x):
    a = 2
    return x * eval("1 + 2"), eval("x * a + SCALE"), eval(" y + z", {"y": 3}, {"z": x}), eval("x.shape[0] * a")


@program("eval sees cells, not what an inner lambda would need of locals")
def test_eval_cells(x):
    a = 3

    def inner():
        return a

    return eval("x * a"), eval("(lambda t: t * SCALE)(x)"), inner()


@program("eval of expressions in a loop, built of names")
def test_eval_loop(x):
    for text in ["x + 1", "x * 2", *[f"x.{name}()" for name in ("sin", "cos")]]:
        x = eval(text)
    return x


class ByName(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x):
        return eval(f"torch.nn.functional.{self.name}(x)")


BY_NAME = ByName("relu")


@program("a module that evaluates a name", default=True)
def test_eval_in_module(x):
    return BY_NAME(x)


@program("eval with a branch on data, with names given", BREAK)
def test_eval_breaks(x):
    return x * 2, eval("x.sum() > 0 and 5", {"x": x})


@program("eval with a branch on data that sees the frame", SKIP)
def test_eval_breaks_in_frame(x):
    y = x * 2
    return y, eval("bool(x.sum() > 0) and 5")


@program("errors of eval that are caught")
def test_eval_errors(x):
    found = []
    for text in ("1 +", "undefined", "1 / 0", "x.missing"):
        try:
            eval(text)
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return x * 2, found


@program("built-in functions of eval's own", BREAK)
def test_eval_builtins(x):
    try:
        eval("len(x)", {"__builtins__": {}, "x": [1]})
    except NameError as error:
        return x * 2, str(error)


@program("exec into a dictionary made inside", default=True)
def test_exec(x):
    names = {}
    exec("def scaled(t):\n    return t * k\nk = 5\nfor i in range(2):\n    k += i", names)
    return names["scaled"](x) + names["k"], sorted(names)


@program("exec with tensors among the names")
def test_exec_tensors(x):
    names = {"x": x}
    exec("y = x + 1\ny = [y, y * 2]\ndel x", names)
    return names["y"], "x" in names


@program("exec into a dictionary from outside", inputs=lambda: (torch.ones(3), {"k": 4}))
def test_exec_outside(x, names):
    exec("def scaled(t):\n    return t * k\nj = k + 1", names)
    found = names["scaled"](x), names["j"], names["scaled"].__globals__ is names
    del names["__builtins__"]
    return found


@program("exec with globals and locals of their own")
def test_exec_two(x):
    names = {}
    exec("import math\ny = math.sqrt(4) * SCALE", globals(), names)
    return x * names["y"], sorted(names)


@program("a function and a generator made by exec are returned")
def test_exec_returned(x):
    names = {}
    exec("def scaled(t):\n    return t * k\nk = 5\ndef squares(n):\n    for i in range(n):\n        yield i * i", names)
    squares = names["squares"](3)
    del names["__builtins__"]
    return [x * value for value in squares], names["squares"](2)


@program("exec with a branch on data", BREAK)
def test_exec_breaks(x):
    names = {"x": x * 2}
    exec("y = 1 if x.sum() > 0 else 2", names)
    return x * names["y"]


@program("exec among the function's own variables", SKIP)
def test_exec_plain(x):
    exec("z = 3")
    return x * 2


@program("compile, then eval and exec")
def test_compile(x):
    code, names = compile("lambda t: t + 1", "<made>", "eval"), {}
    exec(compile("k = 2", "<made>", "exec"), names)
    return eval(code)(x), code.co_name, code.co_filename, names["k"]
