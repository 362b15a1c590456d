"""Lists of tensors, sorted for kernels that work on many tensors of one device and dtype."""

from __future__ import annotations

from typing import Any


def by_device_and_dtype(lists: Any, with_indices: bool) -> dict[Any, Any]:
    """For each device and dtype of the first list's tensors: the lists' elements there, and their indices."""
    groups: dict[Any, Any] = {}
    for index, tensor in enumerate(lists[0]):
        key = (tensor.device, tensor.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in lists], [])
        for group, tensors in zip(groups[key][0], lists):
            if len(tensors):
                group.append(tensors[index])
        if with_indices:
            groups[key][1].append(index)
    return groups
