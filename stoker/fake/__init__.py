"""Metadata without data: run a program on tensors that know everything about themselves but their elements.

A fake tensor reports the device, type, sizes and strides that the real one would have. Under a `FakeMode` each
operator is answered by a rule of ours, or by torch's meta kernel; autograd works above it, so gradients are fake
tensors too.

>>> import torch
>>> from stoker.fake import FakeMode
>>> mode = FakeMode()
>>> x = mode.from_real(torch.zeros(2, 3))
>>> with mode:
...     y = torch.relu(x) @ torch.ones(3, 4)
>>> y.shape, y.dtype
(torch.Size([2, 4]), torch.float32)

Reading order: `meta` (a record and the arithmetic of strides), `tensor`, `rule` (what a rule may answer), `rules/` (by
family), `propagate` (the order of knowledge, and the memo), `foreign`, `write` and `meet` (others' knowledge;
writing forms; writes that eager refuses), `mode`.
"""

from stoker.fake import rules
from stoker.fake.meet import Refused
from stoker.fake.mode import FakeMode
from stoker.fake.rule import NoMetaRule
from stoker.fake.tensor import FakeStorage, FakeTensor
from stoker.shape.env import DataDependent

__all__ = ["DataDependent", "FakeMode", "FakeStorage", "FakeTensor", "NoMetaRule", "Refused", "rules"]
