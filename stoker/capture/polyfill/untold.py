"""Functions of torch that ask how large a tensor or a factor is where the answer changes no value: as written here, they do not."""

from __future__ import annotations

import torch

from stoker.capture.polyfill.indexing import check

aten = torch.ops.aten


_MODES = {None: None, "use_mm_for_euclid_dist": 1, "donot_use_mm_for_euclid_dist": 2}


def add(input, other, *, alpha):
    return input + other * alpha


def sub(input, other, *, alpha):
    return input - other * alpha


def rsub(input, other, *, alpha):
    return other - input * alpha


def fill_diagonal_(input, fill_value, wrap=False):
    """Of a matrix, not wrapped: without asking where its diagonal lies in memory."""
    input.diagonal().fill_(fill_value)
    return input


def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """Without asking from how many rows on a product is faster."""
    if compute_mode == "use_mm_for_euclid_dist_if_necessary":
        compute_mode = "donot_use_mm_for_euclid_dist"
    return aten.cdist(x1, x2, p, _MODES[compute_mode])


def kron(input, other):
    dims = max(input.dim(), other.dim())
    a, b = (t.reshape([1] * (dims - t.dim()) + list(t.shape)) for t in (input, other))
    shape = [n * k for n, k in zip(a.shape, b.shape)]
    for dim in range(dims):
        a, b = a.unsqueeze(2 * dim + 1), b.unsqueeze(2 * dim)
    return (a * b).reshape(shape)


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    stride = kernel_size if stride is None else stride
    found = torch.max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return found if return_indices else found[0]


def max_pool1d_dense(input, *args, **kwargs):
    """As eager has it on the processor where no gradient is asked for: its result is contiguous."""
    return max_pool1d(input.contiguous(), *args, **kwargs)


def take_along_dim(input, indices, dim):
    """Both stretched to the same sizes, but along the dimension."""
    dim = dim % input.dim()
    pairs = list(zip(input.shape, indices.shape))
    input = input.expand([n if d == dim or n != 1 else k for d, (n, k) in enumerate(pairs)])
    indices = indices.expand([k if d == dim or k != 1 else n for d, (n, k) in enumerate(pairs)])
    return input.gather(dim, indices)


def stft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    pad_mode="reflect",
    normalized=False,
    onesided=None,
    return_complex=None,
):
    """Of a real signal, padded at both ends: the transforms of windows that overlap."""
    win_length = n_fft if win_length is None else win_length
    if window is None:
        window = torch.ones(win_length, dtype=input.dtype, device=input.device)
    border = n_fft - win_length
    if border:
        window = torch.nn.functional.pad(window, (border // 2, border - border // 2))
    rows = input.view([1] * (3 - input.dim()) + list(input.shape))
    rows = torch.nn.functional.pad(rows, (n_fft // 2, n_fft // 2), pad_mode)
    frames = rows.view(rows.shape[-input.dim() :]).unfold(-1, n_fft, hop_length or n_fft // 4) * window
    transform = torch.fft.fft if onesided is False else torch.fft.rfft
    return transform(frames, norm="ortho" if normalized else None).transpose(-2, -1)


def triu_indices(row, col, offset=0, *, dtype=torch.long, device=None):
    return torch.ones(row, col, device=device).triu(offset).nonzero().t().contiguous().to(dtype)


def tril_indices(row, col, offset=0, *, dtype=torch.long, device=None):
    return torch.ones(row, col, device=device).tril(offset).nonzero().t().contiguous().to(dtype)


def triu_indices_of_square(row, col, offset=0, *, dtype=torch.long, device=None):
    """As many as a triangle has, whose size is known where the square's is."""
    corner = torch.ones(row, row, dtype=torch.bool, device=device).triu(offset)
    count = _triangle(row - offset) if offset >= 0 else row * row - _triangle(row + offset - 1)
    return _places(corner, count, dtype)


def tril_indices_of_square(row, col, offset=0, *, dtype=torch.long, device=None):
    corner = torch.ones(row, row, dtype=torch.bool, device=device).tril(offset)
    count = _triangle(row + offset) if offset <= 0 else row * row - _triangle(row - offset - 1)
    return _places(corner, count, dtype)


def _triangle(rows):
    """How many elements a triangle of so many rows has."""
    return rows * (rows + 1) // 2 if rows > 0 else 0


def _places(corner, count, dtype):
    if count == 0:
        return torch.zeros(2, 0, dtype=dtype, device=corner.device)
    return torch.nonzero_static(corner, size=count).t().contiguous().to(dtype)


def vander(x, N=None, increasing=False):
    powers = torch.arange(x.shape[0] if N is None else N, device=x.device)
    return x.unsqueeze(-1) ** (powers if increasing else powers.flip(0))


_SCALED = {None: (0, 2), "backward": (0, 2), "ortho": (1, 1), "forward": (2, 0)}
"""How transforms there and back are scaled: not, by the root of the size, by the size (ATen/native/SpectralOpsUtils.h)."""


def _complex(input):
    return input if input.is_complex() else input.to(torch.promote_types(input.dtype, torch.complex64))


def _real(input):
    return input if input.is_floating_point() else input.to(torch.get_default_dtype())


def _there(input, dims, norm):
    if input.is_complex():
        return aten._fft_c2c(input, dims, _SCALED[norm][0], True)
    return aten._fft_r2c(_real(input), dims, _SCALED[norm][0], False)


def _back(input, dims, norm):
    return aten._fft_c2c(_complex(input), dims, _SCALED[norm][1], False)


def _half(input, dims, norm):
    return aten._fft_r2c(_real(input), dims, _SCALED[norm][0], True)


def _real_again(input, dims, norm):
    """The size of the last dimension is even: nobody said that it is not."""
    last = 2 * (input.shape[dims[-1]] - 1)
    check(last >= 1, "RuntimeError", "Invalid number of data points ({}) specified", last)
    return aten._fft_c2r(_complex(input), dims, _SCALED[norm][1], last)


def _all(input, dim):
    return list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)


def fft(input, n=None, dim=-1, norm=None):
    return _there(input, _all(input, dim), norm)


def ifft(input, n=None, dim=-1, norm=None):
    return _back(input, _all(input, dim), norm)


def rfft(input, n=None, dim=-1, norm=None):
    return _half(input, _all(input, dim), norm)


def fft2(input, s=None, dim=(-2, -1), norm=None):
    return _there(input, _all(input, dim), norm)


def ifft2(input, s=None, dim=(-2, -1), norm=None):
    return _back(input, _all(input, dim), norm)


def rfft2(input, s=None, dim=(-2, -1), norm=None):
    return _half(input, _all(input, dim), norm)


def fftn(input, s=None, dim=None, norm=None):
    return _there(input, _all(input, dim), norm)


def ifftn(input, s=None, dim=None, norm=None):
    return _back(input, _all(input, dim), norm)


def rfftn(input, s=None, dim=None, norm=None):
    return _half(input, _all(input, dim), norm)


def irfft(input, n=None, dim=-1, norm=None):
    return _real_again(input, _all(input, dim), norm)


def irfft2(input, s=None, dim=(-2, -1), norm=None):
    return _real_again(input, _all(input, dim), norm)


def irfftn(input, s=None, dim=None, norm=None):
    return _real_again(input, _all(input, dim), norm)
