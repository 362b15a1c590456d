#include "guard_program.h"

#include "guard_walk.h"
#include "tensor_check.h"

#include <algorithm>
#include <cstring>

namespace stoker {

namespace {

PyObject* look_up_item(Node& node, PyObject* dict, uint64_t tag) {
  PyObject* value = _PyDict_GetItem_KnownHash(dict, node.argument, node.number);
  // Comparing keys may have run Python code that changed the dictionary.
  if (value && tag == compat::dict_tag(dict)) {
    node.tag = tag;
    node.value = value;
  }
  return value;
}

// A dictionary item, looked up only if the dictionary has changed.
inline PyObject* remembered_item(Node& node, PyObject* dict) {
  const uint64_t tag = compat::dict_tag(dict);
  return tag && tag == node.tag ? node.value : look_up_item(node, dict, tag);
}

PyObject* fetch_global(Node& node, PyFunctionObject* function) {
  if (PyObject* value = remembered_item(node, function->func_globals)) return value;
  if (PyErr_Occurred() || !PyDict_Check(function->func_builtins)) return nullptr;
  return _PyDict_GetItem_KnownHash(function->func_builtins, node.argument, node.number);
}

PyObject* fetch_dict_key(Node& node, PyObject* dict, Ref& owned) {
  if (!PyDict_Check(dict)) return nullptr;
  // A subclass may have an order of its own (OrderedDict does) that the tag knows nothing of.
  if (!PyDict_CheckExact(dict)) {
    Ref iterator = Ref::steal(PyObject_GetIter(dict));
    for (Py_ssize_t i = 0; iterator && i <= node.number; ++i) {
      owned = Ref::steal(PyIter_Next(iterator.get()));
      if (!owned) return nullptr;
    }
    return owned.get();
  }
  const uint64_t tag = compat::dict_tag(dict);
  if (tag && tag == node.tag) return node.value;
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  for (Py_ssize_t i = 0; i <= node.number; ++i)
    if (!PyDict_Next(dict, &position, &key, nullptr)) return nullptr;
  node.tag = tag;
  node.value = key;
  return key;
}

PyObject* closure_cell(PyObject* function, Py_ssize_t index) {
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  if (!closure || index < 0 || index >= PyTuple_GET_SIZE(closure)) return nullptr;
  return PyTuple_GET_ITEM(closure, index);
}

PyObject* cell_contents(PyObject* cell) { return cell && PyCell_Check(cell) ? PyCell_GET(cell) : nullptr; }

// What a list or tuple holds, also one of a subclass with a __getitem__ of its own.
PyObject* element(PyObject* sequence, PyObject* number) {
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(sequence);
  Py_ssize_t index = PyLong_Check(number) ? PyLong_AsSsize_t(number) : size;
  if (index < 0) index += size;
  return 0 <= index && index < size ? PySequence_Fast_GET_ITEM(sequence, index) : nullptr;
}

PyObject* keep(Ref& owned, PyObject* fresh) {
  owned = Ref::steal(fresh);
  return fresh;
}

// What a function answers; one in a tuple with slots takes their objects, too.
PyObject* ask(PyObject* question, PyObject* object, const Context& context) {
  const bool together = PyTuple_Check(question);
  std::vector<PyObject*> given{object};
  for (Py_ssize_t i = 1; together && i < PyTuple_GET_SIZE(question); ++i)
    given.push_back(context.fetched[PyLong_AsSsize_t(PyTuple_GET_ITEM(question, i))]);
  if (!given.back()) return nullptr;
  return PyObject_Vectorcall(together ? PyTuple_GET_ITEM(question, 0) : question, given.data(), given.size(), nullptr);
}

// The object of a node; null (with or without an exception) if it cannot be reached. `owned` receives a reference where the
// object is new.
PyObject* fetch(Node& node, PyObject* parent, const Context& context, Ref& owned) {
  const Py_ssize_t index = node.number;
  switch (node.accessor) {
    case Accessor::LOCAL:
      return index < context.count ? context.bound[index] : nullptr;
    case Accessor::GLOBALS:
      return context.function->func_globals;
    case Accessor::GLOBAL:
      return fetch_global(node, context.function);
    case Accessor::CLOSURE:
      return cell_contents(closure_cell(reinterpret_cast<PyObject*>(context.function), index));
    case Accessor::CONST:
      return node.argument;
    case Accessor::ATTR:
      return keep(owned, PyObject_GetAttr(parent, node.argument));
    case Accessor::DICT:
      return compat::instance_dict(parent);
    case Accessor::DICT_ITEM:
      return PyDict_Check(parent) ? remembered_item(node, parent) : nullptr;
    case Accessor::LIST_ITEM:
      return PyList_Check(parent) && index < PyList_GET_SIZE(parent) ? PyList_GET_ITEM(parent, index) : nullptr;
    case Accessor::TUPLE_ITEM:
      return PyTuple_Check(parent) && index < PyTuple_GET_SIZE(parent) ? PyTuple_GET_ITEM(parent, index) : nullptr;
    case Accessor::ITEM:
      return PyList_Check(parent) || PyTuple_Check(parent) ? element(parent, node.argument)
                                                           : keep(owned, PyObject_GetItem(parent, node.argument));
    case Accessor::TYPE:
      return reinterpret_cast<PyObject*>(Py_TYPE(parent));
    case Accessor::CELL:
      return cell_contents(parent);
    case Accessor::FUNC_CODE:
      return PyFunction_Check(parent) ? PyFunction_GET_CODE(parent) : nullptr;
    case Accessor::FUNC_DEFAULTS:
      if (!PyFunction_Check(parent)) return nullptr;
      return PyFunction_GET_DEFAULTS(parent) ? PyFunction_GET_DEFAULTS(parent) : Py_None;
    case Accessor::FUNC_KWDEFAULTS:
      if (!PyFunction_Check(parent)) return nullptr;
      return PyFunction_GET_KW_DEFAULTS(parent) ? PyFunction_GET_KW_DEFAULTS(parent) : Py_None;
    case Accessor::FUNC_CLOSURE:
      return PyFunction_Check(parent) ? closure_cell(parent, index) : nullptr;
    case Accessor::FUNC_GLOBALS:
      return PyFunction_Check(parent) ? PyFunction_GET_GLOBALS(parent) : nullptr;
    case Accessor::METHOD_SELF:
      return PyMethod_Check(parent) ? PyMethod_GET_SELF(parent) : nullptr;
    case Accessor::METHOD_FUNC:
      return PyMethod_Check(parent) ? PyMethod_GET_FUNCTION(parent) : nullptr;
    case Accessor::WEAKREF: {
      if (!PyWeakref_Check(parent)) return nullptr;
      PyObject* target = compat::weakref_target_borrowed(parent);
      return target == Py_None ? nullptr : target;
    }
    case Accessor::DICT_KEY:
      return fetch_dict_key(node, parent, owned);
    case Accessor::SIZE: {
      int64_t number;
      return tensor_number(parent, index, &number) ? keep(owned, PyLong_FromLongLong(number)) : nullptr;
    }
    case Accessor::SLOT: {
      descrgetfunc get = Py_TYPE(node.argument)->tp_descr_get;
      return keep(owned, get(node.argument, parent, reinterpret_cast<PyObject*>(Py_TYPE(parent))));
    }
    case Accessor::ASKED:
      return keep(owned, ask(node.argument, parent, context));
  }
  Py_UNREACHABLE();
}

bool same_constant(PyObject* a, PyObject* b);

// Both give the same constants in the same order.
bool same_order(PyObject* iterator, PyObject* other) {
  while (true) {
    Ref left = Ref::steal(PyIter_Next(iterator)), right = Ref::steal(PyIter_Next(other));
    if (!left || !right) return !left && !right && !PyErr_Occurred();
    if (!same_constant(left.get(), right.get())) return false;
  }
}

// Sets are equal whatever their elements' types and order; a program may tell them apart by both.
bool has_elements(PyObject* set, PyObject* elements) {
  if (!PyAnySet_Check(set) || PySet_GET_SIZE(set) != PyObject_Size(elements)) return false;
  Ref mine = Ref::steal(PySet_Type.tp_iter(set)), theirs = Ref::steal(PyObject_GetIter(elements));
  return mine && theirs && same_order(mine.get(), theirs.get());
}

bool same_field(PyObject* a, PyObject* b, const char* name) {
  Ref left = Ref::steal(PyObject_GetAttrString(a, name)), right = Ref::steal(PyObject_GetAttrString(b, name));
  return left && right && same_constant(left.get(), right.get());
}

// Equal as constants: same type and value all the way down. So 1, 1.0 and True differ, as do 0.0 and -0.0; nan equals itself.
bool same_constant(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b) || type == &PyBool_Type) return false;
  if (type == &PyFloat_Type) {
    const double left = PyFloat_AS_DOUBLE(a), right = PyFloat_AS_DOUBLE(b);
    return !std::memcmp(&left, &right, sizeof left);
  }
  if (type == &PyComplex_Type) {
    Py_complex left = PyComplex_AsCComplex(a), right = PyComplex_AsCComplex(b);
    return !std::memcmp(&left, &right, sizeof left);
  }
  if (type == &PyTuple_Type) {
    const Py_ssize_t size = PyTuple_GET_SIZE(a);
    if (size != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < size; ++i)
      if (!same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
    return true;
  }
  if (type == &PyFrozenSet_Type) return has_elements(a, b);
  if (type == &PyRange_Type || type == &PySlice_Type)
    return same_field(a, b, "start") && same_field(a, b, "stop") && same_field(a, b, "step");
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

bool has_length(PyObject* object, Py_ssize_t length, const Context& context) {
  // Of subclasses, what they hold: a __len__ of their own is called by the program, not by its guards.
  if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object) == length;
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object) == length;
  return context.may_run_python() && PyObject_Size(object) == length;
}

// Of subclasses, the keys that they hold: an __iter__ of their own would run the program, and may come back here.
bool has_keys(PyObject* dict, PyObject* keys) {
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  const PyTypeObject& type = PyODict_Check(dict) ? PyODict_Type : PyDict_Type;
  Ref mine = Ref::steal(type.tp_iter(dict)), theirs = Ref::steal(PyObject_GetIter(keys));
  return mine && theirs && same_order(mine.get(), theirs.get());
}

// 1, 0, or -1 when it is no dictionary or a key's comparison raised.
int contains(PyObject* dict, const Check& check) {
  if (!PyDict_Check(dict)) return -1;
  if (_PyDict_GetItem_KnownHash(dict, check.argument, check.low)) return 1;
  return PyErr_Occurred() ? -1 : 0;
}

bool is_expected(const Check& check, PyObject* object) {
  return object == check.expected && !(check.reference && compat::weakref_is_dead(check.reference));
}

// A class attribute, or the order of classes in which attributes are looked up (a borrowed reference).
PyObject* type_attribute(PyTypeObject* type, PyObject* name) {
  if (PyUnicode_CompareWithASCIIString(name, "__mro__") == 0) return type->tp_mro;
  PyObject* found = _PyType_Lookup(type, name);
  return found ? found : missing;
}

bool has_attributes(Check& check) {
  auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(check.argument, 0));
  const unsigned tag = compat::type_tag(type);
  if (tag && tag == check.tag) return true;
  PyObject* pairs = PyTuple_GET_ITEM(check.argument, 1);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); ++i) {
    PyObject* pair = PyTuple_GET_ITEM(pairs, i);
    if (type_attribute(type, PyTuple_GET_ITEM(pair, 0)) != PyTuple_GET_ITEM(pair, 1)) return false;
  }
  check.tag = compat::type_tag(type);  // looking up gave the type a tag if it had none
  return true;
}

bool in_range(const Check& check, PyObject* object) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  return !overflow && check.low <= value && value <= check.high;
}

bool differs_from_slots(const Check& check, PyObject* object, const Context& context) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(check.argument); ++i)
    if (context.fetched[PyLong_AsSsize_t(PyTuple_GET_ITEM(check.argument, i))] == object) return false;
  return true;
}

bool asks_python(const Check& check, PyObject* object, const Context& context) {
  Ref answer = Ref::steal(ask(check.argument, object, context));
  return answer && PyObject_IsTrue(answer.get()) == 1;
}

bool holds_on_contents(const Check& check, PyObject* dict, const Context& context) {
  switch (check.kind) {
    case CheckKind::LENGTH:
      return has_length(dict, check.low, context);
    case CheckKind::DICT_KEYS:
      return has_keys(dict, check.argument);
    case CheckKind::HAS_KEY:
      return contains(dict, check) == 1;
    default:
      return contains(dict, check) == 0;
  }
}

// A check on what a dictionary contains: what held under a tag still holds under it.
bool holds_on_container(Check& check, PyObject* object, const Context& context) {
  if (!PyDict_CheckExact(object)) return holds_on_contents(check, object, context);
  const uint64_t tag = compat::dict_tag(object);
  if (tag && tag == check.tag) return true;
  if (!holds_on_contents(check, object, context)) return false;
  if (tag == compat::dict_tag(object)) check.tag = tag;
  return true;
}

}  // namespace

bool holds(Check& check, PyObject* object, const Context& context) {
  switch (check.kind) {
    case CheckKind::TYPE_IS:
      return reinterpret_cast<PyObject*>(Py_TYPE(object)) == check.argument;
    case CheckKind::IS:
      return is_expected(check, object);
    case CheckKind::IS_NOT:
      return !is_expected(check, object);
    case CheckKind::EQUALS:
      return same_constant(object, check.argument);
    case CheckKind::SET_ELEMENTS:
      return has_elements(object, check.argument);
    case CheckKind::LENGTH:
    case CheckKind::DICT_KEYS:
    case CheckKind::HAS_KEY:
    case CheckKind::LACKS_KEY:
      return holds_on_container(check, object, context);
    case CheckKind::TENSOR:
      return tensor_matches(check.argument, object);
    case CheckKind::SAME_AS:
      return context.fetched[check.low] == object;
    case CheckKind::NOT_SAME_AS:
      return differs_from_slots(check, object, context);
    case CheckKind::CODE_IS:
      return PyFunction_Check(object) && PyFunction_GET_CODE(object) == check.argument;
    case CheckKind::TYPE_ATTRS:
      return has_attributes(check);
    case CheckKind::RANGE:
      return in_range(check, object);
    case CheckKind::PYTHON:
      return asks_python(check, object, context);
  }
  Py_UNREACHABLE();
}

namespace {

int visit_children(GuardProgram* program, const Node& node, PyObject* object, const Context& context);

// The checks on a node's object, and its subtree.
inline int check_object(GuardProgram* program, const Node& node, PyObject* object, const Context& context) {
  if (node.slot >= 0) context.fetched[node.slot] = Py_NewRef(object);
  for (uint32_t i = node.first_check; i < node.end_check; ++i) {
    Check& check = program->checks[i];
    if (!holds(check, object, context)) return check.guard;
  }
  return is_leaf(node) ? GUARDS_HOLD : visit_children(program, node, object, context);
}

}  // namespace

int visit_node(GuardProgram* program, Node& node, PyObject* parent, const Context& context) {
  Ref owned;
  PyObject* object = fetch(node, parent, context, owned);
  if (!object) return node.first_guard;
  if ((node.hold || context.holds_all) && !owned) owned = Ref::share(object);
  int failed = check_object(program, node, object, context);
  if (failed != GUARDS_HOLD && node.settled) node.tag = 0;  // what is remembered of a settled node has also passed
  return failed;
}

namespace {

// The object of a node that needs no look-up and no reference; null if it is not that easy. These two accessors lead
// through a tree of modules.
inline PyObject* fetch_at_once(const Node& node, PyObject* parent) {
  if (node.accessor == Accessor::DICT_ITEM && PyDict_Check(parent)) {
    const uint64_t tag = compat::dict_tag(parent);
    return tag && tag == node.tag ? node.value : nullptr;
  }
  return node.accessor == Accessor::DICT ? compat::present_instance_dict(parent) : nullptr;
}

int visit_children(GuardProgram* program, const Node& node, PyObject* object, const Context& context) {
  const Node* const end = &node + node.length;
  for (Node* child = const_cast<Node*>(&node) + 1; child < end; child += child->length) {
    PyObject* easy = child->hold || context.holds_all ? nullptr : fetch_at_once(*child, object);
    if (easy && child->settled) continue;
    int failed = easy ? check_object(program, *child, easy, context) : visit_node(program, *child, object, context);
    if (failed != GUARDS_HOLD) return failed;
  }
  return GUARDS_HOLD;
}

int walk(GuardProgram* program, const Context& context) {
  for (size_t root = 0; root < program->nodes.size(); root += program->nodes[root].length) {
    int failed = visit_node(program, program->nodes[root], nullptr, context);
    if (failed != GUARDS_HOLD) return failed;
  }
  return GUARDS_HOLD;
}

// Leaves no reference and no exception behind.
void give_up(GuardProgram* program, const Context& context) {
  for (Py_ssize_t i = 0; i < program->slot_count; ++i) Py_CLEAR(context.fetched[i]);
  if (PyErr_Occurred()) PyErr_Clear();
}

// Along the trail where there is one, else by walking.
int check_objects(GuardProgram* program, const Context& context) {
  if (std::shared_ptr<const Trail> trail = program->trails.find(context)) {
    int failed = program->trails.follow(program, trail, context);
    if (failed != STALE) {
      ++program->followed;
      return failed;
    }
    give_up(program, context);
  }
  int failed = walk(program, context);
  if (failed == GUARDS_HOLD) program->trails.record(program, context);
  return failed;
}

}  // namespace

int check_guards(GuardProgram* program, PyObject* const* bound, Py_ssize_t count, PyFunctionObject* function,
                 PyObject** fetched) {
  if (program->state && !torch_state_matches(program->state.get())) return program->state_guard;
  std::fill_n(fetched, program->slot_count, nullptr);
  const Context context{bound, count, function, fetched, program->holds_all};
  int failed = check_objects(program, context);
  if (failed == GUARDS_HOLD && program->shapes.holds(context.fetched, &failed)) return GUARDS_HOLD;
  give_up(program, context);
  if (!context.needs_hold) return failed;
  program->holds_all = true;
  return check_guards(program, bound, count, function, fetched);
}

}  // namespace stoker
