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
    """Of a momentum that varies: a momentum of 1 gives the statistics of this batch, with eager's own result."""
    if not training or running_mean is None:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, 0.0, eps)
    mean, var = torch.zeros_like(running_mean), torch.zeros_like(running_var)
    result = F.batch_norm(input, mean, var, weight, bias, True, 1.0, eps)
    with torch.no_grad():
        running_mean.data.copy_(mean.double() * momentum + running_mean.double() * (1 - momentum))
        running_var.data.copy_(var.double() * momentum + running_var.double() * (1 - momentum))
    return result


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    dims = [0, *range(2, input.dim())]
    by_channel = [1, -1] + [1] * (input.dim() - 2)
    wide = _widened(input)
    mean, var = running_mean, running_var
    if training:
        mean = wide.mean(dims)
        var = (wide - mean.reshape(by_channel)).square().mean(dims)
    if training and running_mean is not None:
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
    """The scale goes into the query, but for the one that attention has by itself."""
    scaled = query * (scale * math.sqrt(query.shape[-1]))
    return F.scaled_dot_product_attention(scaled, key, value, attn_mask, dropout_p, is_causal, enable_gqa=enable_gqa)


def dropout(input, p=0.5, training=True, inplace=False):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        nothing = torch.zeros((), dtype=input.dtype, device=input.device)
        return input.mul_(nothing) if inplace else input * nothing
    noise = torch.ops.stoker.bernoulli(input.detach(), 1 - p)
    scaled = noise / (1 - p)
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
