#include "cuda_driver.h"

#include "ref.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <dlfcn.h>

#include <array>
#include <vector>

namespace stoker {

namespace {

// The driver's own names and types, as cuda.h has them; its ABI does not change.
using Result = int;
using Device = int;
using Context = void*;
using Module = void*;
constexpr int SHARED_BYTES_LIMIT = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned PLAIN_SHARED_BYTES = 48 * 1024;
constexpr int MOST_DEVICES = 64;

// CUlaunchAttribute: the kernel may be placed before the one ahead of it has ended.
struct Overlap {
  int id = 6, unused = 0;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  std::array<int, 16> value{1};
};

struct LaunchConfig {  // CUlaunchConfig
  std::array<unsigned, 3> grid, block;
  unsigned shared_bytes;
  DeviceStream stream;
  const Overlap* attributes;
  unsigned attribute_count;
};

// A function of the driver, of whatever type it is asked for.
struct Named {
  const char* name;

  template <typename Function>
  operator Function*() const {
    static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK(library, "there is no CUDA driver on this machine");
    void* found = dlsym(library, name);
    TORCH_CHECK(found, "the CUDA driver has no ", name);
    return reinterpret_cast<Function*>(found);
  }
};

struct Driver {
  Result (*get_device)(Device*, int) = Named{"cuDeviceGet"};
  Result (*retain_context)(Context*, Device) = Named{"cuDevicePrimaryCtxRetain"};
  Result (*get_context)(Context*) = Named{"cuCtxGetCurrent"};
  Result (*set_context)(Context) = Named{"cuCtxSetCurrent"};
  Result (*load_module)(Module*, const void*) = Named{"cuModuleLoadData"};
  Result (*get_function)(DeviceFunction*, Module, const char*) = Named{"cuModuleGetFunction"};
  Result (*set_attribute)(DeviceFunction, int, int) = Named{"cuFuncSetAttribute"};
  Result (*error_words)(Result, const char**) = Named{"cuGetErrorString"};
  Result (*launch_kernel)(const LaunchConfig*, DeviceFunction, void**, void**) = Named{"cuLaunchKernelEx"};
  Result (*launch_graph)(void*, DeviceStream) = Named{"cuGraphLaunch"};
};

const Driver& driver() {
  static const Driver found;
  return found;
}

void check(Result result, const char* what) {
  if (C10_LIKELY(!result)) return;
  const char* words = nullptr;
  driver().error_words(result, &words);
  TORCH_CHECK(false, "CUDA error while ", what, ": ", words ? words : "unknown");
}

Context primary_context(int device) {
  static std::array<Context, MOST_DEVICES> contexts{};
  TORCH_CHECK(device >= 0 && device < MOST_DEVICES, "no such device: ", device);
  if (!contexts[device]) {
    Device handle;
    check(driver().get_device(&handle, device), "looking for a device");
    check(driver().retain_context(&contexts[device], handle), "taking a device's context");
  }
  return contexts[device];
}

PyObject* stream_source = nullptr;

}  // namespace

void enter_device(int device) {
  Context current = nullptr;
  check(driver().get_context(&current), "asking for the context");
  if (current != primary_context(device)) check(driver().set_context(primary_context(device)), "entering a context");
}

DeviceStream current_stream(int device) {
  TORCH_CHECK(stream_source, "no source of streams is set");
  Ref number = Ref::steal(PyLong_FromLong(device));
  Ref stream = Ref::steal(PyObject_CallOneArg(stream_source, number.get()));
  if (!stream) throw python_error();
  return PyLong_AsVoidPtr(stream.get());
}

void launch(const Launch& kernel, uint32_t programs, DeviceStream stream, void** parameters) {
  static const Overlap overlap;
  const LaunchConfig config{{programs, 1, 1}, {kernel.threads, 1, 1}, kernel.shared_bytes, stream, &overlap, kernel.overlaps};
  check(driver().launch_kernel(&config, kernel.function, parameters, nullptr), "launching a kernel");
}

void launch_graph(void* executable, DeviceStream stream) {
  check(driver().launch_graph(executable, stream), "launching a graph");
}

PyObject* load_kernel(PyObject*, PyObject* arguments) {
  int device;
  const char *binary, *name;
  Py_ssize_t size;
  int shared_bytes;
  if (!PyArg_ParseTuple(arguments, "iy#si:load_kernel", &device, &binary, &size, &name, &shared_bytes)) return nullptr;
  HANDLE_TH_ERRORS
  enter_device(device);
  Module module;
  DeviceFunction function;
  check(driver().load_module(&module, binary), "loading a kernel");
  check(driver().get_function(&function, module, name), "looking for a kernel");
  if (static_cast<unsigned>(shared_bytes) > PLAIN_SHARED_BYTES)
    check(driver().set_attribute(function, SHARED_BYTES_LIMIT, shared_bytes), "asking for shared memory");
  return PyLong_FromVoidPtr(function);
  END_HANDLE_TH_ERRORS
}

PyObject* launch_kernel(PyObject*, PyObject* arguments) {
  int device;
  unsigned long long function;
  Launch kernel;
  uint32_t programs;
  const char* words;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(arguments, "iKIIIy#:launch_kernel", &device, &function, &kernel.threads, &kernel.shared_bytes, &programs,
                        &words, &size))
    return nullptr;
  HANDLE_TH_ERRORS
  kernel.function = reinterpret_cast<DeviceFunction>(function);
  std::vector<void*> parameters;
  for (Py_ssize_t at = 0; at < size; at += sizeof(uint64_t)) parameters.push_back(const_cast<char*>(words) + at);
  enter_device(device);
  launch(kernel, programs, current_stream(device), parameters.data());
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* set_stream_source(PyObject*, PyObject* function) {
  Py_XSETREF(stream_source, Py_NewRef(function));
  Py_RETURN_NONE;
}

}  // namespace stoker
