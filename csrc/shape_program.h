// Conditions over integer symbols, each a program in reverse Polish order.
//
// Integers are 64 bits. A condition that overflows, divides by zero, or gives 0 does not hold. Division and remainder
// round towards minus infinity, as Python's do.
#pragma once

#include "python_compat.h"

#include <optional>
#include <vector>

namespace stoker {

#define STOKER_SHAPE_OPS(X)                                                                                        \
  X(CONST) X(SYMBOL) X(ADD) X(SUB) X(MUL) X(FLOORDIV) X(MOD) X(MIN) X(MAX) X(EQ) X(NE) X(LT) X(LE) X(AND) X(OR) X(NOT)

#define STOKER_NAME(name) name,
enum class ShapeOp : uint8_t { STOKER_SHAPE_OPS(STOKER_NAME) };
#undef STOKER_NAME

// a becomes a op b, of two operands; false where the result has no 64-bit value.
bool combine(ShapeOp op, int64_t& a, int64_t b);

class ShapeProgram {
 public:
  // Reads (bindings, conditions, guard_indices); false with an exception set.
  bool build(PyObject* description, Py_ssize_t slot_count);
  // True, or false and the index of the guard that failed.
  bool holds(PyObject* const* fetched, int* failed) const;
  size_t size() const { return conditions_.size(); }

 private:
  struct Binding {
    Py_ssize_t slot;
    std::optional<int64_t> dimension;  // of a tensor, as `tensor_number` takes it; none: an integer itself
  };
  struct Instruction {
    ShapeOp op;
    int64_t argument;
  };
  struct Condition {
    uint32_t first, end;
    int guard;
  };
  bool build_binding(PyObject* description, Py_ssize_t slot_count);
  bool build_condition(PyObject* description, int guard);
  bool bind(PyObject* const* fetched, int64_t* symbols) const;
  bool evaluate(const Condition& condition, const int64_t* symbols, int64_t* stack) const;

  std::vector<Binding> bindings_;
  std::vector<Instruction> instructions_;
  std::vector<Condition> conditions_;
  size_t depth_ = 0;
};

}  // namespace stoker
