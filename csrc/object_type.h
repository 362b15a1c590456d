// Heap types, made the same way for each of ours.
//
// An instance is a C++ struct T that begins with PyObject_HEAD; its other members have constructors and destructors. What T has, its
// type gets slots for:
//   each(visit)      shows `visit` the references that may lie on a cycle: the collector follows them, and cuts the cycle there
//   each_kept(visit) shows it those to be followed and never cut
//   clear()          lets go of what else must go when a cycle is cut
//   vectorcall       instances are called through it
//   weak_references  instances can be referred to weakly
#pragma once

#include "python_compat.h"
#include "ref.h"

#include <structmember.h>

#include <cstddef>
#include <initializer_list>
#include <new>
#include <vector>

namespace stoker {

template <class T>
T* as(PyObject* object) {
  return reinterpret_cast<T*>(object);
}

// A new instance; null with an exception set when memory is out.
template <class T>
T* make(PyTypeObject* type) {
  PyObject* object = type->tp_alloc(type, 0);
  if (!object) return nullptr;
  const PyObject head = *object;
  T* made = new (object) T();
  *reinterpret_cast<PyObject*>(made) = head;  // the constructor knows nothing of it
  return made;
}

namespace heap_type {

struct Nothing {
  void operator()(const auto&) const {}
};

template <class T>
concept Collected = requires(T& object) { object.each(Nothing()); };
template <class T>
concept Called = requires(T& object) { object.vectorcall; };
template <class T>
concept WeaklyReferred = requires(T& object) { object.weak_references; };

inline PyObject* target_of(PyObject* borrowed) { return borrowed; }
template <class T>
PyObject* target_of(const Owned<T>& held) {
  return reinterpret_cast<PyObject*>(held.get());
}

template <class T>
int traverse(PyObject* object, visitproc visit, void* arg) {
  int result = visit(reinterpret_cast<PyObject*>(Py_TYPE(object)), arg);
  const auto follow = [&](const auto& reference) {
    PyObject* target = target_of(reference);
    if (!result && target) result = visit(target, arg);
  };
  as<T>(object)->each(follow);
  if constexpr (requires { as<T>(object)->each_kept(follow); }) as<T>(object)->each_kept(follow);
  return result;
}

template <class T>
int clear(PyObject* object) {
  as<T>(object)->each([](auto& reference) { reference.clear(); });
  if constexpr (requires { as<T>(object)->clear(); }) as<T>(object)->clear();
  return 0;
}

template <class T>
void dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if constexpr (Collected<T>) PyObject_GC_UnTrack(object);
  if constexpr (WeaklyReferred<T>)
    if (as<T>(object)->weak_references) PyObject_ClearWeakRefs(object);
  if constexpr (Collected<T>) clear<T>(object);
  as<T>(object)->~T();
  type->tp_free(object);
  Py_DECREF(type);  // an instance of a heap type owns a reference to its type
}

}  // namespace heap_type

template <class Function>
PyType_Slot slot(int number, Function* function) {
  return {number, reinterpret_cast<void*>(function)};
}

inline PyType_Slot doc(const char* words) { return {Py_tp_doc, const_cast<char*>(words)}; }

// Makes the type of T, with slots and members of its own besides, and adds it to the module under this name.
template <class T>
bool add_type(PyObject* module, const char* name, PyTypeObject*& place, std::vector<PyType_Slot> slots,
              std::vector<PyMemberDef> members = {}, unsigned flags = 0) {
  using namespace heap_type;
  flags |= Py_TPFLAGS_DEFAULT;
  slots.push_back(slot(Py_tp_dealloc, dealloc<T>));
  if constexpr (Collected<T>) {
    flags |= Py_TPFLAGS_HAVE_GC;
    slots.insert(slots.end(), {slot(Py_tp_traverse, traverse<T>), slot(Py_tp_clear, clear<T>)});
  }
  if constexpr (Called<T>) {
    flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    slots.push_back(slot(Py_tp_call, PyVectorcall_Call));
    members.push_back({"__vectorcalloffset__", T_PYSSIZET, offsetof(T, vectorcall), READONLY, nullptr});
  }
  if constexpr (WeaklyReferred<T>)
    members.push_back({"__weaklistoffset__", T_PYSSIZET, offsetof(T, weak_references), READONLY, nullptr});
  members.push_back({});
  slots.insert(slots.end(), {{Py_tp_members, members.data()}, {0, nullptr}});  // the type copies its members
  PyType_Spec spec{name, sizeof(T), 0, flags, slots.data()};
  place = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return place && PyModule_AddType(module, place) == 0;
}

// PyArg_ParseTupleAndKeywords with the names where they are used.
template <class... Places>
bool parse(PyObject* arguments, PyObject* keywords, const char* format, std::initializer_list<const char*> names,
           Places... places) {
  std::vector<const char*> list(names);
  list.push_back(nullptr);
  return PyArg_ParseTupleAndKeywords(arguments, keywords, format, const_cast<char**>(list.data()), places...);
}

}  // namespace stoker
