// Resume constants and the tail calls they make. See dispatch.h for who follows them.

#include "dispatch.h"
#include "object_type.h"
#include "ref.h"

namespace stoker {

PyTypeObject* tail_call_type;

namespace {

PyTypeObject* resume_type;

// A constant in replacement code: calling it asks for `function` to be run in the caller's place.
struct Resume {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* name;
};

PyObject* resume_call(PyObject* callable, PyObject* const* arguments, size_t count, PyObject* keyword_names) {
  if (keyword_names && PyTuple_GET_SIZE(keyword_names)) {
    PyErr_SetString(PyExc_TypeError, "a Resume takes positional arguments only");
    return nullptr;
  }
  const Py_ssize_t size = PyVectorcall_NARGS(count);
  Ref tuple = Ref::steal(PyTuple_New(size));
  if (!tuple) return nullptr;
  for (Py_ssize_t i = 0; i < size; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(arguments[i]));
  auto* tail = reinterpret_cast<TailCall*>(tail_call_type->tp_alloc(tail_call_type, 0));
  if (!tail) return nullptr;
  tail->function = Py_NewRef(reinterpret_cast<Resume*>(callable)->function);
  tail->arguments = tuple.release();
  return reinterpret_cast<PyObject*>(tail);
}

PyObject* make_resume(PyObject* function, PyObject* name) {
  auto* self = reinterpret_cast<Resume*>(resume_type->tp_alloc(resume_type, 0));
  if (!self) return nullptr;
  self->vectorcall = resume_call;
  self->function = Py_NewRef(function);
  self->name = Py_NewRef(name);
  return reinterpret_cast<PyObject*>(self);
}

PyObject* resume_new(PyTypeObject*, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"function", "name", nullptr};
  PyObject *function, *name = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!|O:Resume", const_cast<char**>(names), &PyFunction_Type,
                                   &function, &name))
    return nullptr;
  return make_resume(function, name);
}

PyObject* resume_bind(PyObject* object, PyObject* closure) {
  auto* self = reinterpret_cast<Resume*>(object);
  auto* function = reinterpret_cast<PyFunctionObject*>(self->function);
  Ref bound = Ref::steal(PyFunction_NewWithQualName(function->func_code, function->func_globals, function->func_qualname));
  if (!bound || PyFunction_SetClosure(bound.get(), closure) < 0) return nullptr;
  return make_resume(bound.get(), self->name);
}

int resume_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Resume*>(object);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->function);
  Py_VISIT(self->name);
  return 0;
}

int resume_clear(PyObject* object) {
  auto* self = reinterpret_cast<Resume*>(object);
  Py_CLEAR(self->function);
  Py_CLEAR(self->name);
  return 0;
}

void resume_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  resume_clear(object);
  free_object(object);
}

PyObject* resume_repr(PyObject* object) {
  return PyUnicode_FromFormat("<Resume %S>", reinterpret_cast<Resume*>(object)->name);
}

PyMethodDef resume_methods[] = {
    {"bind", resume_bind, METH_O, "bind(closure): the same, running a function of the same code with this closure"},
    {},
};

PyMemberDef resume_members[] = {
    {"function", T_OBJECT, offsetof(Resume, function), READONLY, "what runs in the caller's place"},
    {"name", T_OBJECT, offsetof(Resume, name), READONLY, "for people"},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Resume, vectorcall), READONLY, nullptr},
    {},
};

PyType_Slot resume_slots[] = {
    {Py_tp_doc, const_cast<char*>("Resume(function, name=None)\n\nCalling it returns a TailCall to the function.")},
    {Py_tp_new, reinterpret_cast<void*>(resume_new)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_repr, reinterpret_cast<void*>(resume_repr)},
    {Py_tp_traverse, reinterpret_cast<void*>(resume_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(resume_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(resume_dealloc)},
    {Py_tp_methods, resume_methods},
    {Py_tp_members, resume_members},
    {0, nullptr},
};
PyType_Spec resume_spec = {"stoker._C.Resume", sizeof(Resume), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, resume_slots};

int tail_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<TailCall*>(object);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->function);
  Py_VISIT(self->arguments);
  return 0;
}

int tail_clear(PyObject* object) {
  auto* self = reinterpret_cast<TailCall*>(object);
  Py_CLEAR(self->function);
  Py_CLEAR(self->arguments);
  return 0;
}

void tail_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  tail_clear(object);
  free_object(object);
}

PyMemberDef tail_members[] = {
    {"function", T_OBJECT, offsetof(TailCall, function), READONLY, "what to run"},
    {"arguments", T_OBJECT, offsetof(TailCall, arguments), READONLY, "with what"},
    {},
};

PyType_Slot tail_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(tail_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(tail_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(tail_dealloc)},
    {Py_tp_members, tail_members},
    {0, nullptr},
};
PyType_Spec tail_spec = {"stoker._C.TailCall", sizeof(TailCall), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, tail_slots};

}  // namespace

bool add_resume_types(PyObject* module) {
  return add_type(module, &resume_spec, &resume_type) && add_type(module, &tail_spec, &tail_call_type);
}

}  // namespace stoker
