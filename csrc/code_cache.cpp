#include "code_cache.h"

#include "guard_program.h"
#include "object_type.h"

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

// Entry

PyObject* entry_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  PyObject *code, *guards, *tag = Py_None;
  int keeps_hook = 0;
  if (!parse(arguments, keywords, "O!O!|pO:Entry", {"code", "guards", "keeps_hook", "tag"}, &PyCode_Type, &code,
             guard_program_type, &guards, &keeps_hook, &tag))
    return nullptr;
  auto* replacement = as<PyCodeObject>(code);
  if (replacement->co_kwonlyargcount || (replacement->co_flags & (CO_VARARGS | CO_VARKEYWORDS)))
    return PyErr_Format(PyExc_ValueError, "an entry's code takes plain positional parameters only");
  auto* self = make<Entry>(type);
  if (!self) return nullptr;
  self->code = Owned<PyCodeObject>::share(replacement);
  self->guards = Owned<GuardProgram>::share(as<GuardProgram>(guards));
  self->tag = Ref::share(tag);
  self->keeps_hook = keeps_hook;
  return reinterpret_cast<PyObject*>(self);
}

// Compiler

PyObject* compiler_new(PyTypeObject* type, PyObject*, PyObject*) {
  return reinterpret_cast<PyObject*>(make<Compiler>(type));
}

int compiler_init(PyObject* object, PyObject* arguments, PyObject* keywords) {
  PyObject* on_miss;
  if (!parse(arguments, keywords, "O:Compiler", {"on_miss"}, &on_miss)) return -1;
  as<Compiler>(object)->on_miss = Ref::share(on_miss);
  return 0;
}

PyCodeObject* code_argument(PyObject* argument) {
  if (PyCode_Check(argument)) return reinterpret_cast<PyCodeObject*>(argument);
  PyErr_Format(PyExc_TypeError, "expected a code object, not %s", Py_TYPE(argument)->tp_name);
  return nullptr;
}

PyObject* compiler_codes(PyObject* object, PyObject*) {
  Ref codes = Ref::steal(PyList_New(0));
  if (!codes) return nullptr;
  for (auto& [code, record] : as<Compiler>(object)->records)
    if (PyList_Append(codes.get(), reinterpret_cast<PyObject*>(code)) < 0) return nullptr;
  return codes.release();
}

PyObject* compiler_state(PyObject* object, PyObject* argument) {
  PyCodeObject* code = code_argument(argument);
  if (!code) return nullptr;
  Record* record = find_record(code, as<Compiler>(object));
  if (!record) Py_RETURN_NONE;
  return PyLong_FromLong(static_cast<int>(record->state));
}

PyObject* compiler_set_state(PyObject* object, PyObject* arguments) {
  PyObject* code;
  int state;
  if (!PyArg_ParseTuple(arguments, "O!i:set_state", &PyCode_Type, &code, &state)) return nullptr;
  if (state < 0 || state > static_cast<int>(Action::FREEZE))
    return PyErr_Format(PyExc_ValueError, "%d is not one of RUN_ONCE, SKIP, SKIP_DEEP, FREEZE", state);
  Record* record = make_record(as<PyCodeObject>(code), as<Compiler>(object));
  if (!record) return nullptr;
  record->state = static_cast<Action>(state);
  Py_RETURN_NONE;
}

PyObject* compiler_add(PyObject* object, PyObject* arguments) {
  PyObject *code, *entry;
  if (!PyArg_ParseTuple(arguments, "O!O!:add", &PyCode_Type, &code, entry_type, &entry)) return nullptr;
  Record* record = make_record(as<PyCodeObject>(code), as<Compiler>(object));
  if (!record) return nullptr;
  record->entries.push_back(Ref::share(entry));
  Py_RETURN_NONE;
}

PyObject* compiler_entries(PyObject* object, PyObject* argument) {
  PyCodeObject* code = code_argument(argument);
  if (!code) return nullptr;
  Ref list = Ref::steal(PyList_New(0));
  Record* record = find_record(code, as<Compiler>(object));
  if (!list || !record) return list.release();
  for (Ref& entry : record->entries)
    if (PyList_Append(list.get(), entry.get()) < 0) return nullptr;
  return list.release();
}

PyObject* compiler_forget(PyObject* object, PyObject*) {
  as<Compiler>(object)->clear();
  Py_RETURN_NONE;
}

PyMethodDef compiler_methods[] = {
    {"codes", compiler_codes, METH_NOARGS, "the code objects that it has a record of"},
    {"state", compiler_state, METH_O, "state(code): RUN_ONCE, SKIP, SKIP_DEEP or FREEZE; None without a record"},
    {"set_state", compiler_set_state, METH_VARARGS, "set_state(code, action)"},
    {"add", compiler_add, METH_VARARGS, "add(code, entry): give the code one more entry"},
    {"entries", compiler_entries, METH_O, "entries(code): its compiled versions"},
    {"forget", compiler_forget, METH_NOARGS, "forget(): drop all records"},
    {},
};

}  // namespace

void Compiler::clear() {
  auto dropped = std::move(records);
  records.clear();
  for (auto& [code, record] : dropped) detach(record);
  for (auto& [code, record] : dropped) release(record);
}

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
  return add_type<Entry>(module, "stoker._C.Entry", entry_type,
                         {doc("Entry(code, guards, keeps_hook=False, tag=None)\n\nOne compiled version of a code."),
                          slot(Py_tp_new, entry_new)},
                         {{"code", T_OBJECT, offsetof(Entry, code), READONLY, "the replacement code"},
                          {"guards", T_OBJECT, offsetof(Entry, guards), READONLY, "what must hold for it to run"},
                          {"tag", T_OBJECT, offsetof(Entry, tag), READONLY, "whatever its maker wants to remember"},
                          {"hits", T_PYSSIZET, offsetof(Entry, hits), READONLY, "how often it ran"}}) &&
         add_type<Compiler>(module, "stoker._C.Compiler", compiler_type,
                            {doc("Compiler(on_miss)\n\nOne configuration of the compiler."),
                             slot(Py_tp_new, compiler_new), slot(Py_tp_init, compiler_init), {Py_tp_methods, compiler_methods}},
                            {{"on_miss", T_OBJECT, offsetof(Compiler, on_miss), 0, "called when no entry's guards hold"}},
                            Py_TPFLAGS_BASETYPE);
}

}  // namespace stoker
