// TensorSpec: what a tensor must look like. Guards compare thousands of tensors in a row.
#include "tensor_check.h"

#include "object_type.h"

#include <c10/util/SmallVector.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/autograd/python_variable.h>

namespace stoker {

namespace {

PyTypeObject* tensor_spec_type;

constexpr int64_t ANY = -1;

const at::Tensor& unpack(PyObject* object) { return THPVariable_Unpack(object); }

at::TensorImpl* implementation(PyObject* object) { return unpack(object).unsafeGetTensorImpl(); }

// Never raises, unlike THPVariable_Check; __class__ tricks do not make an object a tensor.
bool is_tensor(PyObject* object) {
  return THPVariableClass && PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

using Numbers = c10::SmallVector<int64_t, 4>;

// ANY stands for any size or stride.
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

// The spec lies in the object itself: a check reads few cache lines.
struct TensorSpec {
  PyObject_HEAD
  Spec spec{nullptr, 0, {}, c10::kCPU, c10::kStrided, false, false, {}, {}};
  Owned<PyTypeObject> type;  // the spec's, which is kept alive

  void each(const auto&) {}
  void each_kept(const auto& visit) { visit(type); }
};

const Spec& spec_of(PyObject* object) { return as<TensorSpec>(object)->spec; }

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

PyObject* tensor_spec(PyObject*, PyObject* arguments, PyObject* keywords) {
  PyObject *object, *sizes = Py_None, *strides = Py_None;
  if (!parse(arguments, keywords, "O|OO:tensor_spec", {"tensor", "sizes", "strides"}, &object, &sizes, &strides)) return nullptr;
  if (!is_tensor(object)) return PyErr_Format(PyExc_TypeError, "expected a tensor, not %s", Py_TYPE(object)->tp_name);
  HANDLE_TH_ERRORS
  const at::Tensor& tensor = unpack(object);
  Spec spec{Py_TYPE(object), tensor.key_set().raw_repr(), tensor.dtype(), tensor.device(),
            tensor.layout(), tensor.requires_grad(), layout_has_strides(tensor), {}, {}};
  if (!read_numbers(sizes, tensor.sizes(), spec.sizes)) return nullptr;
  if (spec.has_strides && !read_numbers(strides, tensor.strides(), spec.strides)) return nullptr;
  auto* made = make<TensorSpec>(tensor_spec_type);
  if (!made) return nullptr;
  made->type = Owned<PyTypeObject>::share(spec.type);
  made->spec = std::move(spec);
  return reinterpret_cast<PyObject*>(made);
  END_HANDLE_TH_ERRORS
}

Ref tuple_of(const Numbers& numbers) {
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  for (size_t i = 0; tuple && i < numbers.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(numbers[i]));
  return tuple;
}

PyObject* spec_facts(PyObject* self, PyObject*) {
  HANDLE_TH_ERRORS
  const Spec& spec = spec_of(self);
  const Ref sizes = tuple_of(spec.sizes), strides = tuple_of(spec.strides), device = Ref::steal(THPDevice_New(spec.device));
  if (!sizes || !strides || !device) return nullptr;
  const std::string keys = c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, spec.keys));
  return Py_BuildValue("(OOOONnOOs)", spec.type, torch::getTHPDtype(spec.dtype.toScalarType()), device.get(),
                       torch::getTHPLayout(spec.layout), PyBool_FromLong(spec.requires_grad),
                       static_cast<Py_ssize_t>(spec.sizes.size()), sizes.get(), spec.has_strides ? strides.get() : Py_None,
                       keys.c_str());
  END_HANDLE_TH_ERRORS
}

PyMethodDef spec_methods[] = {
    {"facts", spec_facts, METH_NOARGS,
     "class, dtype, device, layout, requires_grad, number of dimensions, sizes, strides or None, dispatch keys; -1 for any number"},
    {},
};

PyMethodDef functions[] = {
    {"tensor_spec", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(tensor_spec)), METH_VARARGS | METH_KEYWORDS,
     "tensor_spec(tensor, sizes=None, strides=None): numbers per dimension, -1 for any; None: as the tensor's"},
    {},
};

}  // namespace

bool is_tensor_spec(PyObject* object) { return Py_TYPE(object) == tensor_spec_type; }

bool tensor_matches(PyObject* spec, PyObject* object) {
  return answers([&] { return matches(spec_of(spec), object); });
}

bool tensor_spec_runs_python(PyObject* spec) { return !THPVariable_CheckTypeExact(spec_of(spec).type); }

bool tensor_specs_equal(PyObject* one, PyObject* other) { return spec_of(one) == spec_of(other); }

bool tensor_number(PyObject* object, int64_t dimension, int64_t* result) {
  return is_tensor(object) && answers([&] {
    const c10::IntArrayRef numbers = dimension >= 0 ? implementation(object)->sizes() : implementation(object)->strides();
    const auto place = static_cast<size_t>(dimension >= 0 ? dimension : ~dimension);
    if (place < numbers.size()) *result = numbers[place];
    return place < numbers.size();
  });
}

bool add_tensor_types(PyObject* module) {
  return add_type<TensorSpec>(module, "stoker._C.TensorSpec", tensor_spec_type,
                              {doc("What a tensor must look like; made by tensor_spec."), {Py_tp_methods, spec_methods}}, {},
                              Py_TPFLAGS_DISALLOW_INSTANTIATION) &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace stoker
