// From a call with bound arguments to its result: try the entries, else ask the compiler, and follow tail calls.
#pragma once

#include "code_cache.h"
#include "python_compat.h"


namespace stoker {

// The attribute of an exception that a compiled graph raised before it wrote to anything: stoker/autograd/runtime.py sets it too.
constexpr const char* UNTOUCHED = "_stoker_untouched";
// The mark of an error of an earlier call, which was found late: running this one again would hide it.
constexpr const char* LATE = "_stoker_late";
// The mark of an error of a plan that has written to an input: running the call again would write twice. stoker/graph/undo.py knows it too.
constexpr const char* WRITTEN = "_stoker_written";

// A call whose arguments Python's rules have already put into slots.
struct Call {
  Compiler* compiler;
  PyCodeObject* code;  // what runs: a frame keeps the code it began with, whatever becomes of function.__code__
  PyFunctionObject* function;
  PyObject* const* bound;
  Py_ssize_t count;
};

enum class Outcome {
  DONE,           // there is a result, or an exception
  ORIGINAL,       // the caller runs the original code, its callees looked up as before
  ORIGINAL_DEEP,  // the caller runs the original code with the hook off
};

// How many slots binding fills: positional, keyword-only, *args, **kwargs.
inline Py_ssize_t bound_count(PyCodeObject* code) {
  return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
         ((code->co_flags & CO_VARKEYWORDS) != 0);
}

// One round: the result may be a TailCall.
Outcome dispatch(const Call& call, Record* record, PyObject** result);

// Runs the resume functions that the result asks for, in a loop. Takes over the result; null stays null.
PyObject* follow_tail_calls(Compiler* compiler, PyObject* result);

// Calls the function's own code with this compiler active (null: hook off).
PyObject* call_original(Compiler* compiler, PyObject* callable, PyObject* const* arguments, size_t count,
                        PyObject* keyword_names);

// A few pointers on the stack, or many on the heap.
class ArgumentArray {
 public:
  explicit ArgumentArray(size_t size) : data_(size <= INLINE ? inline_ : new PyObject*[size]) {}
  ArgumentArray(const ArgumentArray&) = delete;
  ArgumentArray& operator=(const ArgumentArray&) = delete;
  ~ArgumentArray() {
    if (data_ != inline_) delete[] data_;
  }
  PyObject** get() { return data_; }

 private:
  static constexpr size_t INLINE = 24;
  PyObject** data_;
  PyObject* inline_[INLINE];
};

// What calling a Resume constant returns: run this function with these arguments in my place.
struct TailCall {
  PyObject_HEAD
  Ref function, arguments;  // the latter a tuple

  void each(const auto& visit) { visit(function), visit(arguments); }
};

extern PyTypeObject* tail_call_type;

bool add_resume_types(PyObject* module);

}  // namespace stoker
