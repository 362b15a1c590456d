"""Metadata rules by family. Importing this package fills `stoker.fake.rule.RULES`."""

import importlib
import pkgutil

for _family in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_family.name}")
