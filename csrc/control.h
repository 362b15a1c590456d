#pragma once

#include "python_compat.h"

namespace stoker {

// Adds Branch, Loop and Scan: control flow on data over compiled graphs, without Python in between.
bool add_control_types(PyObject* module);

}  // namespace stoker
