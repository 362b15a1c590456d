"""Build stoker._C against the installed torch. Everything else about the package is in pyproject.toml."""

import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

FLAGS = ["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
# For tools/sanitize.py. The sanitizer's own code makes g++ warn about torch's headers.
SANITIZER = (
    ["-fsanitize=address", "-fno-omit-frame-pointer", "-O1", "-Wno-error"] if "STOKER_SANITIZE" in os.environ else []
)

setup(
    ext_modules=[
        CppExtension(
            "stoker._C",
            sorted(str(p) for p in Path("csrc").glob("*.cpp")),
            include_dirs=["csrc"],
            extra_compile_args=[*FLAGS, *SANITIZER],
            extra_link_args=SANITIZER[:1],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
