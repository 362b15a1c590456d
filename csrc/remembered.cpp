// What functools.lru_cache keeps: read without being counted, and filled with results that were computed elsewhere.

#include "frame_hook.h"
#include "module.h"
#include "ref.h"

namespace stoker {

namespace {

// remembered(entry): the result in an entry of a cache of bounded size.
PyObject* remembered(PyObject*, PyObject* entry) {
  PyObject* result = compat::lru_entry_result(entry);
  if (!result) return PyErr_Format(PyExc_TypeError, "%.200s is no entry of a cache", Py_TYPE(entry)->tp_name);
  return Py_NewRef(result);
}

// call_answered(function, args, kwargs, code, answer, raises): calls the function. The first frame of the code that the call leads
// to is not run: it returns the answer, or raises it.
PyObject* call_answered(PyObject*, PyObject* arguments) {
  PyObject *function, *args, *kwargs, *code, *answer;
  int raises;
  if (!PyArg_ParseTuple(arguments, "OO!O!O!Op", &function, &PyTuple_Type, &args, &PyDict_Type, &kwargs, &PyCode_Type, &code,
                        &answer, &raises))
    return nullptr;
  Answer given{reinterpret_cast<PyCodeObject*>(code), answer, raises != 0, hook_thread.answer};
  hook_thread.answer = &given;
  hook_acquire();
  PyObject* result = PyObject_Call(function, args, kwargs);
  hook_release();
  hook_thread.answer = given.outer;
  return result;
}

PyMethodDef methods[] = {
    {"remembered", remembered, METH_O, "remembered(entry): the result in an entry of a cache of bounded size"},
    {"call_answered", call_answered, METH_VARARGS,
     "call_answered(function, args, kwargs, code, answer, raises): call it; the frame of the code gives the answer"},
    {},
};

}  // namespace

bool add_remembered_functions(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace stoker
