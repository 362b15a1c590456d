// A compiled training graph as one node of torch's autograd graph.
#pragma once

#include "python_compat.h"

namespace stoker {

// Adds TrainingCall: runs a compiled forward and leaves a node behind that runs the compiled backward.
bool add_autograd_types(PyObject* module);

// shares_storage(inputs, written): does a tensor at one of the written positions share its storage with another input?
PyObject* shares_storage(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace stoker
