"""The meaning of built-in functions and of library functions written in C, by family. Importing fills the tables."""

import importlib
import pkgutil

for _family in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_family.name}")
