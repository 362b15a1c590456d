// Ref: the one owner of a reference to a Python object. Owned<T>: the same, to an object of a known struct.
#pragma once

#include <Python.h>

#include <utility>

namespace stoker {

template <class T>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned(const Owned& other) : object_(share(other.object_).release()) {}
  Owned& operator=(Owned other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }

  // Takes over a reference that the caller owns (a "new reference" of the C API).
  static Owned steal(T* object) {
    Owned made;
    made.object_ = object;
    return made;
  }
  // Adds a reference of its own to a borrowed one.
  static Owned share(T* object) {
    Py_XINCREF(object);
    return steal(object);
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T* release() { return std::exchange(object_, nullptr); }
  void clear() { Py_CLEAR(object_); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

using Ref = Owned<PyObject>;
static_assert(sizeof(Ref) == sizeof(PyObject*), "types show members that are Refs as objects");

}  // namespace stoker
