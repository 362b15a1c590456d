// The facts about CPython's internals that differ between 3.11, 3.12 and 3.13.
//
// No other file touches an internal structure. What differs:
//   frame      3.11: f_func, f_code, and the caller of the evaluator clears the frame.
//              3.12: f_funcobj, f_code, prev_instr, and the evaluator clears the frame that it ran.
//              3.13: f_funcobj, f_executable, instr_ptr, otherwise as 3.12.
//   dict tag   a number that is unique over all dictionaries and changes with each mutation. In 3.13 an instance's
//              attribute store writes into values that the dictionary shares without giving it a new tag
//              (Objects/dictobject.c, store_instance_attr_lock_held): such a dictionary has no usable tag.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "stoker supports CPython 3.11, 3.12 and 3.13"
#endif

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#pragma GCC diagnostic pop

#include <cstdint>
#include <cstring>

namespace stoker::compat {

using Frame = _PyInterpreterFrame;

// True where the evaluator clears the frame it ran, so that a frame that is not run must be cleared by us.
inline constexpr bool EVALUATOR_CLEARS_FRAME = PY_VERSION_HEX >= 0x030C0000;

inline PyCodeObject* frame_code(Frame* frame) {
#if PY_VERSION_HEX >= 0x030D0000
  return reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  return frame->f_code;
#endif
}

inline PyObject* frame_function(Frame* frame) {
#if PY_VERSION_HEX >= 0x030C0000
  return frame->f_funcobj;
#else
  return reinterpret_cast<PyObject*>(frame->f_func);
#endif
}

inline PyObject** frame_slots(Frame* frame) { return frame->localsplus; }

// Makes a frame that has not started run `code` from its first instruction. Its slots stay as they are.
inline void frame_replace_code([[maybe_unused]] Frame* frame, [[maybe_unused]] PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* old = frame->f_executable;
  frame->f_executable = Py_NewRef(reinterpret_cast<PyObject*>(code));
  frame->instr_ptr = _PyCode_CODE(code);
  Py_DECREF(old);
#elif PY_VERSION_HEX >= 0x030C0000
  PyCodeObject* old = frame->f_code;
  frame->f_code = reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(code)));
  frame->prev_instr = _PyCode_CODE(code) - 1;
  Py_DECREF(old);
#endif
}

// The slot that each code object has for us.
#if PY_VERSION_HEX >= 0x030C0000
inline Py_ssize_t request_code_extra(freefunc free) { return PyUnstable_Eval_RequestCodeExtraIndex(free); }
inline int code_get_extra(PyObject* code, Py_ssize_t index, void** extra) {
  return PyUnstable_Code_GetExtra(code, index, extra);
}
inline int code_set_extra(PyObject* code, Py_ssize_t index, void* extra) {
  return PyUnstable_Code_SetExtra(code, index, extra);
}
#else
inline Py_ssize_t request_code_extra(freefunc free) { return _PyEval_RequestCodeExtraIndex(free); }
inline int code_get_extra(PyObject* code, Py_ssize_t index, void** extra) { return _PyCode_GetExtra(code, index, extra); }
inline int code_set_extra(PyObject* code, Py_ssize_t index, void* extra) { return _PyCode_SetExtra(code, index, extra); }
#endif

inline PyObject* code_slot_names(PyCodeObject* code) { return code->co_localsplusnames; }

// The number of free variables, without the new tuple that PyCode_GetFreevars makes.
inline int code_free_count(PyCodeObject* code) { return code->co_nfreevars; }

// 0 where the dictionary has no tag that proves it unchanged.
inline uint64_t dict_tag(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  auto* object = reinterpret_cast<PyDictObject*>(dict);
#if PY_VERSION_HEX >= 0x030D0000
  // Bits 0 to 11 belong to the watchers.
  return object->ma_values ? 0 : object->ma_version_tag >> 12;
#elif PY_VERSION_HEX >= 0x030C0000
  return object->ma_version_tag >> 8;
#else
  return object->ma_version_tag;
#endif
#pragma GCC diagnostic pop
}

// Where the tag lies, as a word that proves the dictionary unchanged; null where none does.
inline const uintptr_t* dict_tag_place(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  static_assert(sizeof(uintptr_t) == sizeof(uint64_t));
  if (!dict_tag(dict)) return nullptr;
  return reinterpret_cast<const uintptr_t*>(&reinterpret_cast<PyDictObject*>(dict)->ma_version_tag);
#pragma GCC diagnostic pop
}

// Whether each key is a str itself, so that looking up a str runs no Python code. The kind of keys is the third byte after
// the reference count (pycore_dict.h, which is no C++), 0 for general ones.
inline bool dict_has_text_keys(PyObject* dict) {
  auto* keys = reinterpret_cast<const uint8_t*>(reinterpret_cast<PyDictObject*>(dict)->ma_keys);
  return keys[sizeof(Py_ssize_t) + 2] != 0;
}

// The tag of a type's method cache entries, changed by each mutation of the type or a base; 0 if there is none.
inline unsigned type_tag(PyTypeObject* type) {
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

inline bool weakref_is_dead(PyObject* reference) {
  return reinterpret_cast<PyWeakReference*>(reference)->wr_object == Py_None;
}

inline PyObject* weakref_target_borrowed(PyObject* reference) {
  return reinterpret_cast<PyWeakReference*>(reference)->wr_object;
}

// The result in an entry of a functools.lru_cache of bounded size (Modules/_functoolsmodule.c, lru_list_elem); null for any
// other object.
inline PyObject* lru_entry_result(PyObject* entry) {
  struct Entry {
    PyObject_HEAD void *previous, *next;
    Py_hash_t hash;
    PyObject *key, *result;
  };
  const char* name = Py_TYPE(entry)->tp_name;
  const bool is_entry = strcmp(name, "functools._lru_list_elem") == 0 && Py_TYPE(entry)->tp_basicsize == sizeof(Entry);
  return is_entry ? reinterpret_cast<Entry*>(entry)->result : nullptr;
}

// The instance dictionary where one lies ready three words before the object, else null (pycore_object.h, which is no C++).
// In 3.12 the lowest bit marks bare values.
inline PyObject* present_instance_dict(PyObject* object) {
  if (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) return nullptr;
  PyObject* dict = reinterpret_cast<PyObject**>(object)[-3];
  return reinterpret_cast<uintptr_t>(dict) & 1 ? nullptr : dict;
}

// Where the instance's dictionary pointer lies: the same place for each class that the instance may change to. Null where
// the place depends on more than the class.
inline PyObject** instance_dict_place(PyObject* object) {
  if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) return reinterpret_cast<PyObject**>(object) - 3;
  const Py_ssize_t offset = Py_TYPE(object)->tp_dictoffset;
  return offset > 0 ? reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset) : nullptr;
}

// The instance dictionary, created if it does not exist yet: a borrowed reference, or null with or without an exception.
inline PyObject* instance_dict(PyObject* object) {
  if (PyObject* present = present_instance_dict(object)) return present;
  PyObject** place = _PyObject_GetDictPtr(object);
  if (place && *place) return *place;
  if (!place && !Py_TYPE(object)->tp_dictoffset) return nullptr;
  PyObject* dict = PyObject_GenericGetDict(object, nullptr);
  if (dict) Py_DECREF(dict);  // the instance keeps it
  return dict;
}

// A raised exception, set aside and put back.
struct SavedError {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* raised = PyErr_GetRaisedException();
  void restore() { PyErr_SetRaisedException(raised); }
#else
  PyObject *type, *raised, *traceback;
  SavedError() {
    PyErr_Fetch(&type, &raised, &traceback);
    PyErr_NormalizeException(&type, &raised, &traceback);
  }
  void restore() { PyErr_Restore(type, raised, traceback); }
#endif
  // Marks it with an attribute; one that takes none stays as it is.
  void mark(const char* name) {
    if (raised && PyObject_SetAttrString(raised, name, Py_True) < 0) PyErr_Clear();
  }
  bool has(const char* name) const { return raised && PyObject_HasAttrString(raised, name); }
};

}  // namespace stoker::compat
