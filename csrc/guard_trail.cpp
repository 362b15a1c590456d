#include "guard_trail.h"

#include "guard_walk.h"
#include "tensor_check.h"

#include <structmember.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace stoker {

namespace {

constexpr uint32_t NO_OWNER = UINT32_MAX;
constexpr uint8_t CHANGES_LIMIT = 3;   // a word that was stale this often in a row is no longer relied on
constexpr uint32_t SETTLED_HITS = 8;   // a trail that was followed this often ends a row
constexpr uint32_t PATIENCE = 80;      // so many trails are recorded in vain before it is tried less often
constexpr size_t TRAILS_LIMIT = 64;
constexpr size_t SPECS_LIMIT = 16;

template <typename Field>
const uintptr_t* place_of(Field* const& field) {
  return reinterpret_cast<const uintptr_t*>(&field);
}
const uintptr_t* place_of(const Py_ssize_t& field) { return reinterpret_cast<const uintptr_t*>(&field); }

const uintptr_t* type_place(PyObject* object) { return place_of(object->ob_type); }
const uintptr_t* size_place(PyObject* object) { return place_of(reinterpret_cast<PyVarObject*>(object)->ob_size); }

// An instance of such a type keeps its class. Modules may change theirs although their type is static.
bool is_fixed(PyTypeObject* type) {
  return PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE) && !PyType_IsSubtype(type, &PyModule_Type);
}

bool has_plain_length(PyObject* dict) {
  return is_fixed(Py_TYPE(dict)) && Py_TYPE(dict)->tp_as_mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length;
}

bool is_about_contents(const Check& check) {
  return check.kind == CheckKind::DICT_KEYS || check.kind == CheckKind::HAS_KEY || check.kind == CheckKind::LACKS_KEY;
}

bool finds_without_python(PyObject* dict, PyObject* key) {
  return PyUnicode_CheckExact(key) && compat::dict_has_text_keys(dict);
}

// An object on the way from its parent: how it is known, and the words that lead to it.
struct Reached {
  PyObject* object = nullptr;
  bool same = false;
  bool is_instance_dict = false;
  bool by_look_up = false;
  std::vector<Trail::Word> words;

  bool at(PyObject* found, bool is_same) {
    object = found;
    same = is_same;
    return found != nullptr;
  }
  void word(const uintptr_t* place) { words.push_back({place, *place}); }
};

// What is known of a parent: see the header. Frozen: a dictionary whose tag is on the trail.
struct Facts {
  bool same, frozen;
};

class Recorder {
 public:
  Recorder(GuardProgram* program, const Context& context, const std::vector<uint8_t>& changes)
      : program_(program), context_(context), changes_(changes), slots_(program->slot_count) {}

  // Null if a guard does not hold: Python code in the walk changed what the walk had passed already.
  std::shared_ptr<const Trail> record() {
    for (size_t root = 0; root < program_->nodes.size(); root += program_->nodes[root].length)
      record_root(program_->nodes[root]);
    if (!holds_) return nullptr;
    return std::make_shared<const Trail>(std::move(trail_));
  }

 private:
  void record_root(const Node& node) {
    if (node.accessor == Accessor::CONST) {
      pin(node, node.argument, true, false);
      return;
    }
    PyObject* object = is_module_like(node) && node.number < context_.count ? context_.bound[node.number] : nullptr;
    if (!object || !may_pin(node, object, false)) {
      visit(node, nullptr);
      return;
    }
    trail_.roots.push_back({node.number, object});
    pin(node, object, false, false);
  }

  bool is_module_like(const Node& node) const {
    if (node.accessor != Accessor::LOCAL) return false;
    for (const Node* child = &node + 1; child < &node + node.length; child += child->length)
      if (child->accessor == Accessor::DICT) return true;
    return false;
  }

  uint32_t index_of(const Node& node) const { return static_cast<uint32_t>(&node - program_->nodes.data()); }
  uint8_t changes(const Node& node) const { return changes_.empty() ? 0 : changes_[index_of(node)]; }

  void word(const Node& owner, const uintptr_t* place, uintptr_t expected) {
    if (!places_.insert(place).second) return;
    trail_.words.push_back({place, expected});
    trail_.owners.push_back(index_of(owner));
  }
  void word(const Node& owner, const uintptr_t* place) { word(owner, place, *place); }

  void visit(const Node& node, PyObject* parent) {
    trail_.steps.push_back({true, index_of(node), parent});
    trail_.runs_python |= node.hold || may_run_python(node);
  }

  void check_each_time(const Check& check, PyObject* object) {
    trail_.steps.push_back({false, static_cast<uint32_t>(&check - program_->checks.data()), object});
    trail_.runs_python |= may_run_python(check) || is_about_contents(check);
  }

  // Whether an object may be read at all: one at an address only where its type cannot have died.
  bool may_pin(const Node& node, PyObject* object, bool same) const {
    const uint8_t limit = PyDict_Check(object) ? 2 * CHANGES_LIMIT : CHANGES_LIMIT;
    if (changes(node) >= limit) return false;
    if (same || !PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE) || places_.count(type_place(object))) return true;
    for (uint32_t i = node.first_check; i < node.end_check; ++i) {
      const Check& check = program_->checks[i];
      if (check.kind == CheckKind::TYPE_IS && check.argument == reinterpret_cast<PyObject*>(Py_TYPE(object))) return true;
      if (check.kind == CheckKind::IS && check.expected == object) return true;
    }
    return false;
  }

  // An object at an address is the same one if the program holds it, or a weak reference of the program still knows it.
  bool prove_same(const Node& node, PyObject* object) {
    for (uint32_t i = node.first_check; i < node.end_check; ++i) {
      const Check& check = program_->checks[i];
      if (check.kind == CheckKind::EQUALS && check.argument == object) return true;
      if (check.kind != CheckKind::IS || check.expected != object) continue;
      if (check.reference)
        word(node, place_of(reinterpret_cast<PyWeakReference*>(check.reference)->wr_object),
             reinterpret_cast<uintptr_t>(object));
      return true;
    }
    return false;
  }

  bool wants_tag(const Node& node, PyObject* object) const {
    if (!PyDict_Check(object) || changes(node) >= CHANGES_LIMIT || !compat::dict_tag_place(object)) return false;
    return !is_leaf(node) || std::any_of(&program_->checks[0] + node.first_check, &program_->checks[0] + node.end_check,
                                         is_about_contents);
  }

  void pin(const Node& node, PyObject* object, bool same, bool is_instance_dict) {
    if (!holds_) return;
    if (node.slot >= 0) {
      trail_.stored.push_back({object, node.slot});
      slots_[node.slot] = object;
    }
    if (!same) same = prove_same(node, object);
    const bool frozen = wants_tag(node, object);
    if (!same && !(frozen && is_instance_dict)) word(node, type_place(object));
    if (frozen) word(node, compat::dict_tag_place(object));
    const Facts facts{same || frozen, frozen};
    for (uint32_t i = node.first_check; holds_ && i < node.end_check; ++i) {
      Check& check = program_->checks[i];
      if (!prove(node, check, object, facts)) check_each_time(check, object);
    }
    for (const Node* child = &node + 1; holds_ && child < &node + node.length; child += child->length)
      pin_child(*child, object, facts);
  }

  void pin_child(const Node& child, PyObject* parent, const Facts& facts) {
    Reached reached;
    if (!reach(child, parent, facts, reached) || !may_pin(child, reached.object, reached.same)) {
      visit(child, parent);
      return;
    }
    for (const Trail::Word& step : reached.words) word(child, step.place, step.expected);
    if (reached.by_look_up) trail_.items.push_back({trail_.words.size(), index_of(child), parent, reached.object});
    pin(child, reached.object, reached.same, reached.is_instance_dict);
  }

  // True if the check's answer follows from the words; then it has been asked here. False: it needs a step of its own.
  bool prove(const Node& node, Check& check, PyObject* object, const Facts& facts) {
    if (check.kind == CheckKind::TENSOR) {
      if (tensor_spec_runs_python(check.argument)) return false;
      trail_.tensors.push_back({object, shared_spec(check.argument)});
    } else if (check.kind == CheckKind::SAME_AS) {
      return slots_[check.low] == object;
    } else if (!follows(node, check, object, facts)) {
      return false;
    }
    holds_ = holds_ && holds(check, object, context_);
    return true;
  }

  // A model has few kinds of parameters: reading the same specs over and over saves memory traffic.
  PyObject* shared_spec(PyObject* spec) {
    for (PyObject* known : specs_)
      if (tensor_specs_equal(known, spec)) return known;
    if (specs_.size() < SPECS_LIMIT) specs_.push_back(spec);
    return spec;
  }

  bool follows(const Node& node, const Check& check, PyObject* object, const Facts& facts) {
    switch (check.kind) {
      case CheckKind::TYPE_IS:
        if (!facts.same || !is_fixed(Py_TYPE(object))) word(node, type_place(object));
        return true;
      case CheckKind::IS:
      case CheckKind::IS_NOT:
        return facts.same;
      case CheckKind::EQUALS:
        return facts.same && is_plain_constant(check.argument);
      case CheckKind::RANGE:
        return facts.same && PyLong_CheckExact(object);
      case CheckKind::LENGTH:
        return length_follows(node, object, facts);
      case CheckKind::DICT_KEYS:
        return facts.frozen && PyDict_CheckExact(object) && check.tag == compat::dict_tag(object);
      case CheckKind::HAS_KEY:
      case CheckKind::LACKS_KEY:
        return facts.frozen && finds_without_python(object, check.argument);
      case CheckKind::CODE_IS:
        if (!PyFunction_Check(object)) return false;
        word(node, place_of(reinterpret_cast<PyFunctionObject*>(object)->func_code));
        return true;
      default:
        return false;
    }
  }

  bool length_follows(const Node& node, PyObject* object, const Facts& facts) {
    if (PyTuple_CheckExact(object) && facts.same) return true;
    if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
      word(node, size_place(object));
      return true;
    }
    if (!PyDict_Check(object) || !has_plain_length(object)) return false;
    if (!facts.frozen) word(node, place_of(reinterpret_cast<PyDictObject*>(object)->ma_used));
    return true;
  }

  // How a child is reached without Python code; false: it must be visited.
  bool reach(const Node& child, PyObject* parent, const Facts& facts, Reached& to) {
    switch (child.accessor) {
      case Accessor::DICT:
        return reach_instance_dict(parent, to);
      case Accessor::DICT_ITEM:
        return PyDict_Check(parent) && reach_dict_item(child, parent, facts, to);
      case Accessor::TUPLE_ITEM:
      case Accessor::LIST_ITEM:
        return reach_element(child.accessor, child.number, parent, facts, to);
      case Accessor::ITEM:
        return reach_index(child, parent, facts, to);
      case Accessor::FUNC_CODE:
      case Accessor::FUNC_DEFAULTS:
      case Accessor::FUNC_CLOSURE:
      case Accessor::FUNC_GLOBALS:
        return PyFunction_Check(parent) && reach_in_function(child, parent, facts, to);
      case Accessor::CELL:
        if (!PyCell_Check(parent)) return false;
        to.word(place_of(reinterpret_cast<PyCellObject*>(parent)->ob_ref));
        return to.at(PyCell_GET(parent), false);
      case Accessor::SLOT:
        return reach_slot(child, parent, to);
      default:
        return false;
    }
  }

  static bool reach_instance_dict(PyObject* parent, Reached& to) {
    PyObject** place = compat::instance_dict_place(parent);
    PyObject* dict = place ? *place : nullptr;
    if (!dict || reinterpret_cast<uintptr_t>(dict) & 1 || !PyDict_Check(dict)) return false;
    to.word(place_of(*place));
    to.is_instance_dict = true;
    return to.at(dict, false);
  }

  static bool reach_dict_item(const Node& child, PyObject* dict, const Facts& facts, Reached& to) {
    if (facts.frozen && child.tag == compat::dict_tag(dict)) return to.at(child.value, true);
    if (!finds_without_python(dict, child.argument)) return false;
    PyObject* item = _PyDict_GetItem_KnownHash(dict, child.argument, child.number);
    if (facts.frozen) return to.at(item, true);
    to.by_look_up = true;
    return !is_leaf(child) && to.at(item, false);  // a leaf is visited as quickly
  }

  static bool reach_element(Accessor accessor, Py_ssize_t index, PyObject* parent, const Facts& facts, Reached& to) {
    const bool is_tuple = PyTuple_CheckExact(parent);
    if (accessor == Accessor::TUPLE_ITEM ? !is_tuple : !PyList_CheckExact(parent)) return false;
    if (index < 0 || index >= Py_SIZE(parent)) return false;
    if (is_tuple && facts.same) return to.at(PyTuple_GET_ITEM(parent, index), true);
    to.word(size_place(parent));
    if (!is_tuple) to.word(place_of(reinterpret_cast<PyListObject*>(parent)->ob_item));
    PyObject*& element = is_tuple ? reinterpret_cast<PyTupleObject*>(parent)->ob_item[index]
                                  : reinterpret_cast<PyListObject*>(parent)->ob_item[index];
    to.word(place_of(element));
    return to.at(element, false);
  }

  static bool reach_index(const Node& child, PyObject* parent, const Facts& facts, Reached& to) {
    if (!PyLong_CheckExact(child.argument)) return false;
    int overflow;
    const long index = PyLong_AsLongAndOverflow(child.argument, &overflow);
    if (overflow) return false;
    return reach_element(PyTuple_CheckExact(parent) ? Accessor::TUPLE_ITEM : Accessor::LIST_ITEM, index, parent, facts, to);
  }

  static bool reach_in_function(const Node& child, PyObject* parent, const Facts& facts, Reached& to) {
    auto* function = reinterpret_cast<PyFunctionObject*>(parent);
    switch (child.accessor) {
      case Accessor::FUNC_CODE:
        to.word(place_of(function->func_code));
        return to.at(function->func_code, false);
      case Accessor::FUNC_DEFAULTS:
        to.word(place_of(function->func_defaults));
        return function->func_defaults ? to.at(function->func_defaults, false) : to.at(Py_None, true);
      case Accessor::FUNC_GLOBALS:  // a function keeps its globals
        if (!facts.same) to.word(place_of(function->func_globals));
        return to.at(function->func_globals, facts.same);
      default:  // and its closure
        if (!function->func_closure) return false;
        if (!facts.same) to.word(place_of(function->func_closure));
        return reach_element(Accessor::TUPLE_ITEM, child.number, function->func_closure, facts, to);
    }
  }

  static bool reach_slot(const Node& child, PyObject* parent, Reached& to) {
    if (Py_TYPE(child.argument) != &PyMemberDescr_Type) return false;
    auto* descriptor = reinterpret_cast<PyMemberDescrObject*>(child.argument);
    const PyMemberDef* member = descriptor->d_member;
    // The descriptor holds the type, and the type tells the place.
    if (descriptor->d_common.d_type != Py_TYPE(parent) || member->type != T_OBJECT_EX || member->flags & ~READONLY) return false;
    to.word(type_place(parent));
    PyObject*& slot = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(parent) + member->offset);
    to.word(place_of(slot));
    return to.at(slot, false);
  }

  GuardProgram* program_;
  const Context& context_;
  const std::vector<uint8_t>& changes_;
  std::vector<PyObject*> slots_;  // the object on the trail for each slot
  std::vector<PyObject*> specs_;
  std::unordered_set<const uintptr_t*> places_;
  Trail trail_;
  bool holds_ = true;
};

// The first word or item that is no longer as recorded: its node, or NO_OWNER if all are.
uint32_t find_change(GuardProgram* program, const Trail& trail) {
  const Trail::Word* const words = trail.words.data();
  size_t next = 0;
  auto compare_until = [&](size_t end) {
    while (next < end && *words[next].place == words[next].expected) ++next;
    return next == end;
  };
  for (const Trail::Item& item : trail.items) {
    if (!compare_until(item.before)) return trail.owners[next];
    const Node& node = program->nodes[item.node];
    if (!compat::dict_has_text_keys(item.dict) ||
        _PyDict_GetItem_KnownHash(item.dict, node.argument, node.number) != item.value)
      return item.node;
  }
  return compare_until(trail.words.size()) ? NO_OWNER : trail.owners[next];
}

int take_steps(GuardProgram* program, const Trail& trail, const Context& context) {
  for (const Trail::Step& step : trail.steps) {
    int failed = GUARDS_HOLD;
    if (step.is_visit) {
      failed = visit_node(program, program->nodes[step.index], step.object, context);
    } else {
      Check& check = program->checks[step.index];
      if (!holds(check, step.object, context)) failed = check.guard;
    }
    if (failed != GUARDS_HOLD) return failed;
  }
  return GUARDS_HOLD;
}

int hold_and_take_steps(GuardProgram* program, const Trail& trail, const Context& context) {
  std::vector<Ref> held;
  held.reserve(trail.steps.size());
  for (const Trail::Step& step : trail.steps) held.push_back(Ref::share(step.object));
  return take_steps(program, trail, context);
}

bool tensors_match(const Trail& trail) {
  for (const Trail::TensorStep& step : trail.tensors)
    if (!tensor_matches(step.spec, step.tensor)) return false;
  return true;
}

bool starts_at(const Trail& trail, const Context& context) {
  for (const Trail::Root& root : trail.roots)
    if (root.slot >= context.count || context.bound[root.slot] != root.object) return false;
  return true;
}

}  // namespace

std::shared_ptr<const Trail> Trails::find(const Context& context) {
  for (Known& known : known_) {
    const Trail::Root& first = known.first;
    if (first.object && (first.slot >= context.count || context.bound[first.slot] != first.object)) continue;
    if (!starts_at(*known.trail, context)) continue;
    ++known.hits;
    return known.trail;
  }
  return nullptr;
}

int Trails::follow(GuardProgram* program, const std::shared_ptr<const Trail>& trail, const Context& context) {
  const uint32_t changed = find_change(program, *trail);
  if (changed != NO_OWNER || !tensors_match(*trail)) {
    forget(trail, changed);
    return STALE;
  }
  fruitless_ = 0;
  for (const Trail::Stored& stored : trail->stored) context.fetched[stored.slot] = Py_NewRef(stored.object);
  // All that is on the trail holds, so the first step that fails is the first guard that does.
  const bool hold = trail->runs_python || context.holds_all;
  return hold ? hold_and_take_steps(program, *trail, context) : take_steps(program, *trail, context);
}

void Trails::forget(const std::shared_ptr<const Trail>& trail, uint32_t owner) {
  auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& other) { return other.trail == trail; });
  if (known == known_.end()) return;
  was_settled_ = known->hits > SETTLED_HITS;
  known_.erase(known);
  stale_ = trail;
  if (owner != NO_OWNER) count_change(owner);
}

void Trails::count_change(uint32_t owner) {
  changes_[owner] = was_settled_ ? 1 : std::min(changes_[owner] + 1, UINT8_MAX);
}

// Beyond the first stale word nothing of a trail can be read, but its successor has read it.
void Trails::count_changes(const Trail& old, const Trail& fresh) {
  std::unordered_map<const uintptr_t*, uintptr_t> words;
  for (const Trail::Word& word : old.words) words.emplace(word.place, word.expected);
  bool is_first = true;  // counted when it was found
  for (size_t i = 0; i < fresh.words.size(); ++i) {
    auto before = words.find(fresh.words[i].place);
    if (before == words.end() || before->second == fresh.words[i].expected) continue;
    if (!is_first) count_change(fresh.owners[i]);
    is_first = false;
  }
}

void Trails::record(GuardProgram* program, const Context& context) {
  if (useless_ || (wait_ && --wait_)) return;
  changes_.resize(program->nodes.size());
  std::shared_ptr<const Trail> trail = Recorder(program, context, changes_).record();
  if (!trail) return;
  if (stale_) count_changes(*stale_, *trail);
  stale_.reset();
  useless_ = trail->words.empty() && trail->tensors.empty();
  if (useless_) return;
  if (++fruitless_ > PATIENCE) wait_ = 1u << std::min(fruitless_ - PATIENCE, 8u);
  std::erase_if(known_, [&](const Known& other) { return starts_at(*other.trail, context); });
  if (known_.size() == TRAILS_LIMIT) known_.erase(known_.begin());
  const Trail::Root first = trail->roots.empty() ? Trail::Root{} : trail->roots[0];
  known_.push_back({first, 0, std::move(trail)});
}

void Trails::clear() {
  known_.clear();
  stale_.reset();
}

}  // namespace stoker
