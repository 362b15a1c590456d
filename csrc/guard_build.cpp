// Reading a guard program from its description in Python: nested tuples in, flat vectors out.

#include "guard_program.h"
#include "guard_walk.h"
#include "object_type.h"
#include "tensor_check.h"


namespace stoker {

PyTypeObject* guard_program_type;
PyObject* missing;

bool is_plain_constant(PyObject* constant) {
  PyTypeObject* type = Py_TYPE(constant);
  return constant == Py_None || type == &PyBool_Type || type == &PyLong_Type || type == &PyFloat_Type ||
         type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyComplex_Type;
}

bool may_run_python(const Check& check) {
  switch (check.kind) {
    case CheckKind::PYTHON:
      return true;
    case CheckKind::DICT_KEYS:
    case CheckKind::SET_ELEMENTS:
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(check.argument); ++i)
        if (!is_plain_constant(PyTuple_GET_ITEM(check.argument, i))) return true;
      return false;
    case CheckKind::EQUALS:
    case CheckKind::HAS_KEY:
    case CheckKind::LACKS_KEY:
      return !is_plain_constant(check.argument);
    case CheckKind::TENSOR:
      return tensor_spec_runs_python(check.argument);
    default:
      return false;
  }
}

bool may_run_python(const Node& node) {
  switch (node.accessor) {
    case Accessor::ATTR:
    case Accessor::ITEM:
    case Accessor::SLOT:
    case Accessor::SIZE:
    case Accessor::DICT_KEY:
    case Accessor::ASKED:
      return true;
    case Accessor::DICT_ITEM:
      return !is_plain_constant(node.argument);
    default:
      return false;
  }
}

namespace {

bool invalid(const char* message) {
  PyErr_SetString(PyExc_ValueError, message);
  return false;
}

// Whether the answer can change while the object stays the same one.
bool depends_on_identity_only(const Check& check) {
  return is_identity(check) || (check.kind == CheckKind::EQUALS && is_plain_constant(check.argument));
}

// Objects that outlive their guard anyway are held weakly, so that a guard keeps no user object alive.
bool read_identity(Check& check) {
  check.expected = check.argument;
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(check.argument))) return true;
  check.reference = PyWeakref_NewRef(check.argument, nullptr);
  if (!check.reference) return false;
  Py_CLEAR(check.argument);
  return true;
}

bool read_range(Check& check) {
  PyObject *low, *high;
  if (!PyArg_ParseTuple(check.argument, "OO;RANGE takes (low, high)", &low, &high)) return false;
  check.low = low == Py_None ? PY_SSIZE_T_MIN : PyLong_AsSsize_t(low);
  check.high = high == Py_None ? PY_SSIZE_T_MAX : PyLong_AsSsize_t(high);
  return !PyErr_Occurred();
}

bool read_type_attributes(const Check& check) {
  PyObject *type, *pairs;
  if (!PyArg_ParseTuple(check.argument, "O!O!;TYPE_ATTRS takes (type, pairs)", &PyType_Type, &type, &PyTuple_Type, &pairs))
    return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); ++i) {
    PyObject* pair = PyTuple_GET_ITEM(pairs, i);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(pair, 0)))
      return invalid("TYPE_ATTRS pairs are (name, object or MISSING)");
  }
  return true;
}

bool valid_slot(PyObject* number, Py_ssize_t slot_count) {
  const Py_ssize_t slot = PyLong_AsSsize_t(number);
  if (slot == -1 && PyErr_Occurred()) return false;
  return (slot >= 0 && slot < slot_count) || invalid("a check names a slot that does not exist");
}

bool read_argument(Check& check, Py_ssize_t slot_count) {
  PyObject* argument = check.argument;
  switch (check.kind) {
    case CheckKind::TYPE_IS:
      return PyType_Check(argument) || invalid("TYPE_IS takes a type");
    case CheckKind::IS:
    case CheckKind::IS_NOT:
      return read_identity(check);
    case CheckKind::EQUALS:
    case CheckKind::PYTHON:
      for (Py_ssize_t i = 1; check.kind == CheckKind::PYTHON && PyTuple_Check(argument) && i < PyTuple_GET_SIZE(argument); ++i)
        if (!valid_slot(PyTuple_GET_ITEM(argument, i), slot_count)) return false;
      return true;
    case CheckKind::LENGTH:
      check.low = PyLong_AsSsize_t(argument);
      return !PyErr_Occurred();
    case CheckKind::DICT_KEYS:
    case CheckKind::SET_ELEMENTS:
      return PyTuple_Check(argument) || invalid("DICT_KEYS and SET_ELEMENTS take a tuple");
    case CheckKind::HAS_KEY:
    case CheckKind::LACKS_KEY:
      check.low = PyObject_Hash(argument);
      return !PyErr_Occurred();
    case CheckKind::TENSOR:
      return is_tensor_spec(argument) || invalid("TENSOR takes a TensorSpec");
    case CheckKind::SAME_AS:
      if (!valid_slot(argument, slot_count)) return false;
      check.low = PyLong_AsSsize_t(argument);
      return true;
    case CheckKind::NOT_SAME_AS:
      if (!PyTuple_Check(argument)) return invalid("NOT_SAME_AS takes a tuple of slots");
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(argument); ++i)
        if (!valid_slot(PyTuple_GET_ITEM(argument, i), slot_count)) return false;
      return true;
    case CheckKind::CODE_IS:
      return PyCode_Check(argument) || invalid("CODE_IS takes a code object");
    case CheckKind::TYPE_ATTRS:
      return read_type_attributes(check);
    case CheckKind::RANGE:
      return read_range(check);
  }
  return invalid("unknown check");
}

bool read_argument(Node& node) {
  switch (node.accessor) {
    case Accessor::LOCAL:
    case Accessor::CLOSURE:
    case Accessor::LIST_ITEM:
    case Accessor::TUPLE_ITEM:
    case Accessor::FUNC_CLOSURE:
    case Accessor::DICT_KEY:
    case Accessor::SIZE:
      node.number = PyLong_AsSsize_t(node.argument);
      if (PyErr_Occurred()) return false;
      return node.number >= 0 || node.accessor == Accessor::SIZE || invalid("an accessor's index is negative");
    case Accessor::GLOBAL:
    case Accessor::DICT_ITEM:
      node.number = PyObject_Hash(node.argument);
      return !PyErr_Occurred();
    case Accessor::ATTR:
      return PyUnicode_Check(node.argument) || invalid("ATTR takes a name");
    case Accessor::SLOT:
      return Py_TYPE(node.argument)->tp_descr_get || invalid("SLOT takes a descriptor");
    case Accessor::ASKED:
      return PyCallable_Check(node.argument) || PyTuple_Check(node.argument) || invalid("ASKED takes a function");
    default:
      return true;
  }
}

bool read_check(GuardProgram* program, PyObject* description) {
  int kind, guard;
  PyObject* argument;
  if (!PyArg_ParseTuple(description, "iOi;a check is (kind, argument, guard_index)", &kind, &argument, &guard)) return false;
  if (kind < 0 || kind > static_cast<int>(CheckKind::PYTHON)) return invalid("unknown check");
  Check check{};
  check.kind = static_cast<CheckKind>(kind);
  check.guard = guard;
  check.argument = Py_NewRef(argument);
  program->checks.push_back(check);
  return read_argument(program->checks.back(), program->slot_count);
}

bool read_nodes(GuardProgram* program, PyObject* list, bool is_root, std::vector<bool>& filled);

bool read_node(GuardProgram* program, PyObject* description, bool is_root, std::vector<bool>& filled) {
  int accessor, slot;
  PyObject *argument, *checks, *children;
  if (!PyArg_ParseTuple(description, "iOOOi;a node is (accessor, argument, checks, children, slot)", &accessor, &argument,
                        &checks, &children, &slot))
    return false;
  if (accessor < 0 || accessor > static_cast<int>(Accessor::ASKED)) return invalid("unknown accessor");
  const bool starts = accessor <= static_cast<int>(Accessor::CONST);
  if (is_root && !starts) return invalid("a root is one of LOCAL, GLOBALS, GLOBAL, CLOSURE, CONST");
  if (slot >= program->slot_count || (slot >= 0 && filled[slot])) return invalid("a slot is out of range or filled twice");
  if (slot >= 0) filled[slot] = true;

  const size_t index = program->nodes.size();
  Node node{};
  node.accessor = static_cast<Accessor>(accessor);
  node.slot = slot;
  node.argument = Py_NewRef(argument);
  node.first_check = static_cast<uint32_t>(program->checks.size());
  program->nodes.push_back(node);
  if (!read_argument(program->nodes[index])) return false;

  Ref check_list = Ref::steal(PySequence_Fast(checks, "a node's checks are a list"));
  if (!check_list) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(check_list.get()); ++i)
    if (!read_check(program, PySequence_Fast_GET_ITEM(check_list.get(), i))) return false;
  program->nodes[index].end_check = static_cast<uint32_t>(program->checks.size());

  if (!read_nodes(program, children, false, filled)) return false;
  Node& made = program->nodes[index];
  made.length = static_cast<uint32_t>(program->nodes.size() - index);
  // Checks lie in preorder too: the first guard of the subtree is the first check from here on, if it has any.
  made.first_guard = made.first_check < program->checks.size() ? program->checks[made.first_check].guard : NO_GUARD;
  for (uint32_t i = made.first_check; i < made.end_check; ++i) made.hold |= may_run_python(program->checks[i]);
  made.settled = made.accessor == Accessor::DICT_ITEM && is_leaf(made) && made.slot < 0;
  for (uint32_t i = made.first_check; i < made.end_check; ++i)
    made.settled &= depends_on_identity_only(program->checks[i]);
  for (size_t i = index + 1; i < program->nodes.size(); ++i)
    made.hold |= program->nodes[i].hold || may_run_python(program->nodes[i]);
  return true;
}

bool read_nodes(GuardProgram* program, PyObject* list, bool is_root, std::vector<bool>& filled) {
  Ref nodes = Ref::steal(PySequence_Fast(list, "nodes are a list"));
  if (!nodes || Py_EnterRecursiveCall(" in a guard program")) return false;
  bool read = true;
  for (Py_ssize_t i = 0; read && i < PySequence_Fast_GET_SIZE(nodes.get()); ++i)
    read = read_node(program, PySequence_Fast_GET_ITEM(nodes.get(), i), is_root, filled);
  Py_LeaveRecursiveCall();
  return read;
}

bool read_state(GuardProgram* program, PyObject* description) {
  PyObject* state;
  if (!PyArg_ParseTuple(description, "Oi;state is (TorchState, guard_index)", &state, &program->state_guard)) return false;
  if (!is_torch_state(state)) return invalid("state is (TorchState, guard_index)");
  program->state = Ref::share(state);
  return true;
}

bool read_program(GuardProgram* program, PyObject* roots, PyObject* shapes, PyObject* state) {
  if (program->slot_count < 0) return invalid("slot_count is negative");
  std::vector<bool> filled(program->slot_count);
  if (!read_nodes(program, roots, true, filled)) return false;
  for (bool slot : filled)
    if (!slot) return invalid("no node fills one of the slots");
  if (shapes != Py_None && !program->shapes.build(shapes, program->slot_count)) return false;
  if (state != Py_None && !read_state(program, state)) return false;
  program->size = static_cast<Py_ssize_t>(program->checks.size() + program->shapes.size()) + static_cast<bool>(program->state);
  return true;
}

PyObject* program_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  PyObject *roots, *shapes = Py_None, *state = Py_None;
  Py_ssize_t slot_count;
  if (!parse(arguments, keywords, "On|OO:GuardProgram", {"roots", "slot_count", "shapes", "state"}, &roots, &slot_count,
             &shapes, &state))
    return nullptr;
  auto made = Owned<GuardProgram>::steal(make<GuardProgram>(type));
  if (!made) return nullptr;
  made->slot_count = slot_count;
  if (!read_program(made.get(), roots, shapes, state)) return nullptr;
  return reinterpret_cast<PyObject*>(made.release());
}

PyObject* program_check(PyObject* object, PyObject* arguments) {
  auto* self = as<GuardProgram>(object);
  PyObject *bound, *function;
  if (!PyArg_ParseTuple(arguments, "OO!:check", &bound, &PyFunction_Type, &function)) return nullptr;
  Ref slots = Ref::steal(PySequence_Tuple(bound));
  if (!slots) return nullptr;
  std::vector<PyObject*> fetched(self->slot_count + 1);
  int failed = check_guards(self, &PyTuple_GET_ITEM(slots.get(), 0), PyTuple_GET_SIZE(slots.get()),
                            reinterpret_cast<PyFunctionObject*>(function), fetched.data());
  if (failed != GUARDS_HOLD) return PyLong_FromLong(failed);
  Ref result = Ref::steal(PyTuple_New(self->slot_count));
  for (Py_ssize_t i = 0; i < self->slot_count; ++i) {
    if (result)
      PyTuple_SET_ITEM(result.get(), i, fetched[i]);
    else
      Py_DECREF(fetched[i]);
  }
  return result.release();
}

PyMethodDef program_methods[] = {
    {"check", program_check, METH_VARARGS, "check(bound, function): the fetched objects, or the index of the failed guard"},
    {},
};

bool add_numbers(PyObject* module, const char* name, std::initializer_list<const char*> words) {
  Ref numbers = Ref::steal(PyDict_New());
  if (!numbers) return false;
  long number = 0;
  for (const char* word : words) {
    Ref value = Ref::steal(PyLong_FromLong(number++));
    if (!value || PyDict_SetItemString(numbers.get(), word, value.get()) < 0) return false;
  }
  return PyModule_AddObjectRef(module, name, numbers.get()) == 0;
}

}  // namespace

void GuardProgram::clear() {
  trails.clear();
  const std::vector<Node> old_nodes = std::move(nodes);
  const std::vector<Check> old_checks = std::move(checks);
  nodes.clear();
  checks.clear();
  for (const Node& node : old_nodes) Py_XDECREF(node.argument);
  for (const Check& check : old_checks) {
    Py_XDECREF(check.argument);
    if (is_identity(check)) Py_XDECREF(check.reference);
  }
}

bool add_guard_types(PyObject* module) {
#define STOKER_WORD(name) #name,
  if (!add_numbers(module, "ACCESSORS", {STOKER_ACCESSORS(STOKER_WORD)})) return false;
  if (!add_numbers(module, "CHECKS", {STOKER_CHECKS(STOKER_WORD)})) return false;
  if (!add_numbers(module, "SHAPE_OPS", {STOKER_SHAPE_OPS(STOKER_WORD)})) return false;
#undef STOKER_WORD
  missing = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return missing && PyModule_AddObjectRef(module, "MISSING", missing) == 0 &&
         add_type<GuardProgram>(
             module, "stoker._C.GuardProgram", guard_program_type,
             {doc("GuardProgram(roots, slot_count, shapes=None, state=None)\n\nThe guards of an entry."),
              slot(Py_tp_new, program_new), {Py_tp_methods, program_methods}},
             {{"slot_count", T_PYSSIZET, offsetof(GuardProgram, slot_count), READONLY, "how many objects it fetches"},
              {"size", T_PYSSIZET, offsetof(GuardProgram, size), READONLY, "how many guards it checks"},
              {"followed", T_PYSSIZET, offsetof(GuardProgram, followed), READONLY, "how many checks a trail has answered"},
              {"state", T_OBJECT, offsetof(GuardProgram, state), READONLY, "the global torch state it asks for"}});
}

}  // namespace stoker
