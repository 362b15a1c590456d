// What the guards ask of torch. Only tensor_check.cpp includes torch's headers, because they take long to compile.
#pragma once

#include "python_compat.h"

#include <cstdint>

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
bool tensor_size(PyObject* object, int64_t dimension, int64_t* result);
bool tensor_stride(PyObject* object, int64_t dimension, int64_t* result);

bool add_tensor_types(PyObject* module);

}  // namespace stoker
