// What files of the extension add to stoker._C and no other file uses.
#pragma once

#include "python_compat.h"

namespace stoker {

bool add_callable_types(PyObject* module);  // Compiled and Disabled: what stoker.compile and stoker.disable give the user
bool add_control_types(PyObject* module);   // Branch, Loop and Scan: control flow on data over compiled graphs
bool add_frozen_types(PyObject* module);
bool add_remembered_functions(PyObject* module);  // caches of functools
bool add_replay_types(PyObject* module);  // a recorded CUDA graph as a function of a plan's inputs
bool add_training_types(PyObject* module);

// shares_storage(inputs, written): does a tensor at one of the written positions share its storage with another input?
PyObject* shares_storage(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace stoker
