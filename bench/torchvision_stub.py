"""A stand-in for torchvision: timm needs it for data loading alone, and there is no CPU build of it here."""

from __future__ import annotations

import sys
import types
from typing import Any


def stub_torchvision() -> None:
    """Put the stand-in where `import torchvision` finds it."""
    if "torchvision" in sys.modules:
        return

    class AnyClass(type):
        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return name

    class Anything(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return AnyClass(name, (), {})

    parts = [
        "transforms",
        "transforms.functional",
        "ops",
        "ops.misc",
        "models",
        "datasets",
        "models.feature_extraction",
    ]
    for name in ["torchvision", *(f"torchvision.{part}" for part in parts)]:
        sys.modules[name] = Anything(name)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
