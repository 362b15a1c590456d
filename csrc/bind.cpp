#include "bind.h"

#include "ref.h"

#include <algorithm>

namespace stoker {

namespace {

// The slot of a parameter that may be given by name; -1 if there is none.
Py_ssize_t find_parameter(PyCodeObject* code, PyObject* name) {
  PyObject* const* names = &PyTuple_GET_ITEM(compat::code_slot_names(code), 0);
  const Py_ssize_t end = code->co_argcount + code->co_kwonlyargcount;
  for (Py_ssize_t i = code->co_posonlyargcount; i < end; ++i)
    if (names[i] == name) return i;
  for (Py_ssize_t i = code->co_posonlyargcount; i < end; ++i)
    if (PyUnicode_Compare(names[i], name) == 0) return i;
  return -1;
}

bool is_direct(PyCodeObject* code, Py_ssize_t count, PyObject* keyword_names) {
  return !keyword_names && count == code->co_argcount && bound_count(code) == count;
}

}  // namespace

BoundArguments::BoundArguments(PyFunctionObject* function, PyObject* const* arguments, Py_ssize_t count,
                               PyObject* keyword_names)
    : storage_(is_direct(reinterpret_cast<PyCodeObject*>(function->func_code), count, keyword_names)
                   ? 0
                   : bound_count(reinterpret_cast<PyCodeObject*>(function->func_code))) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  if (is_direct(code, count, keyword_names)) {
    slots_ = arguments;
    return;
  }
  owned_count_ = bound_count(code);
  std::fill_n(storage_.get(), owned_count_, nullptr);
  if (bind(function, arguments, count, keyword_names))
    slots_ = storage_.get();
  else
    PyErr_Clear();
}

BoundArguments::~BoundArguments() {
  for (Py_ssize_t i = 0; i < owned_count_; ++i) Py_XDECREF(storage_.get()[i]);
}

bool BoundArguments::bind(PyFunctionObject* function, PyObject* const* arguments, Py_ssize_t count,
                          PyObject* keyword_names) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  PyObject** slots = storage_.get();
  const Py_ssize_t positional = std::min<Py_ssize_t>(count, code->co_argcount);
  for (Py_ssize_t i = 0; i < positional; ++i) slots[i] = Py_NewRef(arguments[i]);

  Py_ssize_t next = code->co_argcount + code->co_kwonlyargcount;
  if (code->co_flags & CO_VARARGS) {
    PyObject* rest = PyTuple_New(count - positional);
    if (!rest) return false;
    for (Py_ssize_t i = positional; i < count; ++i) PyTuple_SET_ITEM(rest, i - positional, Py_NewRef(arguments[i]));
    slots[next++] = rest;
  } else if (count > positional) {
    return false;
  }
  PyObject* extra = nullptr;
  if (code->co_flags & CO_VARKEYWORDS) {
    extra = PyDict_New();
    if (!extra) return false;
    slots[next] = extra;
  }
  return bind_keywords(code, arguments + count, keyword_names, extra) && fill_defaults(function);
}

bool BoundArguments::bind_keywords(PyCodeObject* code, PyObject* const* values, PyObject* keyword_names, PyObject* extra) {
  const Py_ssize_t count = keyword_names ? PyTuple_GET_SIZE(keyword_names) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keyword_names, i);
    if (!PyUnicode_Check(name)) return false;
    const Py_ssize_t slot = find_parameter(code, name);
    if (slot >= 0) {
      if (storage_.get()[slot]) return false;
      storage_.get()[slot] = Py_NewRef(values[i]);
    } else if (!extra || PyDict_Contains(extra, name) != 0 || PyDict_SetItem(extra, name, values[i]) < 0) {
      return false;
    }
  }
  return true;
}

bool BoundArguments::fill_defaults(PyFunctionObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  PyObject** slots = storage_.get();
  PyObject* defaults = function->func_defaults;
  const Py_ssize_t first = code->co_argcount - (defaults ? PyTuple_GET_SIZE(defaults) : 0);
  for (Py_ssize_t i = 0; i < code->co_argcount; ++i) {
    if (slots[i]) continue;
    if (i < first) return false;
    slots[i] = Py_NewRef(PyTuple_GET_ITEM(defaults, i - first));
  }
  for (Py_ssize_t i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; ++i) {
    if (slots[i]) continue;
    if (!function->func_kwdefaults) return false;
    PyObject* name = PyTuple_GET_ITEM(compat::code_slot_names(code), i);
    PyObject* value = PyDict_GetItemWithError(function->func_kwdefaults, name);
    if (!value) return false;
    slots[i] = Py_NewRef(value);
  }
  return true;
}

}  // namespace stoker
