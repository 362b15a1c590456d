// What stoker/autograd/runtime.py works out, when it compiles a training graph, for the node that will stand for it.
#pragma once

#include "ref.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace stoker {

// How a tensor lies in memory.
struct Layout {
  at::DimVector sizes, strides;
  at::ScalarType dtype{};
  at::Device device{at::kCPU};

  void each(const auto& field) {
    field("sizes", sizes), field("strides", strides), field("dtype", dtype), field("device", device);
  }

  static Layout of(const at::Tensor& tensor) {
    return {at::DimVector(tensor.sizes()), at::DimVector(tensor.strides()), tensor.scalar_type(), tensor.device()};
  }
  // The layout of a result's gradient (stoker/autograd/joint.py, _tangent): elements never share memory.
  static Layout of_gradient(const at::Tensor& result) {
    Layout layout = of(result);
    if (std::find(layout.strides.begin(), layout.strides.end(), 0) != layout.strides.end()) layout.strides = c10::contiguous_strides(layout.sizes);
    return layout;
  }
  at::Tensor empty() const { return at::empty_strided(sizes, strides, at::TensorOptions().dtype(dtype).device(device)); }
  // Strides of dimensions of one element say nothing.
  bool holds(const at::Tensor& tensor) const {
    if (tensor.scalar_type() != dtype || tensor.layout() != c10::kStrided) return false;
    const auto have_sizes = tensor.sizes(), have = tensor.strides();
    if (have.size() != strides.size()) return false;
    for (size_t i = 0; i < strides.size(); ++i)
      if (have[i] != strides[i] && have_sizes[i] != 1) return false;
    return true;
  }
};

// A result that the backward takes a gradient of. Without `layout`, sizes are symbolic: asked of the result.
struct Tangent {
  size_t position = 0;
  bool read = false;
  std::optional<Layout> layout;

  void each(const auto& field) { field("position", position), field("read", read), field("layout", layout); }
};

// A gradient that the backward gives: of which input, and through which tangents it comes.
struct Gradient {
  size_t input = 0;
  std::vector<size_t> tangents;

  void each(const auto& field) { field("input", input), field("tangents", tangents); }
};

// What a node remembers of an input for differentiating again.
enum class Memory : char {
  OBJECT = 'o',  // not a tensor: itself
  KEPT = 'k',    // a kept tensor as well
  HELD = 'h',    // the tensor; an error if it was overwritten since
  WRITTEN = 'w', // as HELD, but the graph writes to it: a detached alias, as the tensor itself would be a cycle
  SHELL = 's',   // gradients do not depend on its content: zeros of the same layout
};

// A backward, for all of the tangents or some: what it takes of the kept tensors, all sizes, and those tangents.
struct Backward {
  Ref call;
  bool boxed = false;  // it takes one list, and empties it
  std::vector<size_t> kept;

  void each(const auto& field) { field("call", call), field("boxed", boxed), field("kept", kept); }
};

using Arrived = std::vector<bool>;  // for each tangent: did a gradient come?

struct TrainingPlan {
  Ref forward, captured, again, random_state;
  Ref apart;              // of one result, gradients that stop at others: stoker/autograd/beneath.py
  Ref partial;            // flags of the tangents that came -> a Backward as a tuple, or None
  Backward backward;
  bool as_given = false;  // gradients are passed on however they lie in memory
  size_t results = 0;
  std::vector<int64_t> kept;  // for each kept tensor the input that it is, or -1
  std::vector<std::vector<size_t>> readers;    // for each kept tensor the tangents whose way back may read it
  std::vector<std::vector<size_t>> histories;  // sets of tangents that are used up together
  std::vector<std::vector<size_t>> beneath;    // for each tangent those of the results that its own is computed from; empty for one result
  std::vector<Tangent> tangents;
  std::vector<Gradient> gradients;
  std::vector<Memory> inputs;

  void each(const auto& field) {
    each_function(field);
    field("backward", backward), field("as_given", as_given), field("results", results), field("kept", kept);
    field("readers", readers), field("histories", histories), field("beneath", beneath), field("tangents", tangents), field("gradients", gradients);
    field("inputs", inputs);
  }
  void each_function(const auto& field) {
    field("forward", forward), field("captured", captured), field("again", again);
    field("random_state", random_state), field("partial", partial), field("apart", apart);
  }
};

// TrainingCall: runs a compiled forward and leaves a node behind that runs the compiled backward.
struct TrainingCall {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  TrainingPlan plan;
  std::vector<std::pair<Arrived, std::shared_ptr<Backward>>> backwards;  // what `partial` gave; null for None

  void each(const auto& visit) {
    plan.each_function([&](const char*, Ref& function) { visit(function); });
    visit(plan.backward.call);
    for (auto& [arrived, backward] : backwards)
      if (backward) visit(backward->call);
  }
};

// Both throw std::exception, or python_error.
TrainingPlan read_training_plan(PyObject* keywords);
Backward read_backward(PyObject* tuple);

}  // namespace stoker
