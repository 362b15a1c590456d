// TorchState: what eager execution reads from the thread and the process.
#include "object_type.h"
#include "tensor_check.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>

// From ATen/autocast_mode.h, which includes every operator.
namespace at::autocast {
TORCH_API bool is_autocast_enabled(at::DeviceType device_type);
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
TORCH_API bool is_autocast_cache_enabled();
}  // namespace at::autocast

namespace stoker {

namespace {

PyTypeObject* torch_state_type;

// Which devices autocast and whether a dispatch mode is on are part of the thread's dispatch keys.
struct Settings {
  uint64_t included_keys, excluded_keys;
  c10::ScalarType default_dtype, autocast_cpu_dtype, autocast_cuda_dtype;
  bool grad_mode, inference_mode, deterministic, deterministic_warn_only, fills_memory, autocast_cpu, autocast_cuda, autocast_cache;
  int torch_function;
  int64_t dispatch_modes, function_modes;
  bool operator==(const Settings&) const = default;
};

Settings read_settings() {
  const at::Context& context = at::globalContext();
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  return {
      .included_keys = keys.included_.raw_repr(),
      .excluded_keys = keys.excluded_.raw_repr(),
      .default_dtype = c10::get_default_dtype_as_scalartype(),
      .autocast_cpu_dtype = at::autocast::get_autocast_dtype(at::kCPU),
      .autocast_cuda_dtype = at::autocast::get_autocast_dtype(at::kCUDA),
      .grad_mode = c10::GradMode::is_enabled(),
      .inference_mode = c10::InferenceMode::is_enabled(),
      .deterministic = context.deterministicAlgorithms(),
      .deterministic_warn_only = context.deterministicAlgorithmsWarnOnly(),
      .fills_memory = context.deterministicFillUninitializedMemory(),
      .autocast_cpu = at::autocast::is_autocast_enabled(at::kCPU),
      .autocast_cuda = at::autocast::is_autocast_enabled(at::kCUDA),
      .autocast_cache = at::autocast::is_autocast_cache_enabled(),
      .torch_function = at::impl::PythonTorchFunctionTLS::get_disabled_state(),
      .dispatch_modes = c10::impl::TorchDispatchModeTLS::stack_len(),
      .function_modes = at::impl::PythonTorchFunctionTLS::stack_len(),
  };
}

// A mode on the torch-function stack: the same object, or a device context (`with torch.device(...)` makes a new one each
// time) for an equal device.
struct Mode {
  Owned<PyTypeObject> type;
  PyObject* identity;  // compared, never followed
  Ref reference;       // weak, where the type allows it
  Ref device;
};

PyObject* mode_at(int64_t index) {
  return at::impl::PythonTorchFunctionTLS::get_stack_at(index)->ptr(getPyInterpreter());
}

bool is_device_context(PyTypeObject* type) {
  return std::string_view(type->tp_name) == "DeviceContext" || std::string_view(type->tp_name).ends_with(".DeviceContext");
}

struct TorchState {
  PyObject_HEAD
  Settings settings;
  std::vector<Mode> modes;

  void each(const auto&) {}
  void each_kept(const auto& visit) {
    for (const Mode& mode : modes) visit(mode.type), visit(mode.reference), visit(mode.device);
  }
};

bool mode_matches(const Mode& mode, PyObject* present) {
  if (present == mode.identity && !(mode.reference && compat::weakref_is_dead(mode.reference.get()))) return true;
  if (!mode.device || Py_TYPE(present) != mode.type.get()) return false;
  Ref device = Ref::steal(PyObject_GetAttrString(present, "device"));
  return device && PyObject_RichCompareBool(device.get(), mode.device.get(), Py_EQ) == 1;
}

bool state_matches(const TorchState* state) {
  if (!(read_settings() == state->settings)) return false;
  for (size_t i = 0; i < state->modes.size(); ++i)
    if (!mode_matches(state->modes[i], mode_at(static_cast<int64_t>(i)))) return false;
  return true;
}

bool remember_modes(TorchState* self) {
  for (int64_t i = 0; i < self->settings.function_modes; ++i) {
    PyObject* object = mode_at(i);
    PyTypeObject* type = Py_TYPE(object);
    Mode mode{Owned<PyTypeObject>::share(type), object, {}, {}};
    if (PyType_SUPPORTS_WEAKREFS(type)) mode.reference = Ref::steal(PyWeakref_NewRef(object, nullptr));
    if (is_device_context(type)) mode.device = Ref::steal(PyObject_GetAttrString(object, "device"));
    if (PyErr_Occurred()) return false;
    self->modes.push_back(std::move(mode));
  }
  return true;
}

PyObject* torch_state(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  auto made = Owned<TorchState>::steal(make<TorchState>(torch_state_type));
  if (!made) return nullptr;
  made->settings = read_settings();
  return remember_modes(made.get()) ? reinterpret_cast<PyObject*>(made.release()) : nullptr;
  END_HANDLE_TH_ERRORS
}

PyObject* state_holds(PyObject* object, PyObject*) { return PyBool_FromLong(torch_state_matches(object)); }

PyMethodDef state_methods[] = {
    {"holds", state_holds, METH_NOARGS, "holds(): whether torch is in this state"},
    {},
};

PyMethodDef functions[] = {
    {"torch_state", torch_state, METH_NOARGS, "torch_state(): the state that torch is in"},
    {},
};

}  // namespace

bool is_torch_state(PyObject* object) { return Py_TYPE(object) == torch_state_type; }

bool torch_state_matches(PyObject* state) {
  return answers([&] { return state_matches(as<TorchState>(state)); });
}

bool add_state_types(PyObject* module) {
  return add_type<TorchState>(module, "stoker._C.TorchState", torch_state_type,
                              {doc("Torch's global and thread-local settings; made by torch_state."), {Py_tp_methods, state_methods}},
                              {}, Py_TPFLAGS_DISALLOW_INSTANTIATION) &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace stoker
