// CompiledGraph: the node that a training call leaves behind.
//
// In:  what the compiled forward kept, and the gradients of its results.
// Out: the gradients of its inputs, from a compiled backward `kept tensors, kept sizes, tangents -> gradients`.
//
// What must hold (tests/differential/autograd/test_engine.py):
//   1. Kept tensors are SavedVariables: saved-tensor hooks see them, and overwriting one is eager's error.
//   2. Without retain_graph they are let go before the backward runs, so that it can free each after its last use. Inputs are held until
//      it has run: where it fails, the captured program is differentiated instead (tests/unit/test_defects.py).
//   3. A gradient that did not arrive is zeros where the backward reads it; what depends on such gradients alone is none.
//   4. Under create_graph the captured program is differentiated again (stoker/autograd/double_backward.py): right, or refused.
//   5. Gradients that are not plain memory (of vmap and torch.func, dual, zeros without any, of Python) differentiate the captured program.
//   6. Where only some results got a gradient, a backward for those alone runs (stoker/autograd/partial.py). Without retain_graph,
//      what they share with others is used up, and the others' own history is not.
//   7. Two gradients are one tensor, or do not overlap: leaves that take them for their own must not add to each other's.
//   8. Of several results each has a node of its own in front, so that hooks of those without a gradient are not called, and who looks
//      at the gradient of one (a hook, retain_grad, torch.autograd.grad) sees what comes through others that are computed from it, too
//      (tests/differential/autograd/test_beneath.py).
//   9. A node is dropped by whichever thread drops it last: it takes the GIL wherever it holds a Python object.

#define AT_PER_OPERATOR_HEADERS

#include "autograd_node.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/add.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

namespace stoker {

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using NodePointer = decltype(Edge::function);  // std::shared_ptr until torch 2.12, then c10::intrusive_ptr

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;
  ~Gil() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

const at::Tensor& tensor_of(PyObject* object) {
  if (!is_tensor(object)) throw std::runtime_error("a compiled forward returned something else where it keeps a tensor");
  return THPVariable_Unpack(object);
}

bool look_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.key_set() == b.key_set();
}

// A leaf takes a gradient that nobody else holds for its own, and adds to it later. Two tensors of the same memory seem to be held by
// nobody else: one that looks as the other is the other, so that its holders are counted together, and another is copied. A gradient
// with gaps is never taken.
void keep_apart(variable_list& gradients) {
  c10::SmallVector<std::pair<const c10::StorageImpl*, size_t>, 32> places;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& gradient = gradients[i];
    if (gradient.defined() && gradient.has_storage() && gradient.numel() && gradient.is_non_overlapping_and_dense())
      places.emplace_back(gradient.storage().unsafeGetStorageImpl(), i);
  }
  std::sort(places.begin(), places.end());
  for (size_t later = 1; later < places.size(); ++later) {
    at::Tensor& gradient = gradients[places[later].second];
    for (size_t i = later; i-- && places[i].first == places[later].first;) {
      const at::Tensor& earlier = gradients[places[i].second];
      if (earlier.is_same(gradient)) break;
      const auto status = at::get_overlap_status(earlier, gradient);
      if (status == at::MemOverlapStatus::No) continue;
      gradient = status == at::MemOverlapStatus::Full && look_alike(earlier, gradient) ? earlier : gradient.clone();
      break;
    }
  }
}

struct Remembered {
  at::Tensor tensor;
  uint32_t version = 0;
  std::optional<Layout> shell;
  bool requires_grad = false;
  Ref object;
};

// Gradients of inputs that results' own nodes have found, for the graph's node to hand on in the same backward.
struct Aside {
  Arrived results;
  variable_list gradients;
  int task = torch::autograd::get_current_graph_task_id();
};

void add_to(at::Tensor& sum, const at::Tensor& more) {
  if (more.defined()) sum = sum.defined() ? at::add(sum, more) : more;
}

// What a function of Python's gave, as tensors; something else is undefined.
variable_list gradients_in(PyObject* found, size_t count) {
  const Ref sequence = Ref::steal(checked(PySequence_Fast(found, "a compiled backward returns a tuple or a list")));
  if (static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.get())) != count)
    throw std::runtime_error("a compiled backward returned another number of gradients than it was compiled for");
  PyObject** items = PySequence_Fast_ITEMS(sequence.get());
  variable_list gradients(count);
  for (size_t i = 0; i < count; ++i)
    if (is_tensor(items[i])) gradients[i] = THPVariable_Unpack(items[i]);
  return gradients;
}

constexpr const char* OVERWRITTEN =
    "one of the variables needed for gradient computation has been modified by an inplace operation: an input of shape ";

class CompiledGraph : public Node {
 public:
  explicit CompiledGraph(TrainingCall* call) : call_(Owned<TrainingCall>::share(call)) {}
  ~CompiledGraph() override {
    Gil gil;
    forget();
    sizes_.clear();
    call_.clear();
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
    // Saved before results get nodes of their own: what is saved holds no node in front of this one.
    saved_.reserve(plan().kept.size());
    for (size_t i = 0; i < plan().kept.size(); ++i) {
      const int64_t input = plan().kept[i];
      const at::Tensor& value = tensor_of(input >= 0 ? inputs[input] : values[plan().results + i]);
      saved_.emplace_back(value, /*is_output=*/torch::autograd::impl::grad_fn_unsafe(value) == this);
    }
    for (size_t i = plan().results + plan().kept.size(); i < count; ++i) sizes_.push_back(Ref::share(values[i]));
  }

  void remember(PyObject* const* inputs, Ref random_state) {
    random_state_ = std::move(random_state);
    remembered_.resize(plan().inputs.size());
    for (size_t i = 0; i < remembered_.size(); ++i) remember_one(plan().inputs[i], inputs[i], remembered_[i]);
  }

  variable_list apply(variable_list&& given) override {
    return plan().beneath.empty() ? apply_to(std::move(given), {}) : apply_with_aside(std::move(given));
  }

  // The gradients of one result with respect to others that it is computed from; those of inputs, not through these, are put aside.
  variable_list apart(size_t tangent, const std::vector<size_t>& watched, const at::Tensor& gradient) {
    Gil gil;
    const Ref inputs = recalled();
    const auto position = [&](size_t i) { return checked(PyLong_FromSize_t(plan().tangents[i].position)); };
    Ref stops = Ref::steal(checked(PyTuple_New(static_cast<Py_ssize_t>(watched.size()))));
    for (size_t i = 0; i < watched.size(); ++i) PyTuple_SET_ITEM(stops.get(), static_cast<Py_ssize_t>(i), position(watched[i]));
    const Ref which = Ref::steal(position(tangent)), wrapped = Ref::steal(checked(THPVariable_Wrap(gradient)));
    PyObject* state = random_state_ ? random_state_.get() : Py_None;
    PyObject* arguments[] = {inputs.get(), state, which.get(), stops.get(), wrapped.get()};
    const Ref found = Ref::steal(checked(PyObject_Vectorcall(plan().apart.get(), arguments, 5, nullptr)));
    variable_list answer = gradients_in(found.get(), watched.size() + plan().gradients.size());
    if (aside() == aside_.end()) aside_.emplace_back(Arrived(plan().tangents.size()), variable_list(plan().gradients.size()));
    aside()->results[tangent] = true;
    for (size_t i = 0; i < plan().gradients.size(); ++i) add_to(aside()->gradients[i], answer[watched.size() + i]);
    answer.resize(watched.size());
    return answer;
  }

  void will_release_variables() override { releasing_ = true; }

  // Of what this backward did not reach, another may still be asked for.
  void release_variables() override {
    release_saved(/*inputs_too=*/true);
    if ((remembered_.empty() && !random_state_) || !(used_.empty() || every_history_used_up())) return;
    Gil gil;
    forget();
  }

 private:
  const TrainingPlan& plan() const { return call_->plan; }

  void release_saved(bool inputs_too) {
    for (size_t i = 0; i < saved_.size(); ++i)
      if ((inputs_too || plan().kept[i] < 0) && (used_.empty() || all_used_up(plan().readers[i]))) saved_[i].reset_data();
  }

  // What was put aside in this backward, or the end.
  std::vector<Aside>::iterator aside() {
    const int task = torch::autograd::get_current_graph_task_id();
    return std::find_if(aside_.begin(), aside_.end(), [&](const Aside& a) { return a.task == task; });
  }

  variable_list apply_with_aside(variable_list&& given) {
    Gil gil;
    const auto place = aside();
    if (place == aside_.end()) return apply_to(std::move(given), {});
    const Aside found = std::move(*place);
    aside_.erase(place);
    variable_list answer = apply_to(std::move(given), found.results);
    for (size_t i = 0; i < answer.size(); ++i) add_to(answer[i], found.gradients[i]);
    if (!c10::GradMode::is_enabled()) keep_apart(answer);
    return answer;
  }

  // `apart` are the tangents that results' own nodes have taken.
  variable_list apply_to(variable_list&& given, const Arrived& apart) {
    if (std::none_of(given.begin(), given.end(), [](const at::Tensor& t) { return t.defined(); })) {
      if (!apart.empty()) use_up(apart);
      return variable_list(plan().gradients.size());
    }
    Gil gil;
    Arrived arrived;
    for (const at::Tensor& gradient : given) arrived.push_back(gradient.defined());
    Arrived passed = arrived;
    for (size_t i = 0; i < apart.size(); ++i) passed[i] = passed[i] || apart[i];
    use_up(passed);
    const bool again = c10::GradMode::is_enabled() || !std::all_of(given.begin(), given.end(), is_memory);
    const std::shared_ptr<Backward> partial = again ? nullptr : partial_backward(arrived);
    Ref found = again ? differentiate_again(given, Py_None) : run(partial ? *partial : plan().backward, std::move(given));
    variable_list answer = gradients_in(found.get(), plan().gradients.size());
    // One made for the tangents that came knows which gradients come of them: a function of the user's gives zeros, too.
    for (size_t i = 0; i < answer.size() && !partial; ++i)
      if (const auto& through = plan().gradients[i].tangents; !through.empty() && !any_of(through, arrived)) answer[i].reset();
    if (!again) keep_apart(answer);
    return answer;
  }

  void forget() {
    remembered_.clear();
    random_state_.clear();
    forgotten_ = true;
  }

  static void remember_one(Memory memory, PyObject* input, Remembered& place) {
    switch (memory) {
      case Memory::OBJECT:
        place.object = Ref::share(input);
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
  void use_up(const Arrived& arrived) {
    used_.resize(plan().tangents.size());
    for (const auto& history : plan().histories)
      if (any_of(history, arrived) && any_of(history, used_)) throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
    for (size_t i = 0; i < arrived.size(); ++i) used_[i] = used_[i] || (releasing_ && arrived[i]);
  }

  bool is_used_up(size_t tangent) const {
    const auto used_up = [&](const auto& history) { return std::ranges::count(history, tangent) && any_of(history, used_); };
    return std::ranges::any_of(plan().histories, used_up);
  }

  bool all_used_up(const std::vector<size_t>& tangents) const {
    return std::all_of(tangents.begin(), tangents.end(), [&](size_t i) { return is_used_up(i); });
  }

  bool every_history_used_up() const {
    const auto& all = plan().histories;
    return !all.empty() && std::all_of(all.begin(), all.end(), [&](const auto& history) { return any_of(history, used_); });
  }

  static bool is_memory(const at::Tensor& gradient) {
    using enum c10::DispatchKey;
    constexpr c10::DispatchKeySet others({Python, Batched, FuncTorchBatched, FuncTorchGradWrapper, Functionalize, ZeroTensor});
    return !gradient.defined() || (!gradient.key_set().has_any(others) && !gradient._fw_grad(/*level=*/0).defined());
  }

  at::Tensor tangent(const Tangent& expected, const Layout& layout, bool as_given, at::Tensor&& gradient) const {
    if (!gradient.defined()) return expected.read ? layout.empty().zero_() : layout.empty();  // its sizes may be asked
    const bool strided = gradient.layout() == c10::kStrided;
    if ((as_given && strided) || layout.holds(gradient)) return std::move(gradient);
    return layout.empty().copy_(strided ? gradient : gradient.to_dense());
  }

  // The backward for the tangents that came, if some that are read did not and one could be made.
  std::shared_ptr<Backward> partial_backward(const Arrived& arrived) {
    bool complete = true;
    for (size_t i = 0; i < arrived.size(); ++i) complete &= arrived[i] || !plan().tangents[i].read;
    if (complete || plan().partial.get() == Py_None) return nullptr;
    for (const auto& [flags, known] : call_->backwards)
      if (flags == arrived) return known;
    Ref flags = Ref::steal(checked(PyTuple_New(static_cast<Py_ssize_t>(arrived.size()))));
    for (size_t i = 0; i < arrived.size(); ++i)
      PyTuple_SET_ITEM(flags.get(), static_cast<Py_ssize_t>(i), PyBool_FromLong(arrived[i]));
    const Ref made = Ref::steal(checked(PyObject_CallOneArg(plan().partial.get(), flags.get())));
    auto backward = made.get() == Py_None ? nullptr : std::make_shared<Backward>(read_backward(made.get()));
    call_->backwards.emplace_back(arrived, backward);
    return backward;
  }

  // Kept tensors, kept sizes, tangents, in a list. When they are not needed again, the list alone holds them.
  Ref arguments(const Backward& backward, variable_list&& given) {
    Ref list = Ref::steal(checked(PyList_New(0)));
    const auto append = [&](PyObject* item) {
      const Ref owned = Ref::steal(checked(item));
      if (PyList_Append(list.get(), item) < 0) throw_python_error();
    };
    for (const size_t i : backward.kept) append(THPVariable_Wrap(saved_[i].unpack(getptr())));
    for (const Ref& size : sizes_) append(Py_NewRef(size.get()));
    const bool whole = &backward == &plan().backward;
    size_t symbolic = 0;
    for (size_t i = 0; i < given.size(); ++i) {
      const Tangent& expected = plan().tangents[i];
      const Layout& layout = expected.layout ? *expected.layout : layouts_[symbolic++];
      if (given[i].defined() || whole)
        append(THPVariable_Wrap(tangent(expected, layout, whole && plan().as_given, std::move(given[i]))));
    }
    given.clear();
    if (releasing_) release_saved(/*inputs_too=*/false);
    return list;
  }

  Ref run(const Backward& backward, variable_list&& given) {
    const variable_list held = given;
    const Ref list = arguments(backward, std::move(given));
    PyObject** items = PySequence_Fast_ITEMS(list.get());
    PyObject* found = backward.boxed ? PyObject_CallOneArg(backward.call.get(), list.get())
                                     : PyObject_Vectorcall(backward.call.get(), items, PyList_GET_SIZE(list.get()), nullptr);
    return found ? Ref::steal(found) : instead(held);
  }

  // A backward failed: the captured program's. Where an input that it needs was overwritten, the error is what it was.
  Ref instead(const variable_list& given) {
    compat::SavedError error;
    const Ref raised = Ref::share(error.raised);
    error.restore();
    python_error ours;
    ours.persist();
    try {
      return differentiate_again(given, raised.get());
    } catch (const std::runtime_error&) {
      throw ours;
    }
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

  // The inputs of the call, in a list.
  Ref recalled() {
    if (forgotten_) throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
    Ref inputs = Ref::steal(checked(PyList_New(static_cast<Py_ssize_t>(remembered_.size()))));
    for (size_t i = 0; i < remembered_.size(); ++i) {
      const auto kept = std::find(plan().kept.begin(), plan().kept.end(), static_cast<int64_t>(i));
      PyObject* item = remembered_[i].object ? Py_NewRef(remembered_[i].object.get())
                                             : checked(THPVariable_Wrap(recall(i, kept - plan().kept.begin())));
      PyList_SET_ITEM(inputs.get(), static_cast<Py_ssize_t>(i), item);
    }
    return inputs;
  }

  // again(inputs, random state, gradients of the results, None or what a backward raised): the gradients, in the order of the plan.
  Ref differentiate_again(const variable_list& given, PyObject* raised) {
    const Ref inputs = recalled();
    Ref gradients = Ref::steal(checked(PyList_New(static_cast<Py_ssize_t>(plan().results))));
    for (size_t i = 0; i < plan().results; ++i) PyList_SET_ITEM(gradients.get(), static_cast<Py_ssize_t>(i), Py_NewRef(Py_None));
    for (size_t i = 0; i < given.size(); ++i)
      if (given[i].defined())
        PyList_SetItem(gradients.get(), static_cast<Py_ssize_t>(plan().tangents[i].position), checked(THPVariable_Wrap(given[i])));
    PyObject* state = random_state_ ? random_state_.get() : Py_None;
    PyObject* arguments[] = {inputs.get(), state, gradients.get(), raised};
    return Ref::steal(checked(PyObject_Vectorcall(plan().again.get(), arguments, 4, nullptr)));
  }

  Owned<TrainingCall> call_;
  std::vector<SavedVariable> saved_;
  std::vector<Ref> sizes_;
  std::vector<Layout> layouts_;   // of the tangents whose layout the plan does not know
  std::vector<Remembered> remembered_;
  Ref random_state_;
  std::vector<Aside> aside_;  // under the GIL
  std::vector<bool> used_;  // the tangents of backwards after which nothing was to be retained
  bool releasing_ = false;
  bool forgotten_ = false;
};

template <class T, class... Arguments>
NodePointer new_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<Node>>)
    return NodePointer(new T(std::forward<Arguments>(arguments)...), [](T* node) { deleteNode(node); });
  else return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
}

// Of one result: hands its gradient to the graph's node. Where somebody looks at the gradient of a result that this one is computed from,
// what comes through this one goes there, and that result's node hands on the rest.
class CompiledResult : public Node {
 public:
  // `below` are the tangents of the results that this one is computed from, and their nodes.
  CompiledResult(const NodePointer& graph, size_t tangent, std::vector<size_t> below, const std::vector<NodePointer>& nodes)
      : tangent_(tangent), below_(std::move(below)) {
    torch::autograd::edge_list edges{Edge(graph, static_cast<uint32_t>(tangent))};
    for (const size_t i : below_) edges.emplace_back(nodes[i], 0);
    set_next_edges(std::move(edges));
  }

  std::string name() const override { return "CompiledGraphBackward"; }

  variable_list apply(variable_list&& given) override {
    variable_list answer(num_outputs());
    if (!given[0].defined()) return answer;
    std::vector<size_t> watched, edges;
    for (size_t i = 0; i < below_.size(); ++i)
      if (is_watched(*next_edge(i + 1).function)) watched.push_back(below_[i]), edges.push_back(i + 1);
    variable_list found = given;
    if (watched.empty()) edges.push_back(0);
    else found = static_cast<CompiledGraph&>(*next_edge(0).function).apart(tangent_, watched, given[0]);
    for (size_t i = 0; i < found.size(); ++i) answer[edges[i]] = std::move(found[i]);
    return answer;
  }

 private:
  static bool is_watched(Node& node) {
    const auto empty = [](const auto&... hooks) { return (hooks.empty() && ...); };
    if (!empty(node.tensor_pre_hooks(), node.retains_grad_hooks(), node.pre_hooks(), node.post_hooks())) return true;
    const auto* asked = torch::autograd::get_current_graph_task_exec_info();
    const auto found = asked ? asked->find(&node) : decltype(asked->end()){};
    return asked && found != asked->end() && found->second.captures_;
  }

  size_t tangent_;
  std::vector<size_t> below_;
};

// Nodes of their own for several results.
void put_in_front(const NodePointer& graph, const TrainingPlan& plan, PyObject* const* values) {
  std::vector<size_t> order(plan.beneath.size());
  std::iota(order.begin(), order.end(), 0);
  const auto depth = [&](size_t i) { return plan.beneath[i].size(); };  // what a result is computed from is computed from less
  std::ranges::stable_sort(order, {}, depth);
  std::vector<NodePointer> nodes(order.size());
  for (const size_t i : order) {
    const at::Tensor& result = tensor_of(values[plan.tangents[i].position]);
    nodes[i] = new_node<CompiledResult>(graph, i, plan.beneath[i], nodes);
    torch::autograd::impl::set_gradient_edge(result, Edge(nodes[i], nodes[i]->add_input_metadata(result)));
  }
}

}  // namespace

void leave_node(TrainingCall* call, PyObject* const* inputs, PyObject* const* values, size_t count, Ref random_state) {
  const NodePointer node = new_node<CompiledGraph>(call);
  auto* graph = static_cast<CompiledGraph*>(node.get());
  graph->connect(inputs);
  graph->adopt(node, inputs, values, count);
  graph->remember(inputs, std::move(random_state));
  put_in_front(node, call->plan, values);
}

}  // namespace stoker
