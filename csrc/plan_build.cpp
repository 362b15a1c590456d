#include "plan_executor.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string>

namespace stoker {

namespace {

// The description comes from our own compiler, so a mistake in it is a defect: any exception will do.
PyObject* item(PyObject* tuple, Py_ssize_t index) {
  TORCH_CHECK(PyTuple_Check(tuple) && index < PyTuple_GET_SIZE(tuple), "malformed plan");
  return PyTuple_GET_ITEM(tuple, index);
}

Py_ssize_t length(PyObject* tuple) {
  TORCH_CHECK(PyTuple_Check(tuple), "malformed plan: expected a tuple");
  return PyTuple_GET_SIZE(tuple);
}

int64_t integer(PyObject* object) {
  const int64_t value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw python_error();
  return value;
}

uint32_t index(PyObject* object) { return static_cast<uint32_t>(integer(object)); }

std::string text(PyObject* object) {
  const char* characters = PyUnicode_AsUTF8(object);
  if (!characters) throw python_error();
  return characters;
}

at::ScalarType dtype(PyObject* object) {
  TORCH_CHECK(THPDtype_Check(object), "malformed plan: expected a dtype");
  return reinterpret_cast<THPDtype*>(object)->scalar_type;
}

NumberList number_list(PyObject* tuple) {
  NumberList result;
  for (Py_ssize_t i = 0; i < length(tuple); ++i) result.push_back(index(item(tuple, i)));
  return result;
}

// (slot, dtype, sizes, strides, offset, whole)
TensorView tensor_view(PyObject* tuple) {
  return {index(item(tuple, 0)),       dtype(item(tuple, 1)),
          item(tuple, 5) == Py_True,   number_list(item(tuple, 2)),
          number_list(item(tuple, 3)), index(item(tuple, 4))};
}

// (dtype, sizes, strides, device)
Expected expected(PyObject* tuple) {
  if (tuple == Py_None) return {at::ScalarType::Undefined, {}, {}, at::kCPU};
  return {dtype(item(tuple, 0)), number_list(item(tuple, 1)), number_list(item(tuple, 2)), c10::Device(text(item(tuple, 3)))};
}

// (function, threads, shared_bytes, programs, written, watches, name)
void read_launch(PyObject* tuple, Step& step) {
  step.launch.function = PyLong_AsVoidPtr(item(tuple, 0));
  step.launch.threads = index(item(tuple, 1));
  step.launch.shared_bytes = index(item(tuple, 2));
  step.programs = index(item(tuple, 3));
  PyObject* written = item(tuple, 4);
  for (Py_ssize_t i = 0; i < length(written); ++i) step.written.push_back(item(written, i) == Py_True);
  step.watches = item(tuple, 5) == Py_True;
  step.name = text(item(tuple, 6));
}

c10::IValue plain_constant(const std::string& kind, PyObject* value) {
  if (kind == "none") return c10::IValue();
  if (kind == "undefined") return c10::IValue(at::Tensor());
  if (kind == "bool") return c10::IValue(value == Py_True);
  if (kind == "int") return c10::IValue(integer(value));
  if (kind == "float") return c10::IValue(PyFloat_AsDouble(value));
  if (kind == "str") return c10::IValue(text(value));
  if (kind == "device") return c10::IValue(c10::Device(text(value)));
  if (kind == "dtype") return c10::IValue(static_cast<int64_t>(dtype(value)));
  if (kind == "floats" || kind == "bools") {
    c10::List<double> floats;
    c10::List<bool> bools;
    for (Py_ssize_t i = 0; i < length(value); ++i)
      if (kind == "floats") floats.push_back(PyFloat_AsDouble(item(value, i)));
      else bools.push_back(item(value, i) == Py_True);
    return kind == "floats" ? c10::IValue(floats) : c10::IValue(bools);
  }
  if (kind == "scalars") {
    c10::List<std::optional<at::Scalar>> scalars;
    for (Py_ssize_t i = 0; i < length(value); ++i) scalars.push_back(at::Scalar(PyFloat_AsDouble(item(value, i))));
    return c10::IValue(scalars);
  }
  TORCH_CHECK(false, "malformed plan: constant of kind ", kind);
}

// (kind, value); for Python outputs the object itself is kept too.
Argument argument(PyObject* tuple) {
  Argument result;
  const std::string kind = text(item(tuple, 0));
  PyObject* value = item(tuple, 1);
  if (kind == "tensor") {
    result.kind = Argument::Kind::TENSOR;
    result.view = tensor_view(value);
  } else if (kind == "number" || kind == "scalar") {
    result.kind = kind == "number" ? Argument::Kind::NUMBER : Argument::Kind::SCALAR;
    result.numbers = {index(value)};
  } else if (kind == "numbers") {
    result.kind = Argument::Kind::NUMBERS;
    result.numbers = number_list(value);
  } else if (kind == "tensors" || kind == "optional_tensors") {
    result.kind = kind == "tensors" ? Argument::Kind::TENSORS : Argument::Kind::OPTIONAL_TENSORS;
    for (Py_ssize_t i = 0; i < length(value); ++i) {
      PyObject* part = item(value, i);
      result.views.push_back(part == Py_None ? std::nullopt : std::optional(tensor_view(part)));
    }
  } else if (kind == "object") {
    result.object = Ref::share(value);
  } else {
    result.constant = plain_constant(kind, value);
    result.object = Ref::share(value);
  }
  return result;
}

std::vector<Argument> arguments(PyObject* tuple) {
  std::vector<Argument> result;
  for (Py_ssize_t i = 0; i < length(tuple); ++i) result.push_back(argument(item(tuple, i)));
  return result;
}

// ("allocate", slot, layout) | ("run", address, slots, numbers) | ("launch", launch, slots, numbers) | ("free", slot)
// | ("call", name, overload, arguments, results, layouts, several) | ("python", function, arguments, results, layouts, several)
Step step(PyObject* tuple) {
  const std::string kind = text(item(tuple, 0));
  Step result{};
  if (kind == "allocate") {
    result.kind = Step::Kind::ALLOCATE;
    result.slot = index(item(tuple, 1));
    result.layout = expected(item(tuple, 2));
    return result;
  }
  if (kind == "free") {
    result.kind = Step::Kind::FREE;
    result.slot = index(item(tuple, 1));
    return result;
  }
  if (kind == "run") {
    result.kind = Step::Kind::RUN;
    result.kernel = reinterpret_cast<Kernel>(PyLong_AsVoidPtr(item(tuple, 1)));
    result.slots = number_list(item(tuple, 2));
    result.numbers = number_list(item(tuple, 3));
    return result;
  }
  if (kind == "launch") {
    result.kind = Step::Kind::LAUNCH;
    read_launch(item(tuple, 1), result);
    result.slots = number_list(item(tuple, 2));
    result.numbers = number_list(item(tuple, 3));
    return result;
  }
  int place = 2;
  if (kind == "call") {
    result.kind = Step::Kind::CALL;
    const std::string name = text(item(tuple, 1)), overload = text(item(tuple, 2));
    result.op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    place = 3;
  } else {
    result.kind = Step::Kind::PYTHON;
    result.function = Ref::share(item(tuple, 1));
  }
  result.arguments = arguments(item(tuple, place));
  result.slots = number_list(item(tuple, place + 1));
  PyObject* layouts = item(tuple, place + 2);
  for (Py_ssize_t i = 0; i < length(layouts); ++i) result.expected.push_back(expected(item(layouts, i)));
  result.several = item(tuple, place + 3) == Py_True;
  return result;
}

NumberStep number_step(PyObject* tuple) {
  return {static_cast<NumberStep::Op>(integer(item(tuple, 0))), index(item(tuple, 1)), index(item(tuple, 2)),
          index(item(tuple, 3))};
}

// (device, bytes, ((slot, offset), ...))
ArenaPlan arena_plan(PyObject* tuple) {
  ArenaPlan plan{c10::Device(text(item(tuple, 0))), index(item(tuple, 1)), {}};
  PyObject* places = item(tuple, 2);
  for (Py_ssize_t i = 0; i < length(places); ++i)
    plan.places.emplace_back(index(item(item(places, i), 0)), index(item(item(places, i), 1)));
  return plan;
}

}  // namespace

// (slot_count, inputs, constants, numbers, symbols, arithmetic, arenas, steps, outputs, takes_list, device, flags)
Program build_program(PyObject* description) {
  Program program;
  program.slot_count = integer(item(description, 0));
  program.inputs = number_list(item(description, 1));
  program.input_count = program.inputs.size();
  PyObject* constants = item(description, 2);
  for (Py_ssize_t i = 0; i < length(constants); ++i) {
    PyObject* entry = item(constants, i);
    program.constants.emplace_back(index(item(entry, 0)), THPVariable_Unpack(item(entry, 1)));
  }
  PyObject* numbers = item(description, 3);
  for (Py_ssize_t i = 0; i < length(numbers); ++i) program.numbers.push_back(integer(item(numbers, i)));
  PyObject* symbols = item(description, 4);
  for (Py_ssize_t i = 0; i < length(symbols); ++i) {
    PyObject* entry = item(symbols, i);
    program.symbols.push_back(
        {index(item(entry, 0)), index(item(entry, 1)), static_cast<int32_t>(integer(item(entry, 2)))});
  }
  PyObject* arithmetic = item(description, 5);
  for (Py_ssize_t i = 0; i < length(arithmetic); ++i) program.arithmetic.push_back(number_step(item(arithmetic, i)));
  PyObject* arenas = item(description, 6);
  for (Py_ssize_t i = 0; i < length(arenas); ++i) program.arenas.push_back(arena_plan(item(arenas, i)));
  PyObject* steps = item(description, 7);
  for (Py_ssize_t i = 0; i < length(steps); ++i) {
    program.steps.push_back(step(item(steps, i)));
    program.calls_python |= program.steps.back().kind == Step::Kind::PYTHON;
  }
  program.outputs = arguments(item(description, 8));
  program.takes_list = item(description, 9) == Py_True;
  program.device = static_cast<int>(integer(item(description, 10)));
  program.flags = static_cast<int32_t*>(PyLong_AsVoidPtr(item(description, 11)));
  return program;
}

}  // namespace stoker
