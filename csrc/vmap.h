// Batches of torch's vmap, taken apart into examples and put together again.
#pragma once

#include <ATen/functorch/BatchedTensorImpl.h>  // before the older one, whose names it would find too
#include <ATen/LegacyBatchedTensorImpl.h>
#include <ATen/ops/_add_batch_dim.h>
#include <ATen/ops/_remove_batch_dim.h>

#include <optional>

namespace stoker {

// The innermost vmap that a tensor is a batch of: torch.func's, or the older one behind is_grads_batched.
struct Vmap {
  bool older;
  int64_t level, count;
  bool operator==(const Vmap&) const = default;

  static std::optional<Vmap> of(const at::Tensor& tensor) {
    if (!tensor.defined()) return std::nullopt;
    if (const auto* batch = at::functorch::maybeGetBatchedImpl(tensor))
      return Vmap{false, batch->level(), batch->value().size(batch->bdim())};
    if (const auto* batch = at::maybeGetBatchedImpl(tensor))
      return Vmap{true, batch->bdims().back().level(), batch->value().size(batch->bdims().back().dim())};
    return std::nullopt;
  }
  // Of an empty batch: zeros.
  at::Tensor example(const at::Tensor& tensor, int64_t index) const {
    const auto* batch = at::functorch::maybeGetBatchedImpl(tensor);
    const at::Tensor all = batch ? batch->value().movedim(batch->bdim(), 0) : at::_remove_batch_dim(tensor, level, count, 0);
    return count ? all.select(0, index) : all.sum(0);
  }
  at::Tensor batch(const at::Tensor& examples) const {
    return older ? at::_add_batch_dim(examples, 0, level) : at::functorch::makeBatched(examples, 0, level);
  }
};

}  // namespace stoker
