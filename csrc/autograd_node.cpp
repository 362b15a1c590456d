// TrainingCall(...)(*inputs) -> results.
//
// In:  a compiled forward `inputs -> results, kept tensors, kept sizes`, a compiled backward `kept tensors, kept sizes,
//      tangents -> gradients`, and the facts about them that stoker/autograd/runtime.py works out when it compiles.
// Out: the results, of which those with a tangent have a CompiledGraph node as their grad_fn.
//
// What must hold (tests/differential/autograd/test_engine.py):
//   1. Kept tensors are SavedVariables: saved-tensor hooks see them, and overwriting one is eager's error.
//   2. Without retain_graph they are let go before the backward runs, so that it can free each after its last use.
//   3. A gradient that did not arrive is zeros where the backward reads it; what depends on such gradients alone is none.
//   4. Under create_graph the captured program is differentiated again (stoker/autograd/double_backward.py): right, or refused.
//   5. Batched gradients (is_grads_batched) run the backward once for each example; gradients that are not plain memory (tensor
//      subclasses that dispatch to Python) differentiate the captured program.
//   6. Where only some results got a gradient, a backward for those alone runs (stoker/autograd/partial.py). Without retain_graph,
//      what they share with others is used up, and the others' own history is not.
//   7. A node is dropped by whichever thread drops it last: it takes the GIL wherever it holds a Python object.

#define AT_PER_OPERATOR_HEADERS

#include "autograd_node.h"

#include "dispatch.h"
#include "object_type.h"
#include "ref.h"

#include <ATen/functorch/BatchedTensorImpl.h>  // before the older one, whose names it would find too
#include <ATen/LegacyBatchedTensorImpl.h>
#include <ATen/ops/_add_batch_dim.h>
#include <ATen/ops/_remove_batch_dim.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace stoker {

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using NodePointer = decltype(Edge::function);  // std::shared_ptr until torch 2.12, then c10::intrusive_ptr

PyTypeObject* training_call_type;

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;
  ~Gil() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

bool is_tensor(PyObject* object) {
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

[[noreturn]] void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

const at::Tensor& tensor_of(PyObject* object) {
  if (!is_tensor(object)) throw std::runtime_error("a compiled forward returned something else where it keeps a tensor");
  return THPVariable_Unpack(object);
}

PyObject* checked(PyObject* object) {
  if (!object) throw_python_error();
  return object;
}

at::DimVector numbers(PyObject* tuple) {
  at::DimVector found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    found.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
    if (PyErr_Occurred()) throw_python_error();
  }
  return found;
}

// How a tensor lies in memory.
struct Layout {
  at::DimVector sizes, strides;
  at::ScalarType dtype;
  at::Device device;

  static Layout of(const at::Tensor& tensor) {
    return {at::DimVector(tensor.sizes()), at::DimVector(tensor.strides()), tensor.scalar_type(), tensor.device()};
  }
  // The layout of a result's gradient (stoker/autograd/joint.py, _tangent): elements never share memory.
  static Layout of_gradient(const at::Tensor& result) {
    Layout layout = of(result);
    if (std::find(layout.strides.begin(), layout.strides.end(), 0) != layout.strides.end()) {
      int64_t stride = 1;
      for (size_t i = layout.sizes.size(); i-- > 0;) {
        layout.strides[i] = stride;
        stride *= std::max<int64_t>(layout.sizes[i], 1);
      }
    }
    return layout;
  }
  at::Tensor empty() const {
    return at::empty_strided(sizes, strides, at::TensorOptions().dtype(dtype).device(device));
  }
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
  size_t position;
  bool read;
  std::optional<Layout> layout;
};

// A gradient that the backward gives: of which input, and through which tangents it comes.
struct Gradient {
  size_t input;
  std::vector<size_t> tangents;
};

// What a node remembers of an input for differentiating again.
enum class Memory : char {
  OBJECT = 'o',  // not a tensor: itself
  KEPT = 'k',    // a kept tensor as well
  HELD = 'h',    // the tensor; an error if it was overwritten since
  WRITTEN = 'w', // as HELD, but the graph writes to it: a detached alias, as the tensor itself would be a cycle
  SHELL = 's',   // gradients do not depend on its content: zeros of the same layout
};

// A backward for some of the tangents: what it takes of the kept tensors, all sizes, and those tangents.
struct Backward {
  Ref call;
  bool boxed;
  std::vector<size_t> kept;
};

struct Plan {
  Ref forward, backward, captured, again, random_state;
  bool boxed = false;     // the backward takes one list, and empties it
  bool as_given = false;  // gradients are passed on however they lie in memory
  size_t results = 0;
  std::vector<Py_ssize_t> kept;  // for each kept tensor the input that it is, or -1
  std::vector<std::vector<size_t>> readers;    // for each kept tensor the tangents whose way back may read it
  std::vector<std::vector<size_t>> histories;  // sets of tangents that are used up together
  Ref partial;                                 // flags of the tangents that came -> a Backward as a tuple, or None
  std::vector<std::pair<std::vector<bool>, std::shared_ptr<Backward>>> backwards;  // what it gave; null for None
  std::vector<Tangent> tangents;
  std::vector<Gradient> gradients;
  std::vector<Memory> inputs;
};

struct TrainingCall {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Plan plan;
};

TrainingCall* training_call(PyObject* object) { return reinterpret_cast<TrainingCall*>(object); }

struct Remembered {
  at::Tensor tensor;
  uint32_t version = 0;
  std::optional<Layout> shell;
  bool requires_grad = false;
  PyObject* object = nullptr;  // owned
};

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

constexpr const char* OVERWRITTEN =
    "one of the variables needed for gradient computation has been modified by an inplace operation: an input of shape ";

class CompiledGraph : public Node {
 public:
  explicit CompiledGraph(TrainingCall* call) : call_(call) { Py_INCREF(call); }
  ~CompiledGraph() override {
    Gil gil;
    forget();
    for (PyObject* size : sizes_) Py_DECREF(size);
    Py_DECREF(call_);
  }

  std::string name() const override { return "CompiledGraphBackward"; }

  void connect(PyObject* const* inputs) {
    torch::autograd::edge_list edges;
    edges.reserve(plan().gradients.size());
    for (const Gradient& gradient : plan().gradients)
      edges.push_back(torch::autograd::impl::gradient_edge(THPVariable_Unpack(inputs[gradient.input])));
    set_next_edges(std::move(edges));
  }

  // The results become ours; what the forward kept is saved.
  void adopt(const NodePointer& self, PyObject* const* inputs, PyObject* const* values, size_t count) {
    for (const Tangent& tangent : plan().tangents) {
      const at::Tensor& result = tensor_of(values[tangent.position]);
      torch::autograd::impl::set_gradient_edge(result, Edge(self, add_input_metadata(result)));
      if (!tangent.layout) layouts_.push_back(Layout::of_gradient(result));
    }
    saved_.reserve(plan().kept.size());
    for (size_t i = 0; i < plan().kept.size(); ++i) {
      const Py_ssize_t input = plan().kept[i];
      const at::Tensor& value = tensor_of(input >= 0 ? inputs[input] : values[plan().results + i]);
      saved_.emplace_back(value, /*is_output=*/torch::autograd::impl::grad_fn_unsafe(value) == this);
    }
    for (size_t i = plan().results + plan().kept.size(); i < count; ++i) sizes_.push_back(Py_NewRef(values[i]));
  }

  void remember(PyObject* const* inputs, PyObject* random_state) {
    random_state_ = Py_XNewRef(random_state);
    remembered_.resize(plan().inputs.size());
    for (size_t i = 0; i < remembered_.size(); ++i) remember_one(plan().inputs[i], inputs[i], remembered_[i]);
  }

  variable_list apply(variable_list&& given) override {
    variable_list answer(plan().gradients.size());
    if (std::none_of(given.begin(), given.end(), [](const at::Tensor& t) { return t.defined(); })) return answer;
    for (const at::Tensor& gradient : given)
      if (const std::optional<Vmap> vmap = Vmap::of(gradient)) return one_by_one(given, *vmap);
    Gil gil;
    const std::vector<bool> arrived = which_arrived(given);
    use_up(arrived);
    const bool again = c10::GradMode::is_enabled() || std::any_of(given.begin(), given.end(), dispatches_to_python);
    const std::shared_ptr<Backward> partial = again ? nullptr : partial_backward(arrived);
    Ref found = again ? differentiate_again(given) : partial ? run(*partial, std::move(given)) : run(std::move(given));
    Ref sequence = Ref::steal(checked(PySequence_Fast(found.get(), "a compiled backward returns a tuple or a list")));
    if (static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.get())) != answer.size())
      throw std::runtime_error("a compiled backward returned another number of gradients than it was compiled for");
    PyObject** items = PySequence_Fast_ITEMS(sequence.get());
    for (size_t i = 0; i < answer.size(); ++i)
      if (is_tensor(items[i]) && reached(plan().gradients[i], arrived)) answer[i] = THPVariable_Unpack(items[i]);
    return answer;
  }

  void will_release_variables() override { releasing_ = true; }

  // Of what this backward did not reach, another may still be asked for.
  void release_variables() override {
    for (size_t i = 0; i < saved_.size(); ++i)
      if (used_.empty() || all_used_up(plan().readers[i])) saved_[i].reset_data();
    if ((remembered_.empty() && !random_state_) || !(used_.empty() || every_history_used_up())) return;
    Gil gil;
    forget();
  }

 private:
  const Plan& plan() const { return call_->plan; }

  void forget() {
    for (Remembered& input : remembered_) Py_XDECREF(input.object);
    remembered_.clear();
    Py_CLEAR(random_state_);
    forgotten_ = true;
  }

  static void remember_one(Memory memory, PyObject* input, Remembered& place) {
    switch (memory) {
      case Memory::OBJECT:
        place.object = Py_NewRef(input);
        return;
      case Memory::KEPT:
        return;
      case Memory::HELD:
      case Memory::WRITTEN: {
        const at::Tensor& tensor = THPVariable_Unpack(input);
        place.tensor = memory == Memory::WRITTEN ? tensor.detach() : tensor;
        place.version = tensor._version();
        return;
      }
      case Memory::SHELL: {
        const at::Tensor& tensor = THPVariable_Unpack(input);
        place.requires_grad = tensor.requires_grad();
        place.shell = Layout::of(tensor);
      }
    }
  }

  static bool any_of(const std::vector<size_t>& tangents, const std::vector<bool>& flags) {
    return std::any_of(tangents.begin(), tangents.end(), [&](size_t i) { return flags[i]; });
  }

  // As in eager, what a backward passed is gone, unless the graph was retained: the second time is an error.
  void use_up(const std::vector<bool>& arrived) {
    used_.resize(plan().tangents.size());
    for (const auto& history : plan().histories)
      if (any_of(history, arrived) && any_of(history, used_)) throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
    if (!releasing_) return;
    for (size_t i = 0; i < arrived.size(); ++i)
      if (arrived[i]) used_[i] = true;
  }

  bool is_used_up(size_t tangent) const {
    for (const auto& history : plan().histories)
      if (std::find(history.begin(), history.end(), tangent) != history.end() && any_of(history, used_)) return true;
    return false;
  }

  bool all_used_up(const std::vector<size_t>& tangents) const {
    return std::all_of(tangents.begin(), tangents.end(), [&](size_t i) { return is_used_up(i); });
  }

  bool every_history_used_up() const {
    const auto& all = plan().histories;
    return !all.empty() && std::all_of(all.begin(), all.end(), [&](const auto& history) { return any_of(history, used_); });
  }

  static bool dispatches_to_python(const at::Tensor& gradient) {
    return gradient.defined() && gradient.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python);
  }

  // The gradients for each example of a batch, as a batch. An empty batch has the gradients of one example, cut off.
  variable_list one_by_one(const variable_list& given, const Vmap& vmap) {
    const bool releasing = std::exchange(releasing_, false);
    std::vector<variable_list> examples;
    for (int64_t i = 0; i < std::max<int64_t>(vmap.count, 1); ++i) {
      variable_list example;
      for (const at::Tensor& gradient : given)
        example.push_back(Vmap::of(gradient) == vmap ? vmap.example(gradient, i) : gradient);
      examples.push_back(apply(std::move(example)));
    }
    releasing_ = releasing;
    variable_list answer(plan().gradients.size());
    for (size_t g = 0; g < answer.size(); ++g) {
      std::vector<at::Tensor> parts;
      for (const variable_list& example : examples) parts.push_back(example[g]);
      if (parts.front().defined()) answer[g] = vmap.batch(at::stack(parts).narrow(0, 0, vmap.count));
    }
    return answer;
  }

  static std::vector<bool> which_arrived(const variable_list& given) {
    std::vector<bool> arrived(given.size());
    for (size_t i = 0; i < given.size(); ++i) arrived[i] = given[i].defined();
    return arrived;
  }

  static bool reached(const Gradient& gradient, const std::vector<bool>& arrived) {
    const auto& through = gradient.tangents;
    return through.empty() || std::any_of(through.begin(), through.end(), [&](size_t i) { return arrived[i]; });
  }

  at::Tensor tangent(size_t index, size_t& symbolic, at::Tensor&& gradient) const {
    const Tangent& expected = plan().tangents[index];
    const Layout& layout = expected.layout ? *expected.layout : layouts_[symbolic++];
    if (!gradient.defined()) return expected.read ? layout.empty().zero_() : at::Tensor();
    if (plan().as_given && gradient.layout() == c10::kStrided) return std::move(gradient);
    return laid_out(layout, std::move(gradient));
  }

  static at::Tensor laid_out(const Layout& layout, at::Tensor&& gradient) {
    if (layout.holds(gradient)) return std::move(gradient);
    return layout.empty().copy_(gradient.layout() == c10::kStrided ? gradient : gradient.to_dense());
  }

  // Kept tensors, kept sizes, tangents, in a list. When they are not needed again, the list alone holds them.
  Ref arguments(variable_list&& given) {
    Ref list = Ref::steal(checked(PyList_New(static_cast<Py_ssize_t>(saved_.size() + sizes_.size() + given.size()))));
    Py_ssize_t place = 0;
    for (SavedVariable& saved : saved_) PyList_SET_ITEM(list.get(), place++, checked(THPVariable_Wrap(saved.unpack(getptr()))));
    for (PyObject* size : sizes_) PyList_SET_ITEM(list.get(), place++, Py_NewRef(size));
    size_t symbolic = 0;
    for (size_t i = 0; i < given.size(); ++i)
      PyList_SET_ITEM(list.get(), place++, checked(THPVariable_Wrap(tangent(i, symbolic, std::move(given[i])))));
    given.clear();
    if (releasing_) release_variables();
    return list;
  }

  // The backward for the tangents that came, if some that are read did not and one could be made.
  std::shared_ptr<Backward> partial_backward(const std::vector<bool>& arrived) {
    Plan& plan = call_->plan;
    bool complete = true;
    for (size_t i = 0; i < arrived.size(); ++i) complete &= arrived[i] || !plan.tangents[i].read;
    if (complete || plan.partial.get() == Py_None) return nullptr;
    for (const auto& [flags, known] : plan.backwards)
      if (flags == arrived) return known;
    Ref flags = Ref::steal(checked(PyTuple_New(static_cast<Py_ssize_t>(arrived.size()))));
    for (size_t i = 0; i < arrived.size(); ++i)
      PyTuple_SET_ITEM(flags.get(), static_cast<Py_ssize_t>(i), PyBool_FromLong(arrived[i]));
    const Ref made = Ref::steal(checked(PyObject_CallOneArg(plan.partial.get(), flags.get())));
    std::shared_ptr<Backward> backward;
    if (made.get() != Py_None) {
      PyObject *call, *kept;
      int boxed;
      if (!PyArg_ParseTuple(made.get(), "OpO!", &call, &boxed, &PyTuple_Type, &kept)) throw_python_error();
      const at::DimVector indices = numbers(kept);
      backward = std::make_shared<Backward>(
          Backward{Ref::share(call), boxed != 0, std::vector<size_t>(indices.begin(), indices.end())});
    }
    plan.backwards.emplace_back(arrived, backward);
    return backward;
  }

  Ref run(const Backward& backward, variable_list&& given) {
    Ref list = Ref::steal(checked(PyList_New(0)));
    const auto append = [&](PyObject* item) {
      const Ref owned = Ref::steal(checked(item));
      if (PyList_Append(list.get(), item) < 0) throw_python_error();
    };
    for (const size_t i : backward.kept) append(THPVariable_Wrap(saved_[i].unpack(getptr())));
    for (PyObject* size : sizes_) append(Py_NewRef(size));
    size_t symbolic = 0;
    for (size_t i = 0; i < given.size(); ++i) {
      const bool came = given[i].defined();
      const Layout& layout = plan().tangents[i].layout ? *plan().tangents[i].layout : layouts_[symbolic++];
      if (came) append(THPVariable_Wrap(laid_out(layout, std::move(given[i]))));
    }
    given.clear();
    if (releasing_) release_variables();
    return call_backward(backward.call, backward.boxed, list);
  }

  static Ref call_backward(const Ref& backward, bool boxed, const Ref& list) {
    if (boxed) return Ref::steal(checked(PyObject_CallOneArg(backward.get(), list.get())));
    PyObject** items = PySequence_Fast_ITEMS(list.get());
    return Ref::steal(checked(PyObject_Vectorcall(backward.get(), items, PyList_GET_SIZE(list.get()), nullptr)));
  }

  Ref run(variable_list&& given) {
    return call_backward(plan().backward, plan().boxed, arguments(std::move(given)));
  }

  at::Tensor recall(size_t index, size_t kept) {
    const Remembered& input = remembered_[index];
    if (plan().inputs[index] == Memory::KEPT) return saved_[kept].unpack(getptr());
    if (input.shell) return input.shell->empty().zero_().set_requires_grad(input.requires_grad);
    if (input.tensor._version() != input.version) {
      // No streams: an extension linked with another C++ library than torch's must not print torch's types.
      std::string sizes;
      for (const int64_t size : input.tensor.sizes()) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
      throw std::runtime_error(OVERWRITTEN + ("[" + sizes) + "] of a compiled graph was overwritten; create_graph=True needs it.");
    }
    return input.tensor;
  }

  // again(inputs, random state, gradients of the results): the gradients, in the order of the plan.
  Ref differentiate_again(const variable_list& given) {
    if (forgotten_) throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
    Ref inputs = Ref::steal(checked(PyList_New(static_cast<Py_ssize_t>(remembered_.size()))));
    for (size_t i = 0; i < remembered_.size(); ++i) {
      const auto kept = std::find(plan().kept.begin(), plan().kept.end(), static_cast<Py_ssize_t>(i));
      PyObject* item = remembered_[i].object ? Py_NewRef(remembered_[i].object)
                                             : checked(THPVariable_Wrap(recall(i, kept - plan().kept.begin())));
      PyList_SET_ITEM(inputs.get(), static_cast<Py_ssize_t>(i), item);
    }
    Ref gradients = Ref::steal(checked(PyList_New(static_cast<Py_ssize_t>(plan().results))));
    for (size_t i = 0; i < plan().results; ++i) PyList_SET_ITEM(gradients.get(), static_cast<Py_ssize_t>(i), Py_NewRef(Py_None));
    for (size_t i = 0; i < given.size(); ++i)
      if (given[i].defined())
        PyList_SetItem(gradients.get(), static_cast<Py_ssize_t>(plan().tangents[i].position), checked(THPVariable_Wrap(given[i])));
    PyObject* state = random_state_ ? random_state_ : Py_None;
    PyObject* arguments[] = {inputs.get(), state, gradients.get()};
    return Ref::steal(checked(PyObject_Vectorcall(plan().again.get(), arguments, 3, nullptr)));
  }

  TrainingCall* call_;
  std::vector<SavedVariable> saved_;
  std::vector<PyObject*> sizes_;  // owned
  std::vector<Layout> layouts_;   // of the tangents whose layout the plan does not know
  std::vector<Remembered> remembered_;
  PyObject* random_state_ = nullptr;
  std::vector<bool> used_;  // the tangents of backwards after which nothing was to be retained
  bool releasing_ = false;
  bool forgotten_ = false;
};

template <class T>
NodePointer new_node(TrainingCall* call) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<Node>>) return NodePointer(new T(call), [](T* node) { deleteNode(node); });
  else return c10::make_intrusive<T>(call);
}

// Under vmap, torch.func.grad or forward-mode differentiation tensors carry more than their elements.
bool under_transform() {
  const auto keys = c10::impl::tls_local_dispatch_key_set().included_;
  return keys.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) || keys.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode) ||
         torch::autograd::ForwardADLevel::try_get_by_idx(0);
}

// Also where no gradient comes back (the 0-norm's): eager's results require one then.
bool leaves_node(const Plan& plan, PyObject* const* inputs) {
  if (!c10::GradMode::is_enabled()) return false;
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    if (plan.inputs[i] != Memory::OBJECT && THPVariable_Unpack(inputs[i]).requires_grad()) return true;
  return false;
}

bool inputs_fit(const Plan& plan, PyObject* const* inputs, size_t count) {
  if (count != plan.inputs.size()) return false;
  for (size_t i = 0; i < count; ++i)
    if (plan.inputs[i] != Memory::OBJECT && !is_tensor(inputs[i])) return false;
  return true;
}

// A forward writes to nothing, so what raises in it can be done again by eager.
[[noreturn]] void throw_untouched() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value && PyErr_GivenExceptionMatches(value, PyExc_Exception) && !PyObject_HasAttrString(value, LATE) &&
      PyObject_SetAttrString(value, UNTOUCHED, Py_True) < 0)
    PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  throw_python_error();
}

Ref call_forward(const Plan& plan, PyObject* const* inputs, size_t count) {
  c10::AutoGradMode off(false);
  Ref found = Ref::steal(PyObject_Vectorcall(plan.forward.get(), inputs, count, nullptr));
  if (!found) throw_untouched();
  Ref values = Ref::steal(checked(PySequence_Fast(found.get(), "a compiled forward returns a tuple or a list")));
  if (static_cast<size_t>(PySequence_Fast_GET_SIZE(values.get())) < plan.results + plan.kept.size())
    throw std::runtime_error("a compiled forward returned fewer values than it was compiled for");
  return values;
}

PyObject* call_training(PyObject* object, PyObject* const* inputs, size_t flagged_count, PyObject* keyword_names) {
  HANDLE_TH_ERRORS
  auto* self = training_call(object);
  const Plan& plan = self->plan;
  const size_t count = PyVectorcall_NARGS(flagged_count);
  if (keyword_names || !inputs_fit(plan, inputs, count)) {
    PyErr_SetString(PyExc_TypeError, "a compiled graph was called with other inputs than it was compiled for");
    return nullptr;
  }
  if (under_transform()) return PyObject_Vectorcall(plan.captured.get(), inputs, count, nullptr);
  const bool with_node = leaves_node(plan, inputs);
  Ref random_state;
  if (with_node && plan.random_state.get() != Py_None)
    random_state = Ref::steal(checked(PyObject_CallNoArgs(plan.random_state.get())));
  Ref values = call_forward(plan, inputs, count);
  PyObject** items = PySequence_Fast_ITEMS(values.get());
  if (with_node) {
    NodePointer node = new_node<CompiledGraph>(self);
    auto* graph = static_cast<CompiledGraph*>(node.get());
    graph->connect(inputs);
    graph->adopt(node, inputs, items, PySequence_Fast_GET_SIZE(values.get()));
    graph->remember(inputs, random_state.get());
  }
  Ref results = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(plan.results)));
  if (!results) return nullptr;
  for (size_t i = 0; i < plan.results; ++i) PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), Py_NewRef(items[i]));
  return results.release();
  END_HANDLE_TH_ERRORS
}

// Reading the plan.

std::vector<std::vector<size_t>> sets(PyObject* tuple) {
  std::vector<std::vector<size_t>> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    const at::DimVector one = numbers(PyTuple_GET_ITEM(tuple, i));
    found.emplace_back(one.begin(), one.end());
  }
  return found;
}

Tangent read_tangent(PyObject* tuple) {
  Py_ssize_t position;
  int read;
  PyObject* layout;
  if (!PyArg_ParseTuple(tuple, "npO", &position, &read, &layout)) throw_python_error();
  Tangent tangent{static_cast<size_t>(position), read != 0, std::nullopt};
  if (layout == Py_None) return tangent;
  PyObject *sizes, *strides, *dtype, *device;
  if (!PyArg_ParseTuple(layout, "O!O!O!O!", &PyTuple_Type, &sizes, &PyTuple_Type, &strides, &THPDtypeType, &dtype,
                        &THPDeviceType, &device))
    throw_python_error();
  tangent.layout = Layout{numbers(sizes), numbers(strides), reinterpret_cast<THPDtype*>(dtype)->scalar_type,
                          reinterpret_cast<THPDevice*>(device)->device};
  return tangent;
}

Gradient read_gradient(PyObject* tuple) {
  Py_ssize_t input;
  PyObject* tangents;
  if (!PyArg_ParseTuple(tuple, "nO!", &input, &PyTuple_Type, &tangents)) throw_python_error();
  const at::DimVector through = numbers(tangents);
  return Gradient{static_cast<size_t>(input), std::vector<size_t>(through.begin(), through.end())};
}

PyObject* training_call_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  HANDLE_TH_ERRORS
  static const char* names[] = {"forward", "backward", "captured", "again",     "random_state", "boxed",
                                "results", "partial",  "kept",     "readers",   "histories",    "tangents",
                                "gradients", "inputs", "as_given", nullptr};
  PyObject *forward, *backward, *captured, *again, *random_state, *partial, *kept, *readers, *histories, *tangents, *gradients;
  int boxed, as_given;
  Py_ssize_t results, input_count;
  const char* inputs;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$OOOOOpnOO!O!O!O!O!s#p:TrainingCall", const_cast<char**>(names), &forward,
                                   &backward, &captured, &again, &random_state, &boxed, &results, &partial, &PyTuple_Type,
                                   &kept, &PyTuple_Type, &readers, &PyTuple_Type, &histories, &PyTuple_Type, &tangents, &PyTuple_Type, &gradients, &inputs, &input_count, &as_given))
    return nullptr;
  Plan plan;
  plan.forward = Ref::share(forward);
  plan.backward = Ref::share(backward);
  plan.captured = Ref::share(captured);
  plan.again = Ref::share(again);
  plan.random_state = Ref::share(random_state);
  plan.boxed = boxed != 0;
  plan.as_given = as_given != 0;
  plan.results = static_cast<size_t>(results);
  plan.partial = Ref::share(partial);
  plan.readers = sets(readers);
  plan.histories = sets(histories);
  const at::DimVector places = numbers(kept);
  plan.kept.assign(places.begin(), places.end());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tangents); ++i) plan.tangents.push_back(read_tangent(PyTuple_GET_ITEM(tangents, i)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(gradients); ++i)
    plan.gradients.push_back(read_gradient(PyTuple_GET_ITEM(gradients, i)));
  for (Py_ssize_t i = 0; i < input_count; ++i) plan.inputs.push_back(static_cast<Memory>(inputs[i]));
  auto* self = training_call(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = call_training;
  new (&self->plan) Plan(std::move(plan));
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

int training_call_traverse(PyObject* object, visitproc visit, void* arg) {
  const Plan& plan = training_call(object)->plan;
  Py_VISIT(Py_TYPE(object));
  for (const Ref* ref : {&plan.forward, &plan.backward, &plan.captured, &plan.again, &plan.random_state, &plan.partial})
    Py_VISIT(ref->get());
  for (const auto& [arrived, backward] : plan.backwards)
    if (backward) Py_VISIT(backward->call.get());
  return 0;
}

int training_call_clear(PyObject* object) {
  Plan& plan = training_call(object)->plan;
  for (Ref* ref : {&plan.forward, &plan.backward, &plan.captured, &plan.again, &plan.random_state, &plan.partial}) ref->clear();
  plan.backwards.clear();
  return 0;
}

void training_call_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  training_call(object)->plan.~Plan();
  free_object(object);
}

PyMemberDef training_call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(TrainingCall, vectorcall), READONLY, nullptr},
    {},
};
PyType_Slot training_call_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(training_call_new)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(training_call_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(training_call_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(training_call_dealloc)},
    {Py_tp_members, training_call_members},
    {0, nullptr},
};
PyType_Spec training_call_spec = {"stoker._C.TrainingCall", sizeof(TrainingCall), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, training_call_slots};

const void* storage_of(PyObject* object) {
  if (!is_tensor(object)) return nullptr;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

PyObject* shares_storage(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2 || !PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[1])) {
    PyErr_SetString(PyExc_TypeError, "shares_storage(inputs, written), two tuples");
    return nullptr;
  }
  const Py_ssize_t inputs = PyTuple_GET_SIZE(arguments[0]);
  std::vector<const void*> storages(inputs);
  for (Py_ssize_t i = 0; i < inputs; ++i) storages[i] = storage_of(PyTuple_GET_ITEM(arguments[0], i));
  std::vector<const void*> sorted = storages;
  std::sort(sorted.begin(), sorted.end());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments[1]); ++i) {
    const Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(arguments[1], i));
    if (index < 0 || index >= inputs) return PyErr_Format(PyExc_IndexError, "no input %zd", index);
    const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), storages[index]);
    if (storages[index] && last - first > 1) Py_RETURN_TRUE;
  }
  Py_RETURN_FALSE;
}

bool add_autograd_types(PyObject* module) { return add_type(module, &training_call_spec, &training_call_type); }

}  // namespace stoker
