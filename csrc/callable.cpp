#include "module.h"

#include "bind.h"
#include "dispatch.h"
#include "frame_hook.h"
#include "object_type.h"
#include "ref.h"

#include <algorithm>

namespace stoker {

namespace {

PyTypeObject* compiled_type;
PyTypeObject* disabled_type;

// A callable that stands for another, and answers for its attributes.
struct Wrapper {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Ref wrapped;   // as the user gave it
  Ref function;  // Compiled: the plain function that runs, or `wrapped` if it is no plain function
  Ref self;      // Compiled of a bound method: its first argument
  Ref said;      // Compiled of a module, by such a method: what its class says a call of it is
  Owned<Compiler> compiler;
  PyObject* weak_references;

  void each(const auto& visit) { visit(wrapped), visit(function), visit(self), visit(said), visit(compiler); }
};

PyObject* call_function(Wrapper* self, PyObject* const* arguments, size_t flagged_count, PyObject* keyword_names) {
  PyObject* callable = self->function.get();
  auto* function = as<PyFunctionObject>(callable);
  auto* code = as<PyCodeObject>(function->func_code);
  Compiler* compiler = self->compiler.get();
  const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
  if (!is_replaceable(code)) return call_original(compiler, callable, arguments, count, keyword_names);
  Record* record = make_record(code, compiler);
  if (!record) return nullptr;
  Outcome outcome = record->state == Action::SKIP ? Outcome::ORIGINAL : Outcome::ORIGINAL_DEEP;
  PyObject* result = nullptr;
  if (record->state != Action::SKIP && record->state != Action::SKIP_DEEP) {
    BoundArguments bound(function, arguments, count, keyword_names);
    if (!bound.valid()) return PyObject_Vectorcall(callable, arguments, count, keyword_names);
    Call call{compiler, code, function, bound.slots(), bound_count(code)};
    outcome = dispatch(call, record, &result);
  }
  if (outcome == Outcome::ORIGINAL_DEEP) return call_original(nullptr, callable, arguments, count, keyword_names);
  if (outcome == Outcome::ORIGINAL) result = call_original(compiler, callable, arguments, count, keyword_names);
  return follow_tail_calls(compiler, result);
}

PyObject* disabled_call(PyObject* object, PyObject* const* arguments, size_t flagged_count, PyObject* keyword_names) {
  HookScope off(nullptr);
  return PyObject_Vectorcall(as<Wrapper>(object)->wrapped.get(), arguments, flagged_count, keyword_names);
}

// Does the class of a module still say so, and does the method still stand there?
bool is_current(const Wrapper* self) {
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  PyTypeObject* type = Py_TYPE(self->self.get());
  PyObject* method = self->function.get();
  return _PyType_Lookup(type, name) == self->said.get() && _PyType_Lookup(type, as<PyFunctionObject>(method)->func_name) == method;
}

PyObject* compiled_call(PyObject* object, PyObject* const* arguments, size_t flagged_count, PyObject* keyword_names) {
  auto* self = as<Wrapper>(object);
  const bool changed = self->said && !is_current(self);
  if (hook_thread.stance == Stance::EAGER)
    return call_original(nullptr, (changed ? self->self : self->wrapped).get(), arguments, flagged_count, keyword_names);
  PyObject* callee = (changed ? self->self : self->function).get();
  if (!PyFunction_Check(callee)) return call_original(self->compiler.get(), callee, arguments, flagged_count, keyword_names);
  if (!self->self) return call_function(self, arguments, flagged_count, keyword_names);
  const Py_ssize_t given = PyVectorcall_NARGS(flagged_count);
  const Py_ssize_t total = given + (keyword_names ? PyTuple_GET_SIZE(keyword_names) : 0);
  ArgumentArray shifted(total + 1);
  shifted.get()[0] = self->self.get();
  std::copy_n(arguments, total, shifted.get() + 1);
  return call_function(self, shifted.get(), given + 1, keyword_names);
}

Wrapper* new_wrapper(PyTypeObject* type, PyObject* wrapped, vectorcallfunc call) {
  if (!PyCallable_Check(wrapped)) {
    PyErr_Format(PyExc_TypeError, "%R is not callable", wrapped);
    return nullptr;
  }
  auto* self = make<Wrapper>(type);
  if (!self) return nullptr;
  self->vectorcall = call;
  self->wrapped = Ref::share(wrapped);
  return self;
}

PyObject* compiled_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  PyObject *wrapped, *compiler, *said = nullptr;
  if (!parse(arguments, keywords, "OO!|O:Compiled", {"function", "compiler", "said"}, &wrapped, compiler_type, &compiler, &said))
    return nullptr;
  Wrapper* self = new_wrapper(type, wrapped, compiled_call);
  if (!self) return nullptr;
  const bool is_method = PyMethod_Check(wrapped) && PyFunction_Check(PyMethod_GET_FUNCTION(wrapped));
  self->function = Ref::share(is_method ? PyMethod_GET_FUNCTION(wrapped) : wrapped);
  self->self = Ref::share(is_method ? PyMethod_GET_SELF(wrapped) : nullptr);
  self->said = Ref::share(is_method ? said : nullptr);
  self->compiler = Owned<Compiler>::share(as<Compiler>(compiler));
  return reinterpret_cast<PyObject*>(self);
}

PyObject* disabled_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  PyObject* wrapped;
  if (!parse(arguments, keywords, "O:Disabled", {"callable"}, &wrapped)) return nullptr;
  return reinterpret_cast<PyObject*>(new_wrapper(type, wrapped, disabled_call));
}

// A plain function binds as a method; a bound method or another object does not.
PyObject* wrapper_descr_get(PyObject* object, PyObject* instance, PyObject*) {
  PyObject* wrapped = as<Wrapper>(object)->wrapped.get();
  const bool binds = PyFunction_Check(wrapped) || Py_TYPE(wrapped) == compiled_type || Py_TYPE(wrapped) == disabled_type;
  if (!binds || !instance || instance == Py_None) return Py_NewRef(object);
  return PyMethod_New(object, instance);
}

// Each type has these two of its own, which would hide the wrapped function's.
bool is_documentation(PyObject* name) {
  return PyUnicode_CompareWithASCIIString(name, "__doc__") == 0 ||
         PyUnicode_CompareWithASCIIString(name, "__module__") == 0;
}

PyObject* wrapper_getattr(PyObject* object, PyObject* name) {
  PyObject* wrapped = as<Wrapper>(object)->wrapped.get();
  if (is_documentation(name)) return PyObject_GetAttr(wrapped, name);
  PyObject* own = PyObject_GenericGetAttr(object, name);
  if (own || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(wrapped, name);
}

int wrapper_setattr(PyObject* object, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(as<Wrapper>(object)->wrapped.get(), name, value);
}

PyObject* wrapper_repr(PyObject* object) {
  const char* word = Py_TYPE(object) == compiled_type ? "compiled" : "disabled";
  return PyUnicode_FromFormat("<%s %R>", word, as<Wrapper>(object)->wrapped.get());
}

bool add_wrapper(PyObject* module, const char* name, PyTypeObject*& place, newfunc make_new, std::vector<PyMemberDef> members) {
  members.push_back({"__wrapped__", T_OBJECT, offsetof(Wrapper, wrapped), READONLY, "what it was made from"});
  return add_type<Wrapper>(module, name, place,
                           {slot(Py_tp_new, make_new), slot(Py_tp_repr, wrapper_repr), slot(Py_tp_descr_get, wrapper_descr_get),
                            slot(Py_tp_getattro, wrapper_getattr), slot(Py_tp_setattro, wrapper_setattr)},
                           std::move(members));
}

}  // namespace

bool add_callable_types(PyObject* module) {
  return add_wrapper(module, "stoker._C.Compiled", compiled_type, compiled_new,
                     {{"compiler", T_OBJECT, offsetof(Wrapper, compiler), READONLY, "the compiler it runs under"}}) &&
         add_wrapper(module, "stoker._C.Disabled", disabled_type, disabled_new, {});
}

}  // namespace stoker
