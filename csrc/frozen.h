#pragma once

#include "python_compat.h"

namespace stoker {

bool add_frozen_types(PyObject* module);

}  // namespace stoker
