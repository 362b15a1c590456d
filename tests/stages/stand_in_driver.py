"""A stand-in for the CUDA driver: a library under its name, which notes what kernels are launched on.

A kernel's handle is the number of its parameters. Each launch is noted as that number, the size of the grid, whether the kernel may be placed
before the one ahead of it has ended, and the parameters' words.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = """
#include <stdint.h>
#include <string.h>
static uint64_t noted[1 << 20];
static uint64_t used;
uint64_t* stand_in_noted(void) { return noted; }
uint64_t stand_in_used(void) { return used; }
void stand_in_clear(void) { used = 0; }
int cuDeviceGet(int* device, int number) { *device = number; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { *context = (void*)8; return 0; }
int cuCtxGetCurrent(void** context) { *context = (void*)8; return 0; }
int cuCtxSetCurrent(void* context) { return 0; }
int cuModuleLoadData(void** module, const void* image) { return 1; }
int cuModuleGetFunction(void** function, void* module, const char* name) { return 1; }
int cuFuncSetAttribute(void* function, int attribute, int value) { return 1; }
int cuGetErrorString(int error, const char** words) { *words = "a stand-in"; return 0; }
int cuGraphLaunch(void* graph, void* stream) { return 1; }
struct Config {
  unsigned grid[3], block[3], shared;
  void* stream;
  struct { int id, unused, value[16]; }* attributes;
  unsigned attribute_count;
};
int cuLaunchKernelEx(const struct Config* config, void* function, void** parameters, void** extra) {
  uint64_t count = (uint64_t)function;
  if (used + count + 3 > sizeof noted / sizeof *noted) return 2;
  noted[used++] = count;
  noted[used++] = config->grid[0];
  noted[used++] = config->attribute_count && config->attributes[0].id == 6 && config->attributes[0].value[0];
  for (uint64_t i = 0; i < count; ++i) memcpy(&noted[used++], parameters[i], sizeof(uint64_t));
  return 0;
}
"""


@dataclass(frozen=True, slots=True)
class Launched:
    programs: int
    overlaps: bool
    words: tuple[int, ...]


class StandInDriver:
    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="stoker-driver-"))
        (folder / "driver.c").write_text(SOURCE)
        library = folder / "libcuda.so.1"
        command = [
            "g++",
            "-x",
            "c",
            "-shared",
            "-fPIC",
            "-Wl,-soname,libcuda.so.1",
            "-o",
            str(library),
            str(folder / "driver.c"),
        ]
        subprocess.run(command, check=True)
        self.library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self.library.stand_in_noted.restype = ctypes.POINTER(ctypes.c_uint64)
        self.library.stand_in_used.restype = ctypes.c_uint64

    def clear(self) -> None:
        self.library.stand_in_clear()

    def launched(self) -> list[Launched]:
        noted, used, place = self.library.stand_in_noted(), self.library.stand_in_used(), 0
        found = []
        while place < used:
            count, programs, overlaps = noted[place : place + 3]
            found.append(Launched(programs, bool(overlaps), tuple(noted[place + 3 : place + 3 + count])))
            place += 3 + count
        return found


@functools.cache
def stand_in_driver() -> StandInDriver:
    """Loaded under the driver's name: who looks for it by that name is given it, for as long as the process lives."""
    return StandInDriver()
