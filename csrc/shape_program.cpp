#include "shape_program.h"

#include "ref.h"
#include "tensor_check.h"

#include <algorithm>

namespace stoker {

namespace {

int operand_count(ShapeOp op) {
  switch (op) {
    case ShapeOp::CONST:
    case ShapeOp::SYMBOL:
      return 0;
    case ShapeOp::NOT:
      return 1;
    default:
      return 2;
  }
}

bool floor_divide(int64_t a, int64_t b, int64_t* quotient, int64_t* remainder) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  int64_t q = a / b, r = a % b;
  const bool rounds_up = r != 0 && (r < 0) != (b < 0);
  *quotient = rounds_up ? q - 1 : q;
  *remainder = rounds_up ? r + b : r;
  return true;
}

bool invalid(const char* what) {
  PyErr_Format(PyExc_ValueError, "shape program: %s", what);
  return false;
}

}  // namespace

bool combine(ShapeOp op, int64_t& a, int64_t b) {
  int64_t unused;
  switch (op) {
    case ShapeOp::ADD:
      return !__builtin_add_overflow(a, b, &a);
    case ShapeOp::SUB:
      return !__builtin_sub_overflow(a, b, &a);
    case ShapeOp::MUL:
      return !__builtin_mul_overflow(a, b, &a);
    case ShapeOp::FLOORDIV:
      return floor_divide(a, b, &a, &unused);
    case ShapeOp::MOD:
      return floor_divide(a, b, &unused, &a);
    case ShapeOp::MIN:
      return a = std::min(a, b), true;
    case ShapeOp::MAX:
      return a = std::max(a, b), true;
    case ShapeOp::EQ:
      return a = a == b, true;
    case ShapeOp::NE:
      return a = a != b, true;
    case ShapeOp::LT:
      return a = a < b, true;
    case ShapeOp::LE:
      return a = a <= b, true;
    case ShapeOp::AND:
      return a = a && b, true;
    case ShapeOp::OR:
      return a = a || b, true;
    default:
      return false;
  }
}

bool ShapeProgram::build_binding(PyObject* description, Py_ssize_t slot_count) {
  Py_ssize_t slot;
  PyObject* dimension;
  if (!PyArg_ParseTuple(description, "nO", &slot, &dimension)) return false;
  if (slot < 0 || slot >= slot_count) return invalid("a binding names a slot that does not exist");
  Binding binding{slot, std::nullopt};
  if (dimension != Py_None) binding.dimension = PyLong_AsLongLong(dimension);
  bindings_.push_back(binding);
  return !PyErr_Occurred();
}

bool ShapeProgram::build_condition(PyObject* description, int guard) {
  Ref list = Ref::steal(PySequence_Fast(description, "a condition is a list of (op, argument)"));
  if (!list) return false;
  const auto first = static_cast<uint32_t>(instructions_.size());
  size_t height = 0;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
    int op;
    PyObject* argument = Py_None;
    if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(list.get(), i), "i|O", &op, &argument)) return false;
    if (op < 0 || op > static_cast<int>(ShapeOp::NOT)) return invalid("unknown op");
    Instruction instruction{static_cast<ShapeOp>(op), 0};
    const size_t operands = operand_count(instruction.op);
    if (operands == 0) {
      instruction.argument = PyLong_AsLongLong(argument);
      if (instruction.argument == -1 && PyErr_Occurred()) return false;
    }
    const bool known = instruction.argument >= 0 && instruction.argument < static_cast<int64_t>(bindings_.size());
    if (instruction.op == ShapeOp::SYMBOL && !known) return invalid("unknown symbol");
    if (height < operands) return invalid("an op lacks operands");
    height += 1 - operands;
    depth_ = std::max(depth_, height);
    instructions_.push_back(instruction);
  }
  if (height != 1) return invalid("a condition leaves exactly one value");
  conditions_.push_back({first, static_cast<uint32_t>(instructions_.size()), guard});
  return true;
}

bool ShapeProgram::build(PyObject* description, Py_ssize_t slot_count) {
  PyObject *bindings, *conditions, *guards;
  if (!PyArg_ParseTuple(description, "OOO;shapes is (bindings, conditions, guard_indices)", &bindings, &conditions, &guards))
    return false;
  Ref binding_list = Ref::steal(PySequence_Fast(bindings, "bindings is a list"));
  Ref condition_list = Ref::steal(PySequence_Fast(conditions, "conditions is a list"));
  Ref guard_list = Ref::steal(PySequence_Fast(guards, "guard_indices is a list"));
  if (!binding_list || !condition_list || !guard_list) return false;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(condition_list.get());
  if (count != PySequence_Fast_GET_SIZE(guard_list.get())) return invalid("one guard index per condition");
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(binding_list.get()); ++i)
    if (!build_binding(PySequence_Fast_GET_ITEM(binding_list.get(), i), slot_count)) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    long guard = PyLong_AsLong(PySequence_Fast_GET_ITEM(guard_list.get(), i));
    if (guard == -1 && PyErr_Occurred()) return false;
    if (!build_condition(PySequence_Fast_GET_ITEM(condition_list.get(), i), static_cast<int>(guard))) return false;
  }
  return true;
}

bool ShapeProgram::bind(PyObject* const* fetched, int64_t* symbols) const {
  for (const Binding& binding : bindings_) {
    PyObject* object = fetched[binding.slot];
    int overflow = 0;
    if (binding.dimension ? !tensor_number(object, *binding.dimension, symbols) : !PyLong_CheckExact(object)) return false;
    if (!binding.dimension) *symbols = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow) return false;
    ++symbols;
  }
  return true;
}

bool ShapeProgram::evaluate(const Condition& condition, const int64_t* symbols, int64_t* stack) const {
  int64_t* top = stack - 1;
  for (uint32_t i = condition.first; i < condition.end; ++i) {
    const Instruction& instruction = instructions_[i];
    switch (instruction.op) {
      case ShapeOp::CONST:
        *++top = instruction.argument;
        break;
      case ShapeOp::SYMBOL:
        *++top = symbols[instruction.argument];
        break;
      case ShapeOp::NOT:
        *top = !*top;
        break;
      default:
        --top;
        if (!combine(instruction.op, top[0], top[1])) return false;
    }
  }
  return *top != 0;
}

bool ShapeProgram::holds(PyObject* const* fetched, int* failed) const {
  if (conditions_.empty()) return true;
  constexpr size_t INLINE = 128;
  int64_t inline_space[INLINE];
  std::vector<int64_t> heap_space;
  int64_t* space = inline_space;
  if (bindings_.size() + depth_ > INLINE) {
    heap_space.resize(bindings_.size() + depth_);
    space = heap_space.data();
  }
  *failed = conditions_[0].guard;
  if (!bind(fetched, space)) return false;
  for (const Condition& condition : conditions_) {
    *failed = condition.guard;
    if (!evaluate(condition, space, space + bindings_.size())) return false;
  }
  return true;
}

}  // namespace stoker
