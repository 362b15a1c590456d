// Resume constants and the tail calls they make. See dispatch.h for who follows them.

#include "dispatch.h"
#include "object_type.h"

namespace stoker {

PyTypeObject* tail_call_type;

namespace {

PyTypeObject* resume_type;

// A constant in replacement code: calling it asks for `function` to be run in the caller's place.
struct Resume {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Ref function, name;

  void each(const auto& visit) { visit(function), visit(name); }
};

PyObject* resume_call(PyObject* callable, PyObject* const* arguments, size_t count, PyObject* keyword_names) {
  if (keyword_names && PyTuple_GET_SIZE(keyword_names))
    return PyErr_Format(PyExc_TypeError, "a Resume takes positional arguments only");
  const Py_ssize_t size = PyVectorcall_NARGS(count);
  Ref tuple = Ref::steal(PyTuple_New(size));
  if (!tuple) return nullptr;
  for (Py_ssize_t i = 0; i < size; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(arguments[i]));
  auto* tail = make<TailCall>(tail_call_type);
  if (!tail) return nullptr;
  tail->function = as<Resume>(callable)->function;
  tail->arguments = std::move(tuple);
  return reinterpret_cast<PyObject*>(tail);
}

PyObject* make_resume(const Ref& function, const Ref& name) {
  auto* self = make<Resume>(resume_type);
  if (!self) return nullptr;
  self->vectorcall = resume_call;
  self->function = function;
  self->name = name;
  return reinterpret_cast<PyObject*>(self);
}

PyObject* resume_new(PyTypeObject*, PyObject* arguments, PyObject* keywords) {
  PyObject *function, *name = Py_None;
  if (!parse(arguments, keywords, "O!|O:Resume", {"function", "name"}, &PyFunction_Type, &function, &name)) return nullptr;
  return make_resume(Ref::share(function), Ref::share(name));
}

PyObject* resume_bind(PyObject* object, PyObject* closure) {
  auto* self = as<Resume>(object);
  auto* function = as<PyFunctionObject>(self->function.get());
  Ref bound = Ref::steal(PyFunction_NewWithQualName(function->func_code, function->func_globals, function->func_qualname));
  if (!bound || PyFunction_SetClosure(bound.get(), closure) < 0) return nullptr;
  return make_resume(bound, self->name);
}

PyObject* resume_repr(PyObject* object) { return PyUnicode_FromFormat("<Resume %S>", as<Resume>(object)->name.get()); }

PyMethodDef resume_methods[] = {
    {"bind", resume_bind, METH_O, "bind(closure): the same, running a function of the same code with this closure"},
    {},
};

}  // namespace

bool add_resume_types(PyObject* module) {
  return add_type<Resume>(module, "stoker._C.Resume", resume_type,
                          {doc("Resume(function, name=None)\n\nCalling it returns a TailCall to the function."),
                           slot(Py_tp_new, resume_new),
                           slot(Py_tp_repr, resume_repr),
                           {Py_tp_methods, resume_methods}},
                          {{"function", T_OBJECT, offsetof(Resume, function), READONLY, "what runs in the caller's place"},
                           {"name", T_OBJECT, offsetof(Resume, name), READONLY, "for people"}}) &&
         add_type<TailCall>(module, "stoker._C.TailCall", tail_call_type, {},
                            {{"function", T_OBJECT, offsetof(TailCall, function), READONLY, "what to run"},
                             {"arguments", T_OBJECT, offsetof(TailCall, arguments), READONLY, "with what"}},
                            Py_TPFLAGS_DISALLOW_INSTANTIATION);
}

}  // namespace stoker
