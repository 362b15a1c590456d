// Python's rules for putting the arguments of a call into the slots of its frame.
#pragma once

#include "dispatch.h"

namespace stoker {

// The bound slots of a call; references are owned, except when the arguments already lie as the slots would.
class BoundArguments {
 public:
  BoundArguments(PyFunctionObject* function, PyObject* const* arguments, Py_ssize_t count, PyObject* keyword_names);
  BoundArguments(const BoundArguments&) = delete;
  BoundArguments& operator=(const BoundArguments&) = delete;
  ~BoundArguments();

  // False: Python would raise TypeError. Calling the function tells the user why.
  bool valid() const { return slots_ != nullptr; }
  PyObject* const* slots() const { return slots_; }

 private:
  bool bind(PyFunctionObject* function, PyObject* const* arguments, Py_ssize_t count, PyObject* keyword_names);
  bool bind_keywords(PyCodeObject* code, PyObject* const* values, PyObject* keyword_names, PyObject* extra);
  bool fill_defaults(PyFunctionObject* function);

  PyObject* const* slots_ = nullptr;
  Py_ssize_t owned_count_ = 0;
  ArgumentArray storage_;
};

}  // namespace stoker
