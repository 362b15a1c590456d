// The walk over a guard program's tree, as guard_program.cpp does it and guard_trail.cpp shortens it.
#pragma once

#include "guard_program.h"

namespace stoker {

struct Context {
  PyObject* const* bound;
  Py_ssize_t count;
  PyFunctionObject* function;
  PyObject** fetched;
  bool holds_all;
  mutable bool needs_hold = false;  // a check would have run Python code with objects that are only borrowed

  bool may_run_python() const {
    needs_hold = !holds_all;
    return holds_all;
  }
};

// Constants whose comparison runs no Python code, and whose value never changes.
bool is_plain_constant(PyObject* constant);
bool may_run_python(const Check& check);
bool may_run_python(const Node& node);

bool holds(Check& check, PyObject* object, const Context& context);
// GUARDS_HOLD, or the index of the guard that failed in the node's subtree. A root has no parent.
int visit_node(GuardProgram* program, Node& node, PyObject* parent, const Context& context);

}  // namespace stoker
