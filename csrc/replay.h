// Replay: a recorded CUDA graph as a function of a plan's inputs.
#pragma once

#include "python_compat.h"

namespace stoker {

bool add_replay_types(PyObject* module);

}  // namespace stoker
