"""What a compiled program needs when it runs; it imports nothing of the compiler.

Reading order: `build` (C++ to libraries, by way of the cache), `cubin`, `pool` and `triton_worker` (Triton to binaries of a
device), `device` (streams, flags), `tune` (which way is fastest here).
"""
