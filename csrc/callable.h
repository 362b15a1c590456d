// Compiled and Disabled: what stoker.compile and stoker.disable give the user.
#pragma once

#include "python_compat.h"

namespace stoker {

bool add_callable_types(PyObject* module);

}  // namespace stoker
