// Compiled and Disabled: what stoker.compile and stoker.disable give the user.
#pragma once

#include "python_compat.h"

namespace stoker {

bool add_callable_types(PyObject* module);
// call_with(compiler_or_None, function, *args, **kwargs)
PyObject* call_with(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* keyword_names);

}  // namespace stoker
