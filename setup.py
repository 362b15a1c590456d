"""Build stoker._C against the installed torch. Everything else about the package is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

FLAGS = ["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]

setup(
    ext_modules=[
        CppExtension(
            "stoker._C",
            sorted(str(p) for p in Path("csrc").glob("*.cpp")),
            include_dirs=["csrc"],
            extra_compile_args=FLAGS,
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
