// Making heap types, the same way for each of ours.
#pragma once

#include "python_compat.h"

#include <structmember.h>

#include <cstddef>

namespace stoker {

// Creates the type and adds it to the module under the last part of its name.
inline bool add_type(PyObject* module, PyType_Spec* spec, PyTypeObject** place) {
  *place = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(spec));
  return *place && PyModule_AddType(module, *place) == 0;
}

// The end of each tp_dealloc: an instance of a heap type owns a reference to its type.
inline void free_object(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

}  // namespace stoker
