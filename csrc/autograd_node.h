// A compiled training graph as one node of torch's autograd graph.
#pragma once

#include "python_compat.h"
#include "training_plan.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace stoker {

inline bool is_tensor(PyObject* object) {
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

// The exception that is set, thrown: it may be caught in another thread.
[[noreturn]] inline void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

inline PyObject* checked(PyObject* object) {
  if (!object) throw_python_error();
  return object;
}

// Makes results ours: the values are those of the forward, results first, then what it keeps, then sizes.
void leave_node(TrainingCall* call, PyObject* const* inputs, PyObject* const* values, size_t count, Ref random_state);

}  // namespace stoker
