// What the fields of a plan's records hold, where C++ has no type of its own for it.
#pragma once

#include "cuda_driver.h"
#include "ref.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace stoker {

using Kernel = int (*)(void* const*, const int64_t*);  // not 0: which families of indices were out of range

}  // namespace stoker
