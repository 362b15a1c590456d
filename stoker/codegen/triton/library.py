"""What generated kernels call: loop operations that Triton has no operator for, with the meaning they have in eager on a GPU.

The text of this module stands at the head of every generated source, so that a source is whole: it imports Triton and nothing of
ours. Functions of the device's mathematics library are those that eager's own kernels call.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_wait  # noqa: F401  (of kernels that may be placed early)


@triton.jit
def divide(a, b):
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    return a / b


@triton.jit
def square_root(x):
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    return tl.sqrt(x)


@triton.jit
def reciprocal(x):
    return divide(tl.full([], 1, x.dtype), x)


@triton.jit
def log_gamma(x):
    """The library's function divides by its argument, which overflows near 0."""
    return tl.where(tl.abs(x) < 1e-30, -libdevice.log(tl.abs(x)), libdevice.lgamma(x))


@triton.jit
def negated(x):
    """Triton's -x is 0 - x, which is never -0."""
    if x.dtype.is_floating():
        return x * -1.0
    return -x


@triton.jit
def sign(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def truncated(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def remainder_by_truncation(a, b):
    """fmod: the sign of the first argument."""
    if a.dtype.is_floating():
        return libdevice.fmod(a, b)
    return a % b


@triton.jit
def remainder_by_floor(a, b):
    """The sign of the second argument."""
    left = remainder_by_truncation(a, b)
    return tl.where((left != 0) & ((b < 0) != (left < 0)), left + b, left)


@triton.jit
def divide_down(a, b):
    """Division rounded down."""
    if a.dtype.is_floating():
        left = remainder_by_truncation(a, b)
        whole = divide(a - left, b)
        whole = tl.where((left != 0) & ((b < 0) != (left < 0)), whole - 1, whole)
        near = tl.floor(whole)
        near = tl.where(whole - near > 0.5, near + 1, near)
        exact = divide(a, b)
        near = tl.where(whole == 0, tl.where((a < 0) != (b < 0), -0.0, 0.0).to(a.dtype), near)
        found = tl.where(b == 0, exact, near)
    else:  # no return above: some versions of Triton compile what follows one
        whole = a // b
        found = tl.where((a % b != 0) & ((a < 0) != (b < 0)), whole - 1, whole)
    return found


@triton.jit
def divide_toward_zero(a, b):
    if a.dtype.is_floating():
        found = truncated(divide(a, b))
    else:
        found = a // b
    return found


@triton.jit
def larger(a, b):
    if a.dtype.is_floating():
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(a > b, a, b)


@triton.jit
def smaller(a, b):
    if a.dtype.is_floating():
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(a < b, a, b)


@triton.jit
def shift_left(a, b):
    inside = (b >= 0) & (b < a.dtype.primitive_bitwidth)
    return tl.where(inside, a << tl.where(inside, b, 0), 0).to(a.dtype)


@triton.jit
def shift_right(a, b):
    most = a.dtype.primitive_bitwidth - 1
    inside = (b >= 0) & (b <= most)
    return a >> tl.where(inside, b, most).to(a.dtype)


@triton.jit
def logistic(x):
    return divide(tl.full([], 1, x.dtype), 1 + libdevice.exp(-x))


@triton.jit
def normal_tail(x):
    """The normal distribution below -|x|, to 2e-7: two to the power of a polynomial, 0 past 6."""
    t = tl.abs(x)
    if x.dtype == tl.float64:
        return 0.5 * libdevice.erfc(t * 0.70710678118654752440)
    q = tl.fma(t, 1.3109115570841823e-07, 2.8794491299777292e-05)
    q = tl.fma(q, t, -0.000726579106412828)
    q = tl.fma(q, t, 0.00791677925735712)
    q = tl.fma(q, t, -0.053130991756916046)
    q = tl.fma(q, t, -0.4589895009994507)
    q = tl.fma(q, t, -1.1511322259902954)
    q = tl.fma(q, t, -0.999999463558197)
    return tl.where(t > 6.0, 0.0, libdevice.exp2(q))


@triton.jit
def decay(x):
    """e^x of numbers up to 0; what is smaller than a normal number is 0."""
    if x.dtype == tl.float32:
        return libdevice.fast_expf(x)
    return libdevice.exp(x)


@triton.jit
def decay_scale(m):
    """What makes exponents of e exponents of two: log2 e. Numbers from 2^30 on are so far from each other that others do as well: those whose
    product with m is not rounded."""
    return tl.where(tl.abs(m) < 1073741824.0, 1.4426950408889634, tl.where(tl.abs(m) < 8.5e37, 2.0, 1.0))


@triton.jit
def decay_from(x, m):
    """e^(x - m) of numbers up to m, but for a factor that is the same for all x."""
    scale = decay_scale(m)
    x, shift = tl.broadcast(x, -(m * scale))
    return tl.exp2(tl.fma(x, tl.broadcast_to(scale, x.shape), shift))


@triton.jit
def decay_beyond(m):
    """That factor, inverted."""
    scale = decay_scale(m)
    return tl.exp2(-tl.fma(m, scale, -(m * scale)))


@triton.jit
def plus_at(number, address):
    return number + tl.load(address.to(tl.pointer_type(tl.int64)), mask=address != 0, other=0)


@triton.jit
def philox_words(seed, offset, block, lane):
    """Four words of the generator, as stoker/loop/philox.py has it. Products are made in 64 bits: both halves by one instruction."""
    counter = (offset >> 2) + block + lane * 0
    a, b, c, d = counter.to(tl.uint32), (counter >> 32).to(tl.uint32), lane.to(tl.uint32), (lane >> 32).to(tl.uint32)
    key, other_key = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        first, second = a.to(tl.uint64) * 0xD2511F53, c.to(tl.uint64) * 0xCD9E8D57
        a, b = (second >> 32).to(tl.uint32) ^ b ^ key, second.to(tl.uint32)
        c, d = (first >> 32).to(tl.uint32) ^ d ^ other_key, first.to(tl.uint32)
        key, other_key = key + 0x9E3779B9, other_key + 0xBB67AE85
    return a, b, c, d


@triton.jit
def philox_word(seed, offset, block, lane, word):
    a, b, c, d = philox_words(seed, offset, block, lane)
    return tl.where(word < 2, tl.where(word == 0, a, b), tl.where(word == 2, c, d)).to(tl.int64)


@triton.jit
def add_up(a, b):
    return a + b


@triton.jit
def multiply_up(a, b):
    return a * b


@triton.jit
def differ(a, b):
    return a ^ b


@triton.jit
def _first(a, i, b, j, a_wins):
    """The winner; of equals (and of two that are no numbers) the one that came first."""
    even = (a == b) | ((a != a) & (b != b))
    wins = tl.where(even, i < j, a_wins)
    return tl.where(wins, a, b), tl.where(wins, i, j)


@triton.jit
def place_of_larger(a, i, b, j):
    return _first(a, i, b, j, (a > b) | (a != a))


@triton.jit
def place_of_smaller(a, i, b, j):
    return _first(a, i, b, j, (a < b) | (a != a))


@triton.jit
def latest_larger(a, i, b, j):
    """For running extremes: of equals the later one, and what is no number stays."""
    later = (b >= a) | (b != b)
    return tl.where(later, b, a), tl.where(later, j, i)


@triton.jit
def latest_smaller(a, i, b, j):
    later = (b <= a) | (b != b)
    return tl.where(later, b, a), tl.where(later, j, i)


@triton.jit
def add_exponents(a, b):
    """log(exp(a) + exp(b))"""
    top = tl.where(a > b, a, b)
    low = tl.where(a > b, b, a)
    both = top + libdevice.log1p(libdevice.exp(low - top))
    return tl.where((a == b) & (tl.abs(a) == float("inf")), a, both)


@triton.jit
def join_moments(mean, moment, count, other_mean, other_moment, other_count):
    """Welford: mean and sum of squared distances of two sets together."""
    total = count + other_count
    share = tl.where(total == 0, 0.0, other_count / total)
    apart = other_mean - mean
    return mean + apart * share, moment + other_moment + apart * apart * count * share, total


@triton.jit
def add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def note_outside(flags, bad, family):
    """Tell the host that an index of a family was out of range."""
    tl.store(flags + family + bad.to(tl.int32) * 0, 1, mask=bad)


@triton.jit
def rounded_bits(x, mantissa: tl.constexpr, bias: tl.constexpr):
    """The bits of a positive float32, rounded to the nearest number of a smaller type, ties to even. Its smallest numbers are multiples of a
    step: what is added to them has that step for its last bit."""
    bits = x.to(tl.int32, bitcast=True)
    gone: tl.constexpr = 23 - mantissa
    near = (bits + ((1 << (gone - 1)) - 1) + ((bits >> gone) & 1)) >> gone
    added: tl.constexpr = (150 - (bias - 1 + mantissa)) << 23
    small = (x + tl.full([1], added, tl.int32).to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True) - added
    return tl.where(bits < ((128 - bias) << 23), small, near - ((127 - bias) << mantissa))


@triton.jit
def with_sign(bits, x):
    return (bits | ((x.to(tl.int32, bitcast=True) >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def to_float8_e4m3(x, largest: tl.constexpr):
    """The type has no infinity: `largest` is what becomes of numbers beyond it."""
    size = tl.abs(x)
    beyond = tl.where(x == x, largest, 0x7F)
    return with_sign(tl.where(size <= 464.0, rounded_bits(size, 3, 7), beyond), x)


@triton.jit
def from_float8_e4m3(bits):
    wide = bits.to(tl.int32)
    size = wide & 0x7F
    normal = ((size << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    found = tl.where(size < 8, size.to(tl.float32) * 0.001953125, tl.where(size == 0x7F, float("nan"), normal))
    return tl.where(wide >= 0x80, negated(found), found)


@triton.jit
def to_float8_e5m2(x):
    size = tl.abs(x)
    beyond = tl.where(x == x, 0x7C, 0x7F)
    return with_sign(tl.where(size < 61440.0, rounded_bits(size, 2, 15), beyond), x)


@triton.jit
def from_float8_e5m2(bits):
    """The upper half of a number of 16 bits."""
    return (bits.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
