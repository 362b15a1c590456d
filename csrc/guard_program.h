// The guards of one entry as a program: a tree of objects to reach, and checks on each.
//
// In:  the bound slots of a call and its function.
// Out: GUARDS_HOLD and the fetched objects, or the index of the guard that failed.
//
// Requirements, held by tests/unit/csrc/test_guards.py:
//   1. A failed check leaves no exception and no reference behind.
//   2. No Python code runs, except where an accessor or a check says so (ATTR, ITEM, PYTHON, EQUALS of unusual types).
//   3. The only mutable state is what a node or a check remembers of a dictionary (its tag, and what was true under that
//      tag) and the trails of walks that passed (guard_trail.h). Each such pair is written at once, so that threads and
//      recursive runs may share a program.
//   4. Objects are borrowed from their parents, unless something below may run Python code: then they are held.
#pragma once

#include "guard_trail.h"
#include "python_compat.h"
#include "ref.h"
#include "shape_program.h"

#include <vector>

namespace stoker {

inline constexpr int GUARDS_HOLD = INT_MIN;
// Reported when an object cannot be reached and no guard lies in its subtree.
inline constexpr int NO_GUARD = -1;

#define STOKER_ACCESSORS(X)                                                                                      \
  X(LOCAL) X(GLOBALS) X(GLOBAL) X(CLOSURE) X(CONST) X(ATTR) X(DICT) X(DICT_ITEM) X(LIST_ITEM) X(TUPLE_ITEM) X(ITEM) \
  X(TYPE) X(CELL) X(FUNC_CODE) X(FUNC_DEFAULTS) X(FUNC_KWDEFAULTS) X(FUNC_CLOSURE) X(FUNC_GLOBALS) X(METHOD_SELF)  \
  X(METHOD_FUNC) X(WEAKREF) X(DICT_KEY) X(SIZE) X(SLOT) X(ASKED)

#define STOKER_CHECKS(X)                                                                                      \
  X(TYPE_IS) X(IS) X(IS_NOT) X(EQUALS) X(LENGTH) X(DICT_KEYS) X(HAS_KEY) X(LACKS_KEY) X(TENSOR) X(SAME_AS)     \
  X(NOT_SAME_AS) X(CODE_IS) X(TYPE_ATTRS) X(RANGE) X(SET_ELEMENTS) X(PYTHON)

#define STOKER_NAME(name) name,
enum class Accessor : uint8_t { STOKER_ACCESSORS(STOKER_NAME) };
enum class CheckKind : uint8_t { STOKER_CHECKS(STOKER_NAME) };
#undef STOKER_NAME

// Nodes lie in preorder: the children of a node begin right after it, `length` counts its subtree with itself.
struct alignas(64) Node {
  Accessor accessor;
  bool hold;     // something below may run Python code, so the object needs a reference of our own
  bool settled;  // its checks depend on which object it is and on nothing in it: they hold as long as it is the same one
  int slot;
  uint32_t length;
  uint32_t first_check, end_check;
  int first_guard;  // reported when the object cannot be reached
  PyObject* argument;
  Py_ssize_t number;  // the index, or the key's hash
  // Under this tag of the parent dictionary, this was the item.
  uint64_t tag;
  PyObject* value;
};

inline bool is_leaf(const Node& node) { return node.length == 1; }

struct Check {
  CheckKind kind;
  int guard;
  PyObject* argument;
  union {
    PyObject* expected;  // IS, IS_NOT: compared, never followed
    Py_ssize_t low;      // LENGTH: the length. SAME_AS: the slot. HAS_KEY, LACKS_KEY: the hash. RANGE: the least
  };
  union {
    PyObject* reference;  // IS, IS_NOT: weak, where the type allows it
    Py_ssize_t high;      // RANGE: the greatest
    uint64_t tag;         // others: the tag of the dictionary (TYPE_ATTRS: of the type) under which the check held
  };
};

inline bool is_identity(const Check& check) { return check.kind == CheckKind::IS || check.kind == CheckKind::IS_NOT; }

struct GuardProgram {
  PyObject_HEAD
  Py_ssize_t slot_count;
  Ref state;  // TorchState or null
  int state_guard;
  Py_ssize_t size;
  Py_ssize_t followed;  // how many checks a trail has answered
  bool holds_all;  // a check met a type whose length or order only Python code can tell: each node holds its object
  std::vector<Node> nodes;
  std::vector<Check> checks;
  ShapeProgram shapes;
  Trails trails;

  ~GuardProgram() { clear(); }
  void each(const auto& visit) { visit(state); }
  void each_kept(const auto& visit) {
    for (Node& node : nodes) visit(node.argument);
    for (Check& check : checks) {
      visit(check.argument);
      if (is_identity(check)) visit(check.reference);
    }
  }
  void clear();
};

extern PyTypeObject* guard_program_type;
extern PyObject* missing;

// On GUARDS_HOLD, `fetched` holds slot_count owned references; otherwise nothing.
int check_guards(GuardProgram* program, PyObject* const* bound, Py_ssize_t count, PyFunctionObject* function,
                 PyObject** fetched);

bool add_guard_types(PyObject* module);

}  // namespace stoker
