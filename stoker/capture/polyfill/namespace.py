"""types.SimpleNamespace's own methods, in Python."""

from __future__ import annotations

from typing import Any


def represent(namespace: Any) -> str:
    name = "namespace" if type(namespace).__name__ == "SimpleNamespace" else type(namespace).__name__
    return f"{name}({', '.join([f'{key}={value!r}' for key, value in vars(namespace).items() if isinstance(key, str) and key])})"


def equal(namespace: Any, other: Any) -> Any:
    return vars(namespace) == vars(other) if _is_namespace(namespace) and _is_namespace(other) else NotImplemented


def _is_namespace(value: Any) -> bool:
    return any(cls.__name__ == "SimpleNamespace" and cls.__module__ == "types" for cls in type(value).__mro__)
