"""Which attention kernel is fastest on this CUDA device, by form: times of cuDNN, flash and memory-efficient, forward and both ways.

python -m bench.attention_forms
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.gpu_kernels import milliseconds

FORMS = {
    "16x12x512x64": ((16, 12, 512, 64), None, False),
    "16x12x512x64 mask": ((16, 12, 512, 64), "full", False),
    "8x8x512x64 bias over batch": ((8, 8, 512, 64), "batch", False),
    "8x12x512x64 causal": ((8, 12, 512, 64), None, True),
    "1x32x1024x64 causal": ((1, 32, 1024, 64), None, True),
    "32x12x197x64": ((32, 12, 197, 64), None, False),
    "8x8x1500x64": ((8, 8, 1500, 64), None, False),
    "64x3x49x32 mask": ((64, 3, 49, 32), "full", False),
    "2048x3x49x32 mask": ((2048, 3, 49, 32), "full", False),
    "128x12x49x32 mask": ((128, 12, 49, 32), "full", False),
}
KERNELS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def timed(shape: tuple[int, ...], mask: str | None, causal: bool, backend: SDPBackend) -> str:
    """Microseconds forward, and forward and backward."""
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
    bias = None
    if mask is not None:
        lead = shape[:2] if mask == "full" else (1, shape[1])
        bias = torch.randn(*lead, shape[2], shape[2], device="cuda", dtype=torch.float16)

    def both() -> None:
        F.scaled_dot_product_attention(q, k, v, bias, is_causal=causal).sum().backward()

    def forward() -> None:
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, bias, is_causal=causal)

    with sdpa_kernel(backend):
        for function in (forward, both):
            milliseconds(function, [])
        return f"{milliseconds(forward, []) * 1e3:.0f} ({milliseconds(both, []) * 1e3:.0f})"


def main() -> None:
    for name, form in FORMS.items():
        found = []
        for kernel, backend in KERNELS.items():
            try:
                found.append(f"{kernel} {timed(*form, backend)}")
            except RuntimeError as error:
                found.append(f"{kernel} refused: {str(error).splitlines()[0][:60]}")
        print(f"{name:28} " + "  ".join(found))


if __name__ == "__main__":
    main()
