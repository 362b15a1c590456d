"""Functions of torch whose numbers must be plain floats, in terms of operators that also take a float that varies from call to call."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F


def _widened(input):
    """In the precision in which eager computes."""
    return input.float() if input.dtype in (torch.float16, torch.bfloat16) else input


def _normalized(input, dims, eps):
    wide = _widened(input)
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    return centred * torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)


def _affine(input, weight, bias):
    result = input if weight is None else input * weight
    return result if bias is None else result + bias


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    dims = list(range(-len(normalized_shape), 0))
    return _affine(_normalized(input, dims, eps), weight, bias).to(input.dtype)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    dims = list(range(-len(normalized_shape), 0))
    wide = _widened(input)
    return _affine(wide * torch.rsqrt(wide.square().mean(dims, keepdim=True) + eps), weight, None).to(input.dtype)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    grouped = input.reshape(input.shape[0], num_groups, -1)
    normal = _normalized(grouped, [2], eps).reshape(input.shape)
    by_channel = [1, -1] + [1] * (input.dim() - 2)
    weight = None if weight is None else weight.reshape(by_channel)
    bias = None if bias is None else bias.reshape(by_channel)
    return _affine(normal, weight, bias).to(input.dtype)


def batch_norm_that_remembers(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
):
    """A batch of nothing has no statistics."""
    now = training and input.numel() != 0
    return _remembering(F.batch_norm, input, running_mean, running_var, weight, bias, training, momentum, eps, now=now)


def instance_norm_that_remembers(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5
):
    """What is remembered is the mean over a batch."""
    return _remembering(
        F.instance_norm,
        input,
        running_mean,
        running_var,
        weight,
        bias,
        use_input_stats,
        momentum,
        eps,
        now=use_input_stats,
    )


def _remembering(norm, input, running_mean, running_var, weight, bias, training, momentum, eps, *, now):
    """Of a momentum that varies: a momentum of 1 gives the statistics of this batch, with eager's own result."""
    if not now or running_mean is None:
        return norm(input, running_mean, running_var, weight, bias, training, 0.0, eps)
    mean, var = torch.zeros_like(running_mean), torch.zeros_like(running_var)
    result = norm(input, mean, var, weight, bias, True, 1.0, eps)
    with torch.no_grad():
        for running, of_batch in ((running_mean, mean), (running_var, var)):
            running.data.copy_(of_batch.double() * momentum + running.double() * (1 - momentum))
    return result


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    dims = [0, *range(2, input.dim())]
    by_channel = [1, -1] + [1] * (input.dim() - 2)
    wide = _widened(input)
    mean, var = running_mean, running_var
    if training:
        mean = wide.mean(dims)
        var = (wide - mean.reshape(by_channel)).square().mean(dims)
    if training and running_mean is not None and input.numel() != 0:
        count = input.numel() // input.shape[1]
        with torch.no_grad():
            running_mean.mul_(1 - momentum).add_(mean * momentum)
            running_var.mul_(1 - momentum).add_(var * (count / (count - 1)) * momentum)
    normal = (wide - mean.reshape(by_channel)) * torch.rsqrt(var.reshape(by_channel) + eps)
    weight = None if weight is None else weight.reshape(by_channel)
    bias = None if bias is None else bias.reshape(by_channel)
    return _affine(normal, weight, bias).to(input.dtype)


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """The scale goes into the query, but for the one that attention has by itself. What is dropped is dropped from the weights."""
    if scale is not None:
        query = query * (scale * math.sqrt(query.shape[-1]))
    if not seldom(dropout_p <= 0.0):
        return _attention_that_drops(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    return F.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, enable_gqa=enable_gqa)


def _attention_that_drops(query, key, value, mask, p, is_causal, enable_gqa):
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    scores = query / math.sqrt(query.shape[-1]) @ key.transpose(-2, -1)
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return dropout(scores.softmax(-1), p) @ value


def seldom(condition):
    """A condition that is taken not to hold where only data tells it: the graph checks that."""
    return condition


def _refuse_probability(p):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p != p:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")


def _nothing_left(input, inplace):
    nothing = torch.zeros((), dtype=input.dtype, device=input.device)
    return input.mul_(nothing) if inplace else input * nothing


def dropout(input, p=0.5, training=True, inplace=False):
    _refuse_probability(p)
    if not training or seldom(p == 0.0):
        return input
    if seldom(p == 1.0):
        return _nothing_left(input, inplace)
    scaled = torch.ops.stoker.bernoulli(input.detach(), 1 - p) / (1 - p)
    return input.mul_(scaled) if inplace else input * scaled


def _reduced(loss, reduction):
    return {"none": lambda: loss, "mean": loss.mean, "sum": loss.sum}[reduction]()


def huber_loss(input, target, reduction="mean", delta=1.0):
    apart = (input - target).abs()
    return _reduced(torch.where(apart < delta, 0.5 * apart * apart, delta * (apart - 0.5 * delta)), reduction)


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    apart = (input - target).abs()
    if beta == 0.0:
        return _reduced(apart, reduction)
    return _reduced(torch.where(apart < beta, 0.5 * apart * apart / beta, apart - 0.5 * beta), reduction)


def margin_ranking_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"):
    return _reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction)


def cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
):
    dim = 1 if input.dim() > 1 else 0
    logarithms = input.log_softmax(dim)
    sharp = F.nll_loss(logarithms, target, None, None, ignore_index, None, reduction)
    counted = target != ignore_index
    smooth = torch.where(counted, -logarithms.sum(dim), 0.0)
    if reduction == "mean":
        smooth = smooth.sum() / counted.sum()
    elif reduction == "sum":
        smooth = smooth.sum()
    return (1 - label_smoothing) * sharp + label_smoothing / input.shape[dim] * smooth


def uniform_(input, start=0.0, to=1.0, *, generator=None):
    """`start` has the name `from`, which Python does not let one write."""
    return input.uniform_().mul_(to - start).add_(start)


def normal_(input, mean=0.0, std=1.0, *, generator=None):
    return input.normal_().mul_(std).add_(mean)


def bernoulli_(input, p=0.5, *, generator=None):
    return input.copy_(torch.ops.stoker.bernoulli(input.detach(), p))


def bernoulli(input, p, *, generator=None):
    return bernoulli_(torch.empty_like(input), p)


def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    limits = torch.finfo(input.dtype)
    posinf, neginf = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    found = torch.where(input == math.inf, posinf, torch.where(input == -math.inf, neginf, input))
    return torch.where(input.isnan(), 0.0 if nan is None else nan, found)


def exponential_(input, lambd=1.0, *, generator=None):
    return input.exponential_().div_(lambd)


def log_normal_(input, mean=1.0, std=2.0, *, generator=None):
    return input.log_normal_(0.0, 1.0).log_().mul_(std).add_(mean).exp_()


def cauchy_(input, median=0.0, sigma=1.0, *, generator=None):
    return input.cauchy_().mul_(sigma).add_(median)


def geometric_(input, p, *, generator=None):
    """As the processor's generator draws: one double for each element, whatever the element is."""
    if input.device.type != "cpu":
        return input.geometric_(float(p))
    if p <= 0 or p >= 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    drawn = torch.empty_like(input, dtype=torch.float64).uniform_()
    return input.copy_((drawn.log_() / math.log1p(-p)).ceil_())


def _feature_noise(input, p):
    """One number for each channel: kept or dropped."""
    shape = [*input.shape[:2], *([1] * (input.dim() - 2))]
    return torch.ops.stoker.bernoulli(input.new_zeros(shape), 1 - p)


def feature_dropout(input, p=0.5, training=True, inplace=False):
    """Whole channels are dropped."""
    _refuse_probability(p)
    if not training or seldom(p == 0.0):
        return input
    if seldom(p == 1.0):
        return _nothing_left(input, inplace)
    scaled = _feature_noise(input, p) / (1 - p)
    return input.mul_(scaled) if inplace else input * scaled


def feature_dropout_of_one(input, p=0.5, training=True):
    """Of an input that is one of a batch."""
    return feature_dropout(input.unsqueeze(0), p, training).squeeze(0)


_ALPHA = 1.7580993408473766
"""Of self-normalizing networks (Klambauer et al., 2017): what a dropped unit is set to, negative."""


def _alpha_dropped(input, noise_of, p, training, inplace):
    _refuse_probability(p)
    if not training or seldom(p == 0.0):
        return input
    if seldom(p == 1.0):
        return _nothing_left(input, inplace)
    noise = noise_of(input, p)
    a = 1.0 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    shift = (noise - 1) * (_ALPHA * a) + _ALPHA * a * p
    return input.mul_(noise * a).add_(shift) if inplace else input * (noise * a) + shift


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    noise_of = lambda input, p: torch.ops.stoker.bernoulli(input.detach(), 1 - p)  # noqa: E731
    return _alpha_dropped(input, noise_of, p, training, inplace)


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    return _alpha_dropped(input, _feature_noise, p, training, inplace)


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    return F.leaky_relu(input, (lower + upper) / 2, inplace)


def instance_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5
):
    by_channel = [1, -1] + [1] * (input.dim() - 2)
    weight = None if weight is None else weight.reshape(by_channel)
    bias = None if bias is None else bias.reshape(by_channel)
    return _affine(_normalized(input, list(range(2, input.dim())), eps), weight, bias).to(input.dtype)


def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    if rtol < 0 or atol < 0:
        raise RuntimeError(
            f"{'rtol' if rtol < 0 else 'atol'} must be greater than or equal to zero, but got {rtol if rtol < 0 else atol}"
        )
    close = input == other
    if equal_nan and (input.is_floating_point() or input.is_complex()):
        close = close | (input.isnan() & other.isnan())
    if rtol == 0 and atol == 0:
        return close
    wide = other if other.is_floating_point() or other.is_complex() else other.to(torch.get_default_dtype())
    apart = (input - wide).abs()
    return close | (apart.isfinite() & (apart <= atol + (rtol * wide).abs()))


def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    return _quantile(torch.quantile, input, q, dim, keepdim, interpolation)


def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    return _quantile(torch.nanquantile, input, q, dim, keepdim, interpolation)


def _quantile(function, input, q, dim, keepdim, interpolation):
    if q < 0 or q > 1:
        raise RuntimeError(f"quantile() q must be in the range [0, 1] but got {q}")
    return function(input, torch.full((), q, dtype=input.dtype), dim, keepdim, interpolation=interpolation)


def logit(input, eps=None):
    return torch.logit(input.clamp(eps, 1 - eps)) if eps is not None and eps >= 0 else torch.logit(input)


def trapezoid(y, x=None, *, dx=1.0, dim=-1):
    if x is not None or y.shape[dim] == 0:
        return torch.trapezoid(y, x, dim=dim)
    return (y.sum(dim) - (y.select(dim, 0) + y.select(dim, -1)) * 0.5) * dx


def cumulative_trapezoid(y, x=None, *, dx=1.0, dim=-1):
    if x is not None:
        return torch.cumulative_trapezoid(y, x, dim=dim)
    size = y.shape[dim]
    return (dx / 2.0 * (y.narrow(dim, 0, size - 1) + y.narrow(dim, 1, size - 1))).cumsum(dim)


def pad(input, pad, mode="constant", value=None):
    return torch.constant_pad_nd(input, pad, value)


def matrix_rank(A, *, atol=None, rtol=None, hermitian=False):
    return torch.linalg.matrix_rank(A, atol=_as_tensor(A, atol), rtol=_as_tensor(A, rtol), hermitian=hermitian)


def pinv(A, *, atol=None, rtol=None, hermitian=False):
    return torch.linalg.pinv(A, atol=_as_tensor(A, atol), rtol=_as_tensor(A, rtol), hermitian=hermitian)


def _as_tensor(matrix, number):
    if number is None or isinstance(number, torch.Tensor):
        return number
    return torch.full((), number, dtype=torch.float64, device=matrix.device)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    norms = [torch.linalg.vector_norm(x, 2, dim, True) for x in (x1, x2)]
    first, second = [n + (n.clamp(min=eps) - n).detach() for n in norms]
    return ((x1 / first) * (x2 / second)).sum(dim)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    return torch.linalg.vector_norm(x1 - x2 + eps, float(p), -1, keepdim)


def cdist(x1, x2, p=2.0, compute_mode=None):
    """Elements that are equal have no part in the gradient."""
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    apart = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return torch.linalg.vector_norm(torch.where(apart == 0, 0.0, apart), float(p), -1)


def pdist(input, p=2.0):
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    first, second = torch.triu_indices(input.shape[0], input.shape[0], 1, device=input.device)
    apart = input[first] - input[second]
    return torch.linalg.vector_norm(torch.where(apart == 0, 0.0, apart), float(p), -1)


def logspace(start, end, steps, base=10.0, *, dtype=None, **options):
    exponents = torch.linspace(start, end, steps, dtype=torch.float64, **options)
    return torch.pow(base, exponents).to(dtype or torch.get_default_dtype())


def embedding_renorm_(weight, indices, max_norm, norm_type):
    """Rows that are chosen twice are written twice, with the same numbers."""
    with torch.no_grad():
        rows = weight[indices.reshape(-1)]
        norms = torch.linalg.vector_norm(rows, float(norm_type), 1, True).double()
        shorter = torch.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        return weight.index_put_((indices.reshape(-1),), rows * shorter.to(rows.dtype))


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if max_norm is not None:
        embedding_renorm_(weight, input, max_norm, norm_type)
    return F.embedding(input, weight, padding_idx, None, 2.0, scale_grad_by_freq, sparse)


def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, *rest, **named):
    if max_norm is not None:
        embedding_renorm_(weight, input, max_norm, norm_type)
    return F.embedding_bag(input, weight, offsets, None, 2.0, *rest, **named)


def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"
):
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = torch.minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced((margin + near - far).clamp(min=0), reduction)


def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    zero = torch.zeros_like(input)
    apart = torch.where(target == 1, zero, (margin - input).clamp(min=0))
    return _reduced(apart + torch.where(target == -1, zero, input), reduction)


def poisson_nll_loss(
    input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"
):
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return _reduced(loss, reduction)


def cosine_embedding_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"):
    dim, tiny = target.dim(), 1e-12
    lengths = ((input1 * input1).sum(dim) + tiny) * ((input2 * input2).sum(dim) + tiny)
    cosine = (input1 * input2).sum(dim) / lengths.sqrt()
    zero = torch.zeros_like(cosine)
    near = torch.where(target == 1, 1 - cosine, zero)
    return _reduced(near + torch.where(target == -1, (cosine - margin).clamp(min=0), zero), reduction)


def normal(mean, std=1.0, size=None, **options):
    """Drawn for each element of whichever is a tensor, or of a size that is given."""
    if size is not None:
        return torch.empty(size, **options).normal_().mul_(std).add_(mean)
    like = mean if isinstance(mean, torch.Tensor) else std
    return torch.empty_like(like.detach()).normal_().mul_(std).add_(mean)


def pow(input, exponent):
    """With a gradient, whose formula asks for plain numbers; of tensors it does not. Eager casts the number to the tensor's type."""
    if not isinstance(input, torch.Tensor):
        input = torch.tensor(input, dtype=exponent.dtype, device=exponent.device)
    if not isinstance(exponent, torch.Tensor):
        exponent = torch.tensor(exponent, dtype=input.dtype, device=input.device)
    return torch.pow(input, exponent)


def _as_tensors(*operands):
    """Numbers as tensors beside which they stand; eager casts them to the tensors' type."""
    like = [operand for operand in operands if isinstance(operand, torch.Tensor)][0]
    return [
        operand if isinstance(operand, torch.Tensor) else torch.full((), operand, dtype=like.dtype, device=like.device)
        for operand in operands
    ]


def lerp(input, end, weight):
    return torch.lerp(*_as_tensors(input, end, weight))


def lerp_(input, end, weight):
    return input.lerp_(*_as_tensors(end, weight))


def xlogy(input, other):
    return torch.xlogy(*_as_tensors(input, other))


def xlog1py(input, other):
    return torch.special.xlog1py(*_as_tensors(input, other))


def zeta(input, other):
    return torch.special.zeta(*_as_tensors(input, other))


def float_power(input, exponent):
    return torch.pow(*(t.double() for t in _as_tensors(input, exponent)))


def dist(input, other, p=2):
    return vector_norm(input - other, p)


def celu(input, alpha=1.0, inplace=False):
    below = torch.where(input > 0, 0.0, input)
    return torch.where(input > 0, input, alpha * torch.expm1(below / alpha))


def arange(start, end, step, options):
    """Of floats: how many there are is computed from them."""
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) / step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    dtype = options.get("dtype") or torch.get_default_dtype()
    count = math.ceil((end - start) / step)
    return (torch.arange(count, dtype=torch.float64, device=options.get("device")) * step + start).to(dtype)


def vector_norm(input, ord=2, dim=None, keepdim=False, *, dtype=None, out=None):
    """With a gradient, which is zero where the norm is."""
    if ord <= 0 or math.isinf(ord):
        return torch.ops.aten.linalg_vector_norm(input, ord, dim, keepdim)
    is_nothing = input == 0
    powers = torch.pow(torch.where(is_nothing, 1.0, input.abs()), ord)
    total = torch.where(is_nothing, 0.0, powers).sum(dim, keepdim)
    is_zero = total == 0
    return torch.where(is_zero, 0.0, torch.pow(torch.where(is_zero, 1.0, total), 1 / ord))


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    return input / torch.norm(input, p, dim, keepdim=True).clamp_min(eps).expand_as(input)


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    return _lp_pool(F.avg_pool1d, 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    return _lp_pool(F.avg_pool2d, 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    return _lp_pool(F.avg_pool3d, 3, input, norm_type, kernel_size, stride, ceil_mode)


def _lp_pool(pool, dims, input, norm_type, kernel_size, stride, ceil_mode):
    mean = pool(torch.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
    count = math.prod(kernel_size) if isinstance(kernel_size, (tuple, list)) else kernel_size**dims
    return torch.pow((mean.sign() * mean.abs().relu()) * count, 1.0 / norm_type)


def norm(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    return vector_norm(input, p, dim, keepdim)
