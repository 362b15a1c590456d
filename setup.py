"""Build stoker._C against the installed torch. Everything else about the package is in pyproject.toml."""

import os
import runpy
from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

FLAGS = ["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
# For tools/sanitize.py. The sanitizer's own code makes g++ warn about torch's headers.
SANITIZER = (
    ["-fsanitize=address", "-fno-omit-frame-pointer", "-O1", "-Wno-error"] if "STOKER_SANITIZE" in os.environ else []
)
SOURCES, GENERATED = Path("csrc"), Path("build") / "generated"


def write_stamp() -> None:
    """What stoker/extension.py compares at import. A file, not a flag: only the module that includes it is built anew."""
    extension = runpy.run_path("stoker/extension.py")
    stamp = {
        "SOURCE_STAMP": extension["stamp_of"](SOURCES),
        "BUILT_FOR_TORCH": extension["torch_release"](torch.__version__),
    }
    text = "".join(f'#define STOKER_{name} "{value}"\n' for name, value in stamp.items())
    GENERATED.mkdir(parents=True, exist_ok=True)
    header = GENERATED / "stamp.h"
    if not header.exists() or header.read_text() != text:
        header.write_text(text)


write_stamp()
setup(
    ext_modules=[
        CppExtension(
            "stoker._C",
            sorted(str(p) for p in SOURCES.glob("*.cpp")),
            depends=sorted(str(p) for p in (*SOURCES.glob("*.h"), GENERATED / "stamp.h")),
            include_dirs=[str(GENERATED.resolve())],
            extra_compile_args=[*FLAGS, *SANITIZER],
            extra_link_args=SANITIZER[:1],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
