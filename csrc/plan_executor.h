// The plan executor: runs a kernel plan without Python.
//
// A plan is a list of steps over slots (buffers) and numbers (sizes, evaluated once per call). stoker/codegen/executor.py
// describes the same records as tuples; plan_build.cpp reads them.
#pragma once

#include "cuda_driver.h"
#include "python_compat.h"
#include "ref.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace stoker {

using Numbers = std::vector<int64_t>;
using Kernel = int (*)(void* const*, const int64_t*);  // not 0: which families of indices were out of range

// Indices into the numbers of a call.
using NumberList = std::vector<uint32_t>;

// A tensor in a slot, seen with sizes, strides and an offset in elements.
struct TensorView {
  uint32_t slot;
  at::ScalarType dtype;
  bool whole;
  NumberList sizes, strides;
  uint32_t offset;
};

// An argument of a library call, or an output: a tensor, a number, a list of either, or a constant.
struct Argument {
  enum class Kind : uint8_t { TENSOR, NUMBER, NUMBERS, TENSORS, OPTIONAL_TENSORS, CONSTANT, SCALAR };
  Kind kind = Kind::CONSTANT;
  TensorView view{};
  NumberList numbers;
  std::vector<std::optional<TensorView>> views;
  c10::IValue constant;
  Ref object;
};

struct NumberStep {
  enum class Op : uint8_t { ADD, MUL, FLOORDIV, MOD, MIN, MAX };
  Op op;
  uint32_t target, a, b;
};

// What a result's strides must be; another layout is copied.
struct Expected {
  at::ScalarType dtype;
  NumberList sizes, strides;
  c10::Device device;
};

struct Step {
  enum class Kind : uint8_t { ALLOCATE, RUN, LAUNCH, CALL, FREE, PYTHON };
  Kind kind = Kind::FREE;
  uint32_t slot = 0;                 // ALLOCATE, FREE
  Expected layout{at::ScalarType::Undefined, {}, {}, at::kCPU};  // ALLOCATE
  Kernel kernel = nullptr;           // RUN
  Launch launch{};                   // LAUNCH
  uint32_t programs = 0;             // LAUNCH: the number that is the size of its grid
  std::vector<bool> written;         // LAUNCH: which arguments it writes
  bool watches = false;              // LAUNCH: does it take the flags for indices out of range?
  std::string name;                  // LAUNCH: for errors
  std::vector<uint32_t> slots;       // RUN, LAUNCH: arguments; CALL, PYTHON: results (NOTHING for one that is dropped)
  NumberList numbers;                // RUN, LAUNCH: sizes
  std::optional<c10::OperatorHandle> op;  // CALL
  Ref function;                      // PYTHON
  std::vector<Argument> arguments;   // CALL, PYTHON
  std::vector<Expected> expected;    // CALL, PYTHON
  bool several = false;
};

constexpr uint32_t NOTHING = UINT32_MAX;

struct Symbol {
  uint32_t number, argument;
  int32_t dimension;  // whose size it is; -1: the argument is the number; -2 - d: the stride of dimension d
};

// Temporaries of one device: a block of memory, and where each slot lies in it.
struct ArenaPlan {
  c10::Device device;
  uint32_t bytes;                                     // a number
  std::vector<std::pair<uint32_t, uint32_t>> places;  // slot, number of its offset in bytes
};

struct Program {
  size_t input_count = 0, slot_count = 0;
  bool calls_python = false;
  bool takes_list = false;  // inputs come in one list, which is emptied
  std::vector<uint32_t> inputs;  // slot of each input, or NOTHING
  std::vector<std::pair<uint32_t, at::Tensor>> constants;
  Numbers numbers;
  std::vector<Symbol> symbols;
  std::vector<NumberStep> arithmetic;
  std::vector<ArenaPlan> arenas;
  int device = -1;                // the CUDA device that kernels are launched on; -1 if none are
  int32_t* flags = nullptr;       // what kernels on a device say of indices out of range, one a family; the host may read it
  std::vector<Step> steps;
  std::vector<Argument> outputs;
};

// Reads a description; throws std::exception, or python_error with a Python exception set.
Program build_program(PyObject* description);

// Frees the memory for temporaries that is kept between calls.
PyObject* release_arenas(PyObject*, PyObject*);

bool add_plan_types(PyObject* module);

}  // namespace stoker
