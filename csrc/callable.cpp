#include "callable.h"

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
  PyObject* wrapped;   // as the user gave it
  PyObject* function;  // Compiled: the plain function that runs, or `wrapped` if it is no plain function
  PyObject* self;      // Compiled of a bound method: its first argument
  Compiler* compiler;
  PyObject* weak_references;
};

Wrapper* wrapper(PyObject* object) { return reinterpret_cast<Wrapper*>(object); }

PyObject* call_function(Wrapper* self, PyObject* const* arguments, size_t flagged_count, PyObject* keyword_names) {
  auto* function = reinterpret_cast<PyFunctionObject*>(self->function);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  Compiler* compiler = self->compiler;
  const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
  if (!is_replaceable(code)) return call_original(compiler, self->function, arguments, count, keyword_names);
  Record* record = make_record(code, compiler);
  if (!record) return nullptr;
  Outcome outcome;
  PyObject* result = nullptr;
  switch (record->state) {
    case Action::SKIP:
      outcome = Outcome::ORIGINAL;
      break;
    case Action::SKIP_DEEP:
      outcome = Outcome::ORIGINAL_DEEP;
      break;
    default: {
      BoundArguments bound(function, arguments, count, keyword_names);
      if (!bound.valid()) return PyObject_Vectorcall(self->function, arguments, count, keyword_names);
      Call call{compiler, code, function, bound.slots(), bound_count(code)};
      outcome = dispatch(call, record, &result);
    }
  }
  switch (outcome) {
    case Outcome::ORIGINAL:
      return follow_tail_calls(compiler, call_original(compiler, self->function, arguments, count, keyword_names));
    case Outcome::ORIGINAL_DEEP:
      return call_original(nullptr, self->function, arguments, count, keyword_names);
    case Outcome::DONE:
      return follow_tail_calls(compiler, result);
  }
  Py_UNREACHABLE();
}

PyObject* disabled_call(PyObject* object, PyObject* const* arguments, size_t flagged_count, PyObject* keyword_names) {
  HookScope off(nullptr);
  return PyObject_Vectorcall(wrapper(object)->wrapped, arguments, flagged_count, keyword_names);
}

PyObject* compiled_call(PyObject* object, PyObject* const* arguments, size_t flagged_count, PyObject* keyword_names) {
  if (hook_thread.stance == Stance::EAGER) return disabled_call(object, arguments, flagged_count, keyword_names);
  Wrapper* self = wrapper(object);
  if (!PyFunction_Check(self->function))
    return call_original(self->compiler, self->function, arguments, flagged_count, keyword_names);
  if (!self->self) return call_function(self, arguments, flagged_count, keyword_names);
  const Py_ssize_t given = PyVectorcall_NARGS(flagged_count);
  const Py_ssize_t total = given + (keyword_names ? PyTuple_GET_SIZE(keyword_names) : 0);
  ArgumentArray shifted(total + 1);
  shifted.get()[0] = self->self;
  std::copy_n(arguments, total, shifted.get() + 1);
  return call_function(self, shifted.get(), given + 1, keyword_names);
}

PyObject* compiled_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"function", "compiler", nullptr};
  PyObject *wrapped, *compiler;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO!:Compiled", const_cast<char**>(names), &wrapped, compiler_type,
                                   &compiler))
    return nullptr;
  if (!PyCallable_Check(wrapped)) return PyErr_Format(PyExc_TypeError, "%R is not callable", wrapped);
  auto* self = wrapper(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  const bool is_method = PyMethod_Check(wrapped) && PyFunction_Check(PyMethod_GET_FUNCTION(wrapped));
  self->vectorcall = compiled_call;
  self->wrapped = Py_NewRef(wrapped);
  self->function = Py_NewRef(is_method ? PyMethod_GET_FUNCTION(wrapped) : wrapped);
  self->self = is_method ? Py_NewRef(PyMethod_GET_SELF(wrapped)) : nullptr;
  self->compiler = reinterpret_cast<Compiler*>(Py_NewRef(compiler));
  return reinterpret_cast<PyObject*>(self);
}

PyObject* disabled_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"callable", nullptr};
  PyObject* wrapped;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O:Disabled", const_cast<char**>(names), &wrapped)) return nullptr;
  if (!PyCallable_Check(wrapped)) return PyErr_Format(PyExc_TypeError, "%R is not callable", wrapped);
  auto* self = wrapper(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = disabled_call;
  self->wrapped = Py_NewRef(wrapped);
  return reinterpret_cast<PyObject*>(self);
}

int wrapper_traverse(PyObject* object, visitproc visit, void* arg) {
  Wrapper* self = wrapper(object);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->wrapped);
  Py_VISIT(self->function);
  Py_VISIT(self->self);
  Py_VISIT(self->compiler);
  return 0;
}

int wrapper_clear(PyObject* object) {
  Wrapper* self = wrapper(object);
  Py_CLEAR(self->wrapped);
  Py_CLEAR(self->function);
  Py_CLEAR(self->self);
  Py_CLEAR(self->compiler);
  return 0;
}

void wrapper_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  if (wrapper(object)->weak_references) PyObject_ClearWeakRefs(object);
  wrapper_clear(object);
  free_object(object);
}

// A plain function binds as a method; a bound method or another object does not.
PyObject* wrapper_descr_get(PyObject* object, PyObject* instance, PyObject*) {
  const bool binds = PyFunction_Check(wrapper(object)->wrapped) || Py_TYPE(wrapper(object)->wrapped) == compiled_type ||
                     Py_TYPE(wrapper(object)->wrapped) == disabled_type;
  if (!binds || !instance || instance == Py_None) return Py_NewRef(object);
  return PyMethod_New(object, instance);
}

// Each type has these two of its own, which would hide the wrapped function's.
bool is_documentation(PyObject* name) {
  return PyUnicode_CompareWithASCIIString(name, "__doc__") == 0 ||
         PyUnicode_CompareWithASCIIString(name, "__module__") == 0;
}

PyObject* wrapper_getattr(PyObject* object, PyObject* name) {
  PyObject* wrapped = wrapper(object)->wrapped;
  if (is_documentation(name)) return PyObject_GetAttr(wrapped, name);
  PyObject* own = PyObject_GenericGetAttr(object, name);
  if (own || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(wrapped, name);
}

int wrapper_setattr(PyObject* object, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(wrapper(object)->wrapped, name, value);
}

PyObject* wrapper_repr(PyObject* object) {
  const char* word = Py_TYPE(object) == compiled_type ? "compiled" : "disabled";
  return PyUnicode_FromFormat("<%s %R>", word, wrapper(object)->wrapped);
}

PyMemberDef wrapper_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Wrapper, wrapped), READONLY, "what it was made from"},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Wrapper, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Wrapper, weak_references), READONLY, nullptr},
    {},
};

PyMemberDef compiled_members[] = {
    wrapper_members[0],
    wrapper_members[1],
    wrapper_members[2],
    {"compiler", T_OBJECT, offsetof(Wrapper, compiler), READONLY, "the compiler it runs under"},
    {},
};

#define STOKER_WRAPPER_SLOTS                                          \
  {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},           \
      {Py_tp_repr, reinterpret_cast<void*>(wrapper_repr)},            \
      {Py_tp_traverse, reinterpret_cast<void*>(wrapper_traverse)},    \
      {Py_tp_clear, reinterpret_cast<void*>(wrapper_clear)},          \
      {Py_tp_dealloc, reinterpret_cast<void*>(wrapper_dealloc)},      \
      {Py_tp_descr_get, reinterpret_cast<void*>(wrapper_descr_get)},  \
      {Py_tp_getattro, reinterpret_cast<void*>(wrapper_getattr)},     \
      {Py_tp_setattro, reinterpret_cast<void*>(wrapper_setattr)}

PyType_Slot compiled_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(compiled_new)},
    {Py_tp_members, compiled_members},
    STOKER_WRAPPER_SLOTS,
    {0, nullptr},
};
PyType_Slot disabled_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(disabled_new)},
    {Py_tp_members, wrapper_members},
    STOKER_WRAPPER_SLOTS,
    {0, nullptr},
};
constexpr unsigned WRAPPER_FLAGS = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
PyType_Spec compiled_spec = {"stoker._C.Compiled", sizeof(Wrapper), 0, WRAPPER_FLAGS, compiled_slots};
PyType_Spec disabled_spec = {"stoker._C.Disabled", sizeof(Wrapper), 0, WRAPPER_FLAGS, disabled_slots};

}  // namespace

PyObject* call_with(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* keyword_names) {
  if (count < 2) {
    PyErr_SetString(PyExc_TypeError, "call_with(compiler_or_None, function, *args, **kwargs)");
    return nullptr;
  }
  if (arguments[0] != Py_None && !PyObject_TypeCheck(arguments[0], compiler_type))
    return PyErr_Format(PyExc_TypeError, "expected a Compiler or None, not %s", Py_TYPE(arguments[0])->tp_name);
  HookScope scope(arguments[0] == Py_None ? nullptr : reinterpret_cast<Compiler*>(arguments[0]));
  return PyObject_Vectorcall(arguments[1], arguments + 2, count - 2, keyword_names);
}

bool add_callable_types(PyObject* module) {
  return add_type(module, &compiled_spec, &compiled_type) && add_type(module, &disabled_spec, &disabled_type);
}

}  // namespace stoker
