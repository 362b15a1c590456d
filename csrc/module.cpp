// stoker._C: the part of Stoker that runs on each call.

#include "code_cache.h"
#include "cuda_driver.h"
#include "dispatch.h"
#include "frame_hook.h"
#include "guard_program.h"
#include "module.h"
#include "plan_executor.h"
#include "stamp.h"
#include "tensor_check.h"

namespace {

using namespace stoker;

PyObject* active_compiler(PyObject*, PyObject*) {
  auto* compiler = reinterpret_cast<PyObject*>(hook_thread.active);
  return Py_NewRef(compiler ? compiler : Py_None);
}

PyObject* set_stance(PyObject*, PyObject* argument) {
  const long number = PyLong_AsLong(argument);
  if (number == -1 && PyErr_Occurred()) return nullptr;
  if (number < 0 || number > static_cast<long>(Stance::FAIL_ON_RECOMPILE))
    return PyErr_Format(PyExc_ValueError, "%ld is no stance", number);
  return PyLong_FromLong(static_cast<int>(std::exchange(hook_thread.stance, static_cast<Stance>(number))));
}

PyObject* stance(PyObject*, PyObject*) { return PyLong_FromLong(static_cast<int>(hook_thread.stance)); }

PyMethodDef methods[] = {
    {"stance", stance, METH_NOARGS, "this thread's: 0 compiled, 1 eager, 2 fail on recompile"},
    {"set_stance", set_stance, METH_O, "set_stance(number): sets this thread's, and returns what it was"},
    {"active_compiler", active_compiler, METH_NOARGS, "the compiler that this thread runs under, or None"},
    {"shares_storage", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(shares_storage)), METH_FASTCALL,
     "shares_storage(inputs, written): does an input at a written position share its storage with another input?"},
    {"load_kernel", load_kernel, METH_VARARGS, "load_kernel(device, binary, name, shared_bytes): the address of a kernel"},
    {"launch_kernel", launch_kernel, METH_VARARGS,
     "launch_kernel(device, function, threads, shared_bytes, programs, words): start a kernel on the current stream"},
    {"set_stream_source", set_stream_source, METH_O, "how to find torch's current stream on a device"},
    {"release_arenas", release_arenas, METH_NOARGS, "free the memory for temporaries that is kept between calls"},
    {},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "stoker._C", "The frame hook, entries and guards.", -1, methods,
                          nullptr,               nullptr,     nullptr,                               nullptr};

bool add_actions(PyObject* module) {
  return PyModule_AddIntConstant(module, "RUN_ONCE", static_cast<int>(Action::RUN_ONCE)) == 0 &&
         PyModule_AddIntConstant(module, "SKIP", static_cast<int>(Action::SKIP)) == 0 &&
         PyModule_AddIntConstant(module, "SKIP_DEEP", static_cast<int>(Action::SKIP_DEEP)) == 0 &&
         PyModule_AddIntConstant(module, "FREEZE", static_cast<int>(Action::FREEZE)) == 0;
}

// What stoker/extension.py compares with what lies beside it.
bool add_stamp(PyObject* module) {
  return PyModule_AddStringConstant(module, "SOURCE_STAMP", STOKER_SOURCE_STAMP) == 0 &&
         PyModule_AddStringConstant(module, "BUILT_FOR_TORCH", STOKER_BUILT_FOR_TORCH) == 0;
}

}  // namespace

PyMODINIT_FUNC PyInit__C() {
  Ref module = Ref::steal(PyModule_Create(&definition));
  if (!module) return nullptr;
  using Addition = bool (*)(PyObject*);
  const Addition additions[] = {add_stamp,         add_actions,      add_tensor_types,   add_state_types,
                                add_guard_types,   add_cache_types,  add_resume_types,   add_callable_types,
                                add_training_types, add_plan_types,  add_frozen_types,   add_replay_types,
                                add_control_types, add_remembered_functions};
  bool ready = prepare_frame_hook();
  for (const Addition add : additions) ready = ready && add(module.get());
  return ready ? module.release() : nullptr;
}
