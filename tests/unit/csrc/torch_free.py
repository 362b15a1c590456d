"""Runs the tests that need no torch, with an interpreter that has neither torch nor pytest.

torch_free.sh builds the extension for it.
"""

import re
import sys
import traceback
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path


class Raises:
    """pytest.raises, as far as these tests use it."""

    def __init__(self, kinds, match=""):
        self.kinds, self.match = kinds, match

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        assert kind is not None and issubclass(kind, self.kinds), f"expected {self.kinds}, got {kind}"
        assert re.search(self.match, str(value)), value
        self.value = value
        return True


def parametrize(names, cases):
    """pytest.mark.parametrize: keeps the cases on the function."""

    def mark(function):
        function.cases = [*getattr(function, "cases", []), ([name.strip() for name in names.split(",")], list(cases))]
        return function

    return mark


def arguments_of(stack):
    if not stack:
        yield {}
        return
    (names, cases), *rest = stack
    for case in cases:
        for others in arguments_of(rest):
            yield dict(zip(names, case if len(names) > 1 else (case,))) | others


def main():
    sys.modules["pytest"] = types.SimpleNamespace(raises=Raises, mark=types.SimpleNamespace(parametrize=parametrize))
    passed, failed = 0, []
    for name in ("test_hook", "test_guards", "test_trail", "test_lifetime"):
        module = SourceFileLoader(name, str(Path(__file__).with_name(f"{name}.py"))).load_module()
        for test, function in list(vars(module).items()):
            if not test.startswith("test_"):
                continue
            for arguments in arguments_of(getattr(function, "cases", [])):
                try:
                    function(**arguments)
                    passed += 1
                except Exception:  # noqa: BLE001  a failed test must not end the run
                    failed.append(f"{name}::{test} {arguments}")
                    traceback.print_exc()
    print(f"Python {sys.version.split()[0]}: {passed} passed, {len(failed)} failed")
    print(*failed, sep="\n")
    sys.exit(bool(failed))


main()
