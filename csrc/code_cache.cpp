#include "code_cache.h"

#include "guard_program.h"
#include "object_type.h"

#include <algorithm>
#include <new>

namespace stoker {

PyTypeObject* entry_type;
PyTypeObject* compiler_type;

namespace {

Py_ssize_t extra_index = -1;

// The extra slot of a code object: nearly always a single record.
using CodeExtra = std::vector<Record*>;

CodeExtra* code_extra(PyCodeObject* code) {
  void* extra = nullptr;
  if (compat::code_get_extra(reinterpret_cast<PyObject*>(code), extra_index, &extra) < 0) PyErr_Clear();
  return static_cast<CodeExtra*>(extra);
}

void release(Record* record) {
  record->code = nullptr;
  if (--record->holders == 0) delete record;
}

// Takes a record out of its code's extra slot.
void detach(Record* record) {
  if (CodeExtra* extra = code_extra(record->code)) std::erase(*extra, record);
}

// Called by CPython when a code object dies.
void free_extra(void* pointer) {
  auto* extra = static_cast<CodeExtra*>(pointer);
  if (!extra) return;
  compat::SavedError error;
  CodeExtra records = std::move(*extra);
  delete extra;
  for (Record* record : records) record->compiler->records.erase(record->code);
  for (Record* record : records) release(record);
  error.restore();
}

void drop_record(Compiler* self, PyCodeObject* code) {
  auto found = self->records.find(code);
  if (found == self->records.end()) return;
  Record* record = found->second;
  self->records.erase(found);
  detach(record);
  release(record);
}

void drop_records(Compiler* self) {
  auto records = std::move(self->records);
  self->records.clear();
  for (auto& [code, record] : records) detach(record);
  for (auto& [code, record] : records) release(record);
}

// Entry

PyObject* entry_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"code", "guards", "keeps_hook", "tag", nullptr};
  PyObject *code, *guards, *tag = Py_None;
  int keeps_hook = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!|pO:Entry", const_cast<char**>(names), &PyCode_Type, &code,
                                   guard_program_type, &guards, &keeps_hook, &tag))
    return nullptr;
  auto* replacement = reinterpret_cast<PyCodeObject*>(code);
  if (replacement->co_kwonlyargcount || (replacement->co_flags & (CO_VARARGS | CO_VARKEYWORDS))) {
    PyErr_SetString(PyExc_ValueError, "an entry's code takes plain positional parameters only");
    return nullptr;
  }
  auto* self = reinterpret_cast<Entry*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->code = reinterpret_cast<PyCodeObject*>(Py_NewRef(code));
  self->guards = reinterpret_cast<GuardProgram*>(Py_NewRef(guards));
  self->tag = Py_NewRef(tag);
  self->keeps_hook = keeps_hook;
  return reinterpret_cast<PyObject*>(self);
}

int entry_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Entry*>(object);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->code);
  Py_VISIT(self->guards);
  Py_VISIT(self->tag);
  Py_VISIT(self->globals);
  Py_VISIT(self->function);
  return 0;
}

// Code and guards stay: a run in progress needs them, and they lie on no cycle that tag, globals or function do not cut.
int entry_clear(PyObject* object) {
  auto* self = reinterpret_cast<Entry*>(object);
  Py_CLEAR(self->tag);
  Py_CLEAR(self->globals);
  Py_CLEAR(self->function);
  return 0;
}

void entry_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<Entry*>(object);
  PyObject_GC_UnTrack(object);
  entry_clear(object);
  Py_CLEAR(self->code);
  Py_CLEAR(self->guards);
  free_object(object);
}

PyObject* entry_get_keeps_hook(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<Entry*>(self)->keeps_hook);
}

PyMemberDef entry_members[] = {
    {"code", T_OBJECT, offsetof(Entry, code), READONLY, "the replacement code"},
    {"guards", T_OBJECT, offsetof(Entry, guards), READONLY, "what must hold for it to run"},
    {"tag", T_OBJECT, offsetof(Entry, tag), READONLY, "whatever its maker wants to remember"},
    {"hits", T_PYSSIZET, offsetof(Entry, hits), READONLY, "how often it ran"},
    {},
};

PyGetSetDef entry_properties[] = {
    {"keeps_hook", entry_get_keeps_hook, nullptr, "whether functions that it calls are looked up", nullptr},
    {},
};

PyType_Slot entry_slots[] = {
    {Py_tp_doc, const_cast<char*>("Entry(code, guards, keeps_hook=False, tag=None)\n\nOne compiled version of a code.")},
    {Py_tp_new, reinterpret_cast<void*>(entry_new)},
    {Py_tp_traverse, reinterpret_cast<void*>(entry_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(entry_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(entry_dealloc)},
    {Py_tp_members, entry_members},
    {Py_tp_getset, entry_properties},
    {0, nullptr},
};
PyType_Spec entry_spec = {"stoker._C.Entry", sizeof(Entry), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, entry_slots};

// Compiler

PyObject* compiler_new(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = reinterpret_cast<Compiler*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  new (&self->records) decltype(self->records)();
  return reinterpret_cast<PyObject*>(self);
}

int compiler_init(PyObject* object, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"on_miss", "on_reject", nullptr};
  PyObject *on_miss, *on_reject = nullptr;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O:Compiler", const_cast<char**>(names), &on_miss, &on_reject))
    return -1;
  auto* self = reinterpret_cast<Compiler*>(object);
  if (on_reject == Py_None) on_reject = nullptr;
  Py_XSETREF(self->on_miss, Py_NewRef(on_miss));
  Py_XSETREF(self->on_reject, Py_XNewRef(on_reject));
  return 0;
}

int compiler_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Compiler*>(object);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->on_miss);
  Py_VISIT(self->on_reject);
  for (auto& [code, record] : self->records)
    for (Ref& entry : record->entries) Py_VISIT(entry.get());
  return 0;
}

int compiler_clear(PyObject* object) {
  auto* self = reinterpret_cast<Compiler*>(object);
  Py_CLEAR(self->on_miss);
  Py_CLEAR(self->on_reject);
  drop_records(self);
  return 0;
}

void compiler_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<Compiler*>(object);
  PyObject_GC_UnTrack(object);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  compiler_clear(object);
  using Records = decltype(self->records);
  self->records.~Records();
  free_object(object);
}

PyCodeObject* code_argument(PyObject* argument) {
  if (PyCode_Check(argument)) return reinterpret_cast<PyCodeObject*>(argument);
  PyErr_Format(PyExc_TypeError, "expected a code object, not %s", Py_TYPE(argument)->tp_name);
  return nullptr;
}

PyObject* compiler_codes(PyObject* object, PyObject*) {
  Ref codes = Ref::steal(PyList_New(0));
  if (!codes) return nullptr;
  for (auto& [code, record] : reinterpret_cast<Compiler*>(object)->records)
    if (PyList_Append(codes.get(), reinterpret_cast<PyObject*>(code)) < 0) return nullptr;
  return codes.release();
}

PyObject* compiler_state(PyObject* object, PyObject* argument) {
  PyCodeObject* code = code_argument(argument);
  if (!code) return nullptr;
  Record* record = find_record(code, reinterpret_cast<Compiler*>(object));
  if (!record) Py_RETURN_NONE;
  return PyLong_FromLong(static_cast<int>(record->state));
}

PyObject* compiler_set_state(PyObject* object, PyObject* arguments) {
  PyObject* code;
  int state;
  if (!PyArg_ParseTuple(arguments, "O!i:set_state", &PyCode_Type, &code, &state)) return nullptr;
  if (state < 0 || state > static_cast<int>(Action::FREEZE)) {
    PyErr_Format(PyExc_ValueError, "%d is not one of RUN_ONCE, SKIP, SKIP_DEEP, FREEZE", state);
    return nullptr;
  }
  Record* record = make_record(reinterpret_cast<PyCodeObject*>(code), reinterpret_cast<Compiler*>(object));
  if (!record) return nullptr;
  record->state = static_cast<Action>(state);
  Py_RETURN_NONE;
}

PyObject* compiler_add(PyObject* object, PyObject* arguments) {
  PyObject *code, *entry;
  if (!PyArg_ParseTuple(arguments, "O!O!:add", &PyCode_Type, &code, entry_type, &entry)) return nullptr;
  Record* record = make_record(reinterpret_cast<PyCodeObject*>(code), reinterpret_cast<Compiler*>(object));
  if (!record) return nullptr;
  record->entries.push_back(Ref::share(entry));
  Py_RETURN_NONE;
}

PyObject* compiler_entries(PyObject* object, PyObject* argument) {
  PyCodeObject* code = code_argument(argument);
  if (!code) return nullptr;
  Ref list = Ref::steal(PyList_New(0));
  Record* record = find_record(code, reinterpret_cast<Compiler*>(object));
  if (!list || !record) return list.release();
  for (Ref& entry : record->entries)
    if (PyList_Append(list.get(), entry.get()) < 0) return nullptr;
  return list.release();
}

PyObject* compiler_forget(PyObject* object, PyObject* arguments) {
  PyObject* argument = Py_None;
  if (!PyArg_ParseTuple(arguments, "|O:forget", &argument)) return nullptr;
  auto* self = reinterpret_cast<Compiler*>(object);
  if (argument == Py_None) {
    drop_records(self);
    Py_RETURN_NONE;
  }
  PyCodeObject* code = code_argument(argument);
  if (!code) return nullptr;
  drop_record(self, code);
  Py_RETURN_NONE;
}

PyMethodDef compiler_methods[] = {
    {"codes", compiler_codes, METH_NOARGS, "the code objects that it has a record of"},
    {"state", compiler_state, METH_O, "state(code): RUN_ONCE, SKIP, SKIP_DEEP or FREEZE; None without a record"},
    {"set_state", compiler_set_state, METH_VARARGS, "set_state(code, action)"},
    {"add", compiler_add, METH_VARARGS, "add(code, entry): give the code one more entry"},
    {"entries", compiler_entries, METH_O, "entries(code): its compiled versions"},
    {"forget", compiler_forget, METH_VARARGS, "forget(code=None): drop the record of one code, or all"},
    {},
};

PyMemberDef compiler_members[] = {
    {"on_miss", T_OBJECT, offsetof(Compiler, on_miss), 0, "called when no entry's guards hold"},
    {"on_reject", T_OBJECT, offsetof(Compiler, on_reject), 0, "called when a new entry's guards fail at once"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Compiler, weak_references), READONLY, nullptr},
    {},
};

PyType_Slot compiler_slots[] = {
    {Py_tp_doc, const_cast<char*>("Compiler(on_miss, on_reject=None)\n\nOne configuration of the compiler.")},
    {Py_tp_new, reinterpret_cast<void*>(compiler_new)},
    {Py_tp_init, reinterpret_cast<void*>(compiler_init)},
    {Py_tp_traverse, reinterpret_cast<void*>(compiler_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(compiler_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(compiler_dealloc)},
    {Py_tp_methods, compiler_methods},
    {Py_tp_members, compiler_members},
    {0, nullptr},
};
PyType_Spec compiler_spec = {"stoker._C.Compiler", sizeof(Compiler), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, compiler_slots};

}  // namespace

Record* find_record(PyCodeObject* code, const Compiler* compiler) {
  CodeExtra* extra = code_extra(code);
  if (!extra) return nullptr;
  for (Record* record : *extra)
    if (record->compiler == compiler) return record;
  return nullptr;
}

Record* make_record(PyCodeObject* code, Compiler* compiler) {
  if (Record* known = find_record(code, compiler)) return known;
  CodeExtra* extra = code_extra(code);
  if (!extra) {
    extra = new CodeExtra();
    if (compat::code_set_extra(reinterpret_cast<PyObject*>(code), extra_index, extra) < 0) {
      delete extra;
      return nullptr;
    }
  }
  auto* record = new Record();
  record->code = code;
  record->compiler = compiler;
  record->holders = 1;
  extra->push_back(record);
  compiler->records.emplace(code, record);
  return record;
}

bool add_cache_types(PyObject* module) {
  extra_index = compat::request_code_extra(free_extra);
  if (extra_index < 0) {
    PyErr_SetString(PyExc_RuntimeError, "no code extra index is left for stoker");
    return false;
  }
  return add_type(module, &entry_spec, &entry_type) && add_type(module, &compiler_spec, &compiler_type);
}

}  // namespace stoker
