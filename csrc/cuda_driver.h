// The CUDA driver, looked up when it is first needed: a machine without one needs none, and nothing is linked against it.
#pragma once

#include "python_compat.h"

#include <cstdint>

namespace stoker {

// A kernel of a loaded module: the driver's CUfunction.
using DeviceFunction = void*;
// The driver's CUstream.
using DeviceStream = void*;

struct Launch {
  DeviceFunction function = nullptr;
  uint32_t threads = 0, shared_bytes = 0;
  bool overlaps = false;  // may be placed before the kernel ahead of it has ended, and waits for it by itself
};

// Makes the device's primary context current in this thread, if none is.
void enter_device(int device);

// The stream that torch's operators use on the device. Needs the GIL.
DeviceStream current_stream(int device);

// Starts `programs` programs; throws with the driver's words.
void launch(const Launch& kernel, uint32_t programs, DeviceStream stream, void** parameters);

// Starts a graph; throws with the driver's words.
void launch_graph(void* executable, DeviceStream stream);

// load_kernel(device, binary, name, shared_bytes): the address of a kernel, for plans.
PyObject* load_kernel(PyObject*, PyObject* arguments);

// launch_kernel(device, function, threads, shared_bytes, programs, words): starts a kernel on torch's current stream.
PyObject* launch_kernel(PyObject*, PyObject* arguments);

// set_stream_source(function): how to find torch's current stream, a function of a device's number.
PyObject* set_stream_source(PyObject*, PyObject* function);

}  // namespace stoker
