#include "tensor_check.h"

#include "object_type.h"
#include "ref.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <new>
#include <string>
#include <vector>

// From ATen/autocast_mode.h, which includes every operator.
namespace at::autocast {
TORCH_API bool is_autocast_enabled(at::DeviceType device_type);
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
TORCH_API bool is_autocast_cache_enabled();
}  // namespace at::autocast

namespace stoker {

namespace {

PyTypeObject* tensor_spec_type;
PyTypeObject* torch_state_type;

constexpr int64_t ANY = -1;

const at::Tensor& unpack(PyObject* object) { return THPVariable_Unpack(object); }

at::TensorImpl* implementation(PyObject* object) { return unpack(object).unsafeGetTensorImpl(); }

// Never raises, unlike THPVariable_Check; __class__ tricks do not make an object a tensor.
bool is_tensor(PyObject* object) {
  return THPVariableClass && PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

// TensorSpec

using Numbers = c10::SmallVector<int64_t, 4>;

// What a tensor must look like. ANY stands for any size or stride.
struct Spec {
  PyTypeObject* type;
  uint64_t keys;
  caffe2::TypeMeta dtype;
  c10::Device device;
  c10::Layout layout;
  bool requires_grad;
  bool has_strides;
  Numbers sizes, strides;
  bool operator==(const Spec&) const = default;
};

// The spec lies in the object itself: a check reads few cache lines, and thousands of them are read in a row.
struct TensorSpec {
  PyObject_HEAD
  Spec spec;
};

const Spec& spec_of(PyObject* object) { return reinterpret_cast<TensorSpec*>(object)->spec; }

inline bool numbers_match(const Numbers& expected, c10::IntArrayRef actual) {
  if (expected.size() != actual.size()) return false;
  for (size_t i = 0; i < actual.size(); ++i)
    if (expected[i] != actual[i] && expected[i] != ANY) return false;
  return true;
}

bool layout_has_strides(const at::Tensor& tensor) { return tensor.layout() == c10::kStrided; }

bool matches(const Spec& spec, PyObject* object) {
  if (Py_TYPE(object) != spec.type) return false;
  const at::TensorImpl* tensor = implementation(object);
  return tensor->key_set().raw_repr() == spec.keys && tensor->dtype() == spec.dtype && tensor->device() == spec.device &&
         tensor->layout() == spec.layout && tensor->requires_grad() == spec.requires_grad &&
         numbers_match(spec.sizes, tensor->sizes()) && (!spec.has_strides || numbers_match(spec.strides, tensor->strides()));
}

// Strings are put together without streams: formatting a number through one needs facets of the very libstdc++ that
// created the stream, and torch builds may bring a second one.
std::string differs(const char* what, const std::string& was, const std::string& is) {
  return std::string(what) + ": was " + was + ", is " + is;
}

std::string text(c10::Layout layout) {
  switch (layout) {
    case c10::kStrided: return "Strided";
    case c10::kSparse: return "Sparse";
    case c10::kMkldnn: return "Mkldnn";
    case c10::kJagged: return "Jagged";
    default: return "Sparse compressed";
  }
}

std::string text(bool value) { return value ? "True" : "False"; }

std::string text(caffe2::TypeMeta dtype) {
  static const std::pair<c10::ScalarType, const char*> names[] = {
      {c10::kFloat, "float32"}, {c10::kDouble, "float64"},   {c10::kHalf, "float16"},
      {c10::kLong, "int64"},    {c10::kInt, "int32"},        {c10::kShort, "int16"},
      {c10::kChar, "int8"},     {c10::kByte, "uint8"},       {c10::kBool, "bool"},
      {c10::kBFloat16, "bfloat16"}, {c10::kComplexFloat, "complex64"}, {c10::kComplexDouble, "complex128"}};
  const c10::ScalarType type = dtype.toScalarType();
  for (auto& [known, name] : names)
    if (known == type) return name;
  return c10::toString(type);
}

std::string text(c10::IntArrayRef numbers) {
  std::string words = "(";
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i) words += ", ";
    if (numbers[i] == ANY)
      words += "any";
    else
      words += std::to_string(numbers[i]);
  }
  return words + (numbers.size() == 1 ? ",)" : ")");
}

std::string mismatch(const Spec& spec, PyObject* object) {
  if (Py_TYPE(object) != spec.type) return differs("class", spec.type->tp_name, Py_TYPE(object)->tp_name);
  const at::Tensor& tensor = unpack(object);
  if (tensor.dtype() != spec.dtype) return differs("dtype", text(spec.dtype), text(tensor.dtype()));
  if (tensor.device() != spec.device) return differs("device", spec.device.str(), tensor.device().str());
  if (tensor.layout() != spec.layout) return differs("layout", text(spec.layout), text(tensor.layout()));
  if (tensor.requires_grad() != spec.requires_grad)
    return differs("requires_grad", text(spec.requires_grad), text(tensor.requires_grad()));
  if (tensor.dim() != static_cast<int64_t>(spec.sizes.size()))
    return differs("number of dimensions", std::to_string(spec.sizes.size()), std::to_string(tensor.dim()));
  if (!numbers_match(spec.sizes, tensor.sizes())) return differs("sizes", text(spec.sizes), text(tensor.sizes()));
  if (spec.has_strides && !numbers_match(spec.strides, tensor.strides()))
    return differs("strides", text(spec.strides), text(tensor.strides()));
  if (tensor.key_set().raw_repr() != spec.keys)
    return differs("dispatch keys", c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, spec.keys)),
                   c10::toString(tensor.key_set()));
  return "";
}

// Numbers from a tuple, or those of the example where it is None.
bool read_numbers(PyObject* given, c10::IntArrayRef example, Numbers& numbers) {
  if (given == Py_None) {
    numbers.assign(example.begin(), example.end());
    return true;
  }
  Ref tuple = Ref::steal(PySequence_Tuple(given));
  if (!tuple) return false;
  if (PyTuple_GET_SIZE(tuple.get()) != static_cast<Py_ssize_t>(example.size())) {
    PyErr_Format(PyExc_ValueError, "%zd numbers for %zd dimensions", PyTuple_GET_SIZE(tuple.get()),
                 static_cast<Py_ssize_t>(example.size()));
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); ++i) {
    const int64_t number = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple.get(), i));
    if (number == -1 && PyErr_Occurred()) return false;
    numbers.push_back(number);
  }
  return true;
}

// Runs torch code in a function of the C API: a C++ exception becomes a Python one.
template <typename Function>
PyObject* guarded(Function function) {
  try {
    return function();
  } catch (python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyObject* make_tensor_spec(PyObject* object, PyObject* sizes, PyObject* strides) {
  const at::Tensor& tensor = unpack(object);
  Spec spec{Py_TYPE(object), tensor.key_set().raw_repr(), tensor.dtype(), tensor.device(),
            tensor.layout(), tensor.requires_grad(), layout_has_strides(tensor), {}, {}};
  if (!read_numbers(sizes, tensor.sizes(), spec.sizes)) return nullptr;
  if (spec.has_strides && !read_numbers(strides, tensor.strides(), spec.strides)) return nullptr;
  PyObject* made = tensor_spec_type->tp_alloc(tensor_spec_type, 0);
  if (!made) return nullptr;
  new (&reinterpret_cast<TensorSpec*>(made)->spec) Spec(std::move(spec));
  Py_INCREF(spec_of(made).type);
  return made;
}

PyObject* tensor_spec(PyObject*, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"tensor", "sizes", "strides", nullptr};
  PyObject *tensor, *sizes = Py_None, *strides = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|OO:tensor_spec", const_cast<char**>(names), &tensor, &sizes,
                                   &strides))
    return nullptr;
  if (!is_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "expected a tensor, not %s", Py_TYPE(tensor)->tp_name);
  return guarded([&] { return make_tensor_spec(tensor, sizes, strides); });
}

int spec_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(spec_of(object).type);
  return 0;
}

void spec_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  Py_DECREF(spec_of(object).type);
  spec_of(object).~Spec();
  free_object(object);
}

PyObject* spec_mismatch(PyObject* self, PyObject* object) {
  return guarded([&]() -> PyObject* {
    const std::string words = mismatch(spec_of(self), object);
    if (words.empty()) Py_RETURN_NONE;
    return PyUnicode_FromString(words.c_str());
  });
}

PyObject* spec_repr(PyObject* self) {
  const Spec& spec = spec_of(self);
  std::string words = std::string("TensorSpec(") + spec.type->tp_name + ", " + text(spec.dtype) + ", " + spec.device.str() +
                      ", " + text(spec.layout) + ", sizes=" + text(spec.sizes);
  if (spec.has_strides) words += ", strides=" + text(spec.strides);
  words += ", requires_grad=" + text(spec.requires_grad) + ")";
  return PyUnicode_FromString(words.c_str());
}

PyMethodDef spec_methods[] = {
    {"mismatch", spec_mismatch, METH_O, "mismatch(tensor): the first difference in words, or None"},
    {},
};

PyType_Slot spec_slots[] = {
    {Py_tp_doc, const_cast<char*>("What a tensor must look like; made by tensor_spec.")},
    {Py_tp_traverse, reinterpret_cast<void*>(spec_traverse)},
    {Py_tp_dealloc, reinterpret_cast<void*>(spec_dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(spec_repr)},
    {Py_tp_methods, spec_methods},
    {0, nullptr},
};
PyType_Spec spec_spec = {"stoker._C.TensorSpec", sizeof(TensorSpec), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, spec_slots};

// TorchState

// What eager execution reads from the thread and the process. Which devices autocast and whether a dispatch mode is on
// are part of the thread's dispatch keys.
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
  Settings now{};
  now.included_keys = keys.included_.raw_repr();
  now.excluded_keys = keys.excluded_.raw_repr();
  now.default_dtype = c10::get_default_dtype_as_scalartype();
  now.autocast_cpu_dtype = at::autocast::get_autocast_dtype(at::kCPU);
  now.autocast_cuda_dtype = at::autocast::get_autocast_dtype(at::kCUDA);
  now.grad_mode = c10::GradMode::is_enabled();
  now.inference_mode = c10::InferenceMode::is_enabled();
  now.deterministic = context.deterministicAlgorithms();
  now.deterministic_warn_only = context.deterministicAlgorithmsWarnOnly();
  now.fills_memory = context.deterministicFillUninitializedMemory();
  now.autocast_cpu = at::autocast::is_autocast_enabled(at::kCPU);
  now.autocast_cuda = at::autocast::is_autocast_enabled(at::kCUDA);
  now.autocast_cache = at::autocast::is_autocast_cache_enabled();
  now.torch_function = at::impl::PythonTorchFunctionTLS::get_disabled_state();
  now.dispatch_modes = c10::impl::TorchDispatchModeTLS::stack_len();
  now.function_modes = at::impl::PythonTorchFunctionTLS::stack_len();
  return now;
}

// A mode on the torch-function stack: the same object, or a device context (`with torch.device(...)` makes a new one each
// time) for an equal device.
struct Mode {
  PyTypeObject* type;
  PyObject* identity;   // compared, never followed
  PyObject* reference;  // weak, where the type allows it
  PyObject* device;
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
};

TorchState* state_of(PyObject* object) { return reinterpret_cast<TorchState*>(object); }

bool mode_matches(const Mode& mode, PyObject* present) {
  if (present == mode.identity && !(mode.reference && compat::weakref_is_dead(mode.reference))) return true;
  if (!mode.device || Py_TYPE(present) != mode.type) return false;
  Ref device = Ref::steal(PyObject_GetAttrString(present, "device"));
  return device && PyObject_RichCompareBool(device.get(), mode.device, Py_EQ) == 1;
}

bool state_matches(TorchState* state) {
  if (!(read_settings() == state->settings)) return false;
  for (size_t i = 0; i < state->modes.size(); ++i)
    if (!mode_matches(state->modes[i], mode_at(static_cast<int64_t>(i)))) return false;
  return true;
}

bool remember_modes(TorchState* self) {
  for (int64_t i = 0; i < self->settings.function_modes; ++i) {
    PyObject* object = mode_at(i);
    PyTypeObject* type = Py_TYPE(object);
    self->modes.push_back({reinterpret_cast<PyTypeObject*>(Py_NewRef(type)), object, nullptr, nullptr});
    Mode& mode = self->modes.back();
    mode.reference = PyType_SUPPORTS_WEAKREFS(type) ? PyWeakref_NewRef(object, nullptr) : nullptr;
    if (PyErr_Occurred()) return false;
    if (!is_device_context(type)) continue;
    mode.device = PyObject_GetAttrString(object, "device");
    if (!mode.device) return false;
  }
  return true;
}

PyObject* torch_state(PyObject*, PyObject*) {
  Ref made = Ref::steal(torch_state_type->tp_alloc(torch_state_type, 0));
  if (!made) return nullptr;
  TorchState* self = state_of(made.get());
  new (&self->modes) std::vector<Mode>();
  return guarded([&] {
    self->settings = read_settings();
    return remember_modes(self) ? made.release() : nullptr;
  });
}

int state_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  for (const Mode& mode : state_of(object)->modes) {
    Py_VISIT(mode.type);
    Py_VISIT(mode.reference);
    Py_VISIT(mode.device);
  }
  return 0;
}

void state_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  for (const Mode& mode : state_of(object)->modes) {
    Py_XDECREF(mode.type);
    Py_XDECREF(mode.reference);
    Py_XDECREF(mode.device);
  }
  state_of(object)->modes.~vector();
  free_object(object);
}

bool put(const Ref& dict, const char* name, PyObject* fresh) {
  Ref value = Ref::steal(fresh);
  return value && PyDict_SetItemString(dict.get(), name, value.get()) == 0;
}

PyObject* dtype_name(c10::ScalarType type) {
  return PyUnicode_FromString(text(c10::scalarTypeToTypeMeta(type)).c_str());
}

PyObject* mode_names(const TorchState* state) {
  Ref names = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(state->modes.size())));
  if (!names) return nullptr;
  for (size_t i = 0; i < state->modes.size(); ++i) {
    PyObject* name = PyUnicode_FromString(state->modes[i].type->tp_name);
    if (!name) return nullptr;
    PyTuple_SET_ITEM(names.get(), static_cast<Py_ssize_t>(i), name);
  }
  return names.release();
}

PyObject* key_names(uint64_t keys) {
  return PyUnicode_FromString(c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, keys)).c_str());
}

PyObject* state_describe(PyObject* object, PyObject*) {
  static const char* torch_function[] = {"enabled", "subclasses disabled", "disabled"};
  const Settings& is = state_of(object)->settings;
  Ref words = Ref::steal(PyDict_New());
  if (!words) return nullptr;
  const bool complete =
      put(words, "grad mode", PyBool_FromLong(is.grad_mode)) &&
      put(words, "inference mode", PyBool_FromLong(is.inference_mode)) &&
      put(words, "default dtype", dtype_name(is.default_dtype)) &&
      put(words, "deterministic algorithms", PyBool_FromLong(is.deterministic)) &&
      put(words, "deterministic algorithms warn only", PyBool_FromLong(is.deterministic_warn_only)) &&
      put(words, "fill of uninitialized memory", PyBool_FromLong(is.fills_memory)) &&
      put(words, "autocast on cpu", PyBool_FromLong(is.autocast_cpu)) &&
      put(words, "autocast dtype on cpu", dtype_name(is.autocast_cpu_dtype)) &&
      put(words, "autocast on cuda", PyBool_FromLong(is.autocast_cuda)) &&
      put(words, "autocast dtype on cuda", dtype_name(is.autocast_cuda_dtype)) &&
      put(words, "autocast cache", PyBool_FromLong(is.autocast_cache)) &&
      put(words, "torch function", PyUnicode_FromString(torch_function[is.torch_function])) &&
      put(words, "torch function modes", mode_names(state_of(object))) &&
      put(words, "dispatch modes", PyLong_FromLongLong(is.dispatch_modes)) &&
      put(words, "included dispatch keys", key_names(is.included_keys)) &&
      put(words, "excluded dispatch keys", key_names(is.excluded_keys));
  return complete ? words.release() : nullptr;
}

PyObject* state_holds(PyObject* object, PyObject*) { return PyBool_FromLong(torch_state_matches(object)); }

PyMethodDef state_methods[] = {
    {"describe", state_describe, METH_NOARGS, "describe(): the settings by name, to compare and to show"},
    {"holds", state_holds, METH_NOARGS, "holds(): whether torch is in this state"},
    {},
};

PyType_Slot state_slots[] = {
    {Py_tp_doc, const_cast<char*>("Torch's global and thread-local settings; made by torch_state.")},
    {Py_tp_traverse, reinterpret_cast<void*>(state_traverse)},
    {Py_tp_dealloc, reinterpret_cast<void*>(state_dealloc)},
    {Py_tp_methods, state_methods},
    {0, nullptr},
};
PyType_Spec state_spec = {"stoker._C.TorchState", sizeof(TorchState), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, state_slots};

PyMethodDef functions[] = {
    {"tensor_spec", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(tensor_spec)), METH_VARARGS | METH_KEYWORDS,
     "tensor_spec(tensor, sizes=None, strides=None): numbers per dimension, -1 for any; None: as the tensor's"},
    {"torch_state", torch_state, METH_NOARGS, "torch_state(): the state that torch is in"},
    {},
};

// Asks torch a question that a tensor subclass may answer in Python, or by throwing.
template <typename Question>
bool ask(Question question) {
  try {
    return question();
  } catch (const std::exception&) {
    PyErr_Clear();
    return false;
  }
}

}  // namespace

bool is_tensor_spec(PyObject* object) { return Py_TYPE(object) == tensor_spec_type; }

bool is_torch_state(PyObject* object) { return Py_TYPE(object) == torch_state_type; }

bool tensor_matches(PyObject* spec, PyObject* object) {
  return ask([&] { return matches(spec_of(spec), object); });
}

bool tensor_spec_runs_python(PyObject* spec) { return !THPVariable_CheckTypeExact(spec_of(spec).type); }

bool tensor_specs_equal(PyObject* one, PyObject* other) { return spec_of(one) == spec_of(other); }

bool torch_state_matches(PyObject* state) {
  return ask([&] { return state_matches(state_of(state)); });
}

bool tensor_size(PyObject* object, int64_t dimension, int64_t* result) {
  if (!is_tensor(object)) return false;
  return ask([&] {
    const c10::IntArrayRef sizes = implementation(object)->sizes();
    if (dimension >= static_cast<int64_t>(sizes.size())) return false;
    *result = sizes[dimension];
    return true;
  });
}

bool tensor_stride(PyObject* object, int64_t dimension, int64_t* result) {
  if (!is_tensor(object)) return false;
  return ask([&] {
    const c10::IntArrayRef strides = implementation(object)->strides();
    if (dimension >= static_cast<int64_t>(strides.size())) return false;
    *result = strides[dimension];
    return true;
  });
}

bool add_tensor_types(PyObject* module) {
  return add_type(module, &spec_spec, &tensor_spec_type) && add_type(module, &state_spec, &torch_state_type) &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace stoker
