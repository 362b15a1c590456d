// What the guards ask of torch: tensor_spec.cpp of a tensor, torch_state.cpp of its settings. Theirs need none of torch's headers.
#pragma once

#include "python_compat.h"

#include <cstdint>
#include <exception>

namespace stoker {

// None of these leaves an exception set; the bool ones answer false where the question has no answer.
bool is_tensor_spec(PyObject* object);
bool is_torch_state(PyObject* object);
bool tensor_matches(PyObject* spec, PyObject* object);
// Whether matching a tensor against this spec may run Python code (a tensor subclass's).
bool tensor_spec_runs_python(PyObject* spec);
// Whether both ask the same of a tensor.
bool tensor_specs_equal(PyObject* one, PyObject* other);
bool torch_state_matches(PyObject* state);
// The size of a dimension, or from -1 down the stride of ~dimension; a tensor subclass may answer in Python.
bool tensor_number(PyObject* object, int64_t dimension, int64_t* result);

// Asks torch a question that a tensor subclass may answer in Python, or by throwing: then the answer is no.
template <typename Question>
bool answers(Question question) {
  try {
    return question();
  } catch (const std::exception&) {
    PyErr_Clear();
    return false;
  }
}

bool add_tensor_types(PyObject* module);
bool add_state_types(PyObject* module);

}  // namespace stoker
