// Calls of compiled graphs that are trained.
#pragma once

#include "python_compat.h"

namespace stoker {

bool add_training_types(PyObject* module);

// shares_storage(inputs, written): does a tensor at one of the written positions share its storage with another input?
PyObject* shares_storage(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace stoker
