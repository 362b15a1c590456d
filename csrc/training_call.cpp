// TrainingCall(...)(*inputs) -> results.
//
// In:  a compiled forward `inputs -> results, kept tensors, kept sizes`, and what stoker/autograd/runtime.py knows of it.
// Out: the results, of which those with a tangent have a CompiledGraph node (autograd_node.cpp) as their grad_fn.
#include "module.h"

#include "autograd_node.h"
#include "dispatch.h"
#include "object_type.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/forward_grad.h>

namespace stoker {

namespace {

PyTypeObject* training_call_type;

// Under vmap, torch.func.grad or forward-mode differentiation tensors carry more than their elements.
bool under_transform() {
  const auto keys = c10::impl::tls_local_dispatch_key_set().included_;
  return keys.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) || keys.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode) ||
         torch::autograd::ForwardADLevel::try_get_by_idx(0);
}

bool any_tensor(const TrainingPlan& plan, PyObject* const* inputs, const auto& holds) {
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    if (plan.inputs[i] != Memory::OBJECT && holds(THPVariable_Unpack(inputs[i]))) return true;
  return false;
}

// Also where no gradient comes back (the 0-norm's): eager's results require one then.
bool leaves_node(const TrainingPlan& plan, PyObject* const* inputs) {
  return c10::GradMode::is_enabled() && any_tensor(plan, inputs, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

// A tensor of inference mode counts no versions and cannot be saved: what may be done with it, eager says.
bool takes_inference(const TrainingPlan& plan, PyObject* const* inputs) {
  return any_tensor(plan, inputs, [](const at::Tensor& tensor) { return tensor.is_inference(); });
}

bool inputs_fit(const TrainingPlan& plan, PyObject* const* inputs, size_t count) {
  if (count != plan.inputs.size()) return false;
  for (size_t i = 0; i < count; ++i)
    if (plan.inputs[i] != Memory::OBJECT && !is_tensor(inputs[i])) return false;
  return true;
}

// What raises before anything is written can be done again by eager.
[[noreturn]] void throw_untouched() {
  compat::SavedError error;
  if (PyErr_GivenExceptionMatches(error.raised, PyExc_Exception) && !error.has(LATE) && !error.has(WRITTEN))
    error.mark(UNTOUCHED);
  error.restore();
  throw_python_error();
}

Ref call_forward(const TrainingPlan& plan, PyObject* const* inputs, size_t count) {
  c10::AutoGradMode off(false);
  Ref found = Ref::steal(PyObject_Vectorcall(plan.forward.get(), inputs, count, nullptr));
  if (!found) throw_untouched();
  Ref values = Ref::steal(checked(PySequence_Fast(found.get(), "a compiled forward returns a tuple or a list")));
  if (static_cast<size_t>(PySequence_Fast_GET_SIZE(values.get())) < plan.results + plan.kept.size())
    throw std::runtime_error("a compiled forward returned fewer values than it was compiled for");
  return values;
}

// A view that the forward made is to autograd a view made without gradients, which must not be written where they are on. The program's
// own may be, and what this one views nobody has: it becomes a tensor like others.
Ref without_views(Ref values, size_t results) {
  Ref changed;
  for (size_t i = 0; i < results; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(values.get(), static_cast<Py_ssize_t>(i));
    if (!is_tensor(item) || !THPVariable_Unpack(item).is_view()) continue;
    if (!changed) changed = Ref::steal(checked(PySequence_List(values.get())));
    PyObject* apart = checked(THPVariable_Wrap(THPVariable_Unpack(item).detach()));
    if (PyList_SetItem(changed.get(), static_cast<Py_ssize_t>(i), apart) < 0) throw_python_error();
  }
  return changed ? std::move(changed) : std::move(values);
}

PyObject* call_training(PyObject* object, PyObject* const* inputs, size_t flagged_count, PyObject* keyword_names) {
  HANDLE_TH_ERRORS
  auto* self = as<TrainingCall>(object);
  const TrainingPlan& plan = self->plan;
  const size_t count = PyVectorcall_NARGS(flagged_count);
  if (keyword_names || !inputs_fit(plan, inputs, count))
    return PyErr_Format(PyExc_TypeError, "a compiled graph was called with other inputs than it was compiled for");
  const bool with_node = leaves_node(plan, inputs);
  if (under_transform() || (with_node && takes_inference(plan, inputs)))
    return PyObject_Vectorcall(plan.captured.get(), inputs, count, nullptr);
  Ref random_state;
  if (with_node && plan.random_state.get() != Py_None)
    random_state = Ref::steal(checked(PyObject_Vectorcall(plan.random_state.get(), inputs, count, nullptr)));
  Ref values = without_views(call_forward(plan, inputs, count), plan.results);
  PyObject** items = PySequence_Fast_ITEMS(values.get());
  if (with_node) leave_node(self, inputs, items, PySequence_Fast_GET_SIZE(values.get()), std::move(random_state));
  const Ref results = Ref::steal(checked(PySequence_GetSlice(values.get(), 0, static_cast<Py_ssize_t>(plan.results))));
  return PySequence_Tuple(results.get());
  END_HANDLE_TH_ERRORS
}

PyObject* training_call_new(PyTypeObject* type, PyObject*, PyObject* keywords) {
  HANDLE_TH_ERRORS
  TrainingPlan plan = read_training_plan(keywords);
  auto* self = make<TrainingCall>(type);
  if (!self) return nullptr;
  self->vectorcall = call_training;
  self->plan = std::move(plan);
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

const void* storage_of(PyObject* object) {
  if (!is_tensor(object)) return nullptr;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

PyObject* shares_storage(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2 || !PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[1]))
    return PyErr_Format(PyExc_TypeError, "shares_storage(inputs, written), two tuples");
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

bool add_training_types(PyObject* module) {
  return add_type<TrainingCall>(module, "stoker._C.TrainingCall", training_call_type, {slot(Py_tp_new, training_call_new)});
}

}  // namespace stoker
