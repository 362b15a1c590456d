#include "plan_executor.h"

#include "dispatch.h"
#include "object_type.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace stoker {

namespace {

PyTypeObject* plan_type;

// Steps of a plan that is too short to let other Python threads run meanwhile.
constexpr size_t SHORT_PLAN = 3;

struct PlanObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  char takes_list;
  Program program;
  Ref otherwise;  // what to call where a number of the program has no 64-bit value; may be empty
};

// Memory for temporaries, kept between calls and shared by all plans, because fresh memory costs page faults. There are as
// many arenas as plans ran at once: one that is too small for a plan makes room for a larger one, which serves both.
class ArenaPool {
 public:
  at::Tensor take(int64_t bytes) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      auto fitting = std::find_if(idle_.begin(), idle_.end(), [&](const at::Tensor& t) { return t.numel() >= bytes; });
      if (fitting != idle_.end()) {
        at::Tensor found = std::move(*fitting);
        idle_.erase(fitting);
        return found;
      }
      if (!idle_.empty()) idle_.pop_back();
    }
    return at::detail::empty_cpu({bytes}, at::kByte, std::nullopt, std::nullopt, std::nullopt, std::nullopt);
  }

  // Keeps the largest few.
  void give(at::Tensor arena) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(arena));
    std::sort(idle_.begin(), idle_.end(), [](const auto& a, const auto& b) { return a.numel() < b.numel(); });
    if (idle_.size() > MOST_IDLE) idle_.erase(idle_.begin());
  }

  void release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.clear();
  }

 private:
  static constexpr size_t MOST_IDLE = 2;
  std::mutex mutex_;
  std::vector<at::Tensor> idle_;
};

ArenaPool& arena_pool() {
  static auto* pool = new ArenaPool;  // never destroyed: threads may outlive static destruction
  return *pool;
}

struct Slot {
  void* pointer = nullptr;
  at::Tensor tensor;
  const at::Tensor* arena = nullptr;  // where it lies, if it has no tensor of its own
};

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

// What an index out of range raises: bits of a kernel's result, as in stoker/loop/op.py.
[[noreturn]] void raise_outside(int families) {
  TORCH_CHECK_INDEX(!(families & 1), "index is out of bounds for its dimension");
  TORCH_CHECK_INDEX(!(families & 2), "index out of range in self");
  TORCH_CHECK_INDEX(!(families & 4), "Target is out of bounds.");
  TORCH_CHECK(false, "index is out of bounds for its dimension");
}

constexpr int FAMILIES = 4;
constexpr uintptr_t ALIGNMENT = 16;  // of what kernels on a device are given, as they were told when compiled

// A kernel of an earlier call met an index out of range: on a device this is known late, and is told now.
void raise_noted(int32_t* flags) {
  int families = 0;
  for (int i = 0; i < FAMILIES; ++i)
    if (flags[i]) families |= 1 << i;
  if (C10_LIKELY(!families)) return;
  std::fill(flags, flags + FAMILIES, 0);
  const bool element = families == 1 << (FAMILIES - 1);
  PyErr_SetString(element ? PyExc_RuntimeError : PyExc_IndexError,
                  "an earlier call of compiled code met an index out of range; devices tell this late. Check the indices, or run "
                  "with stoker.stance(\"eager\") to find the place");
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value && PyObject_SetAttrString(value, LATE, Py_True) < 0) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  throw python_error();
}

// Memory of a device's allocator, which is that of its operators.
at::Tensor empty_on(c10::Device device, c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) {
  if (device.is_cpu()) return at::detail::empty_strided_cpu(sizes, strides, dtype);
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(device.type()),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype);
}

// A number that the plan computes does not fit, or is a division by zero: Python's integers know what comes of it.
struct NoSuchSize {};

// One call of a plan.
class Execution {
 public:
  Execution(const Program& program, PyObject* const* inputs) : program_(program), numbers_(program.numbers) {
    slots_.resize(program.slot_count);
    if (!read_inputs(inputs) || !evaluate()) throw NoSuchSize();
    if (program.device >= 0) {
      if (program.flags) raise_noted(program.flags);
      stream_ = current_stream(program.device);
      enter_device(program.device);
    }
    take_arenas();
  }

  ~Execution() {
    for (at::Tensor& arena : arenas_)
      if (arena.is_cpu()) arena_pool().give(std::move(arena));
  }

  void run() {
    for (const Step& step : program_.steps) {
      switch (step.kind) {
        case Step::Kind::ALLOCATE:
          allocate(step);
          break;
        case Step::Kind::RUN:
          run_kernel(step);
          break;
        case Step::Kind::LAUNCH:
          launch_kernel(step);
          break;
        case Step::Kind::CALL:
          call(step);
          break;
        case Step::Kind::FREE:
          slots_[step.slot] = Slot();
          break;
        case Step::Kind::PYTHON:
          call_python(step);
          break;
      }
    }
  }

  PyObject* result() {
    Ref tuple = Ref::steal(PyTuple_New(program_.outputs.size()));
    if (!tuple) throw python_error();
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      PyObject* value = to_python(program_.outputs[i]);
      if (!value) throw python_error();
      PyTuple_SET_ITEM(tuple.get(), i, value);
    }
    return tuple.release();
  }

 private:
  bool read_inputs(PyObject* const* inputs) {
    for (size_t i = 0; i < program_.input_count; ++i) {
      const uint32_t slot = program_.inputs[i];
      if (slot != NOTHING) hold(slot, resolved(THPVariable_Unpack(inputs[i])));
    }
    for (const auto& [slot, tensor] : program_.constants) hold(slot, tensor);
    for (const Symbol& symbol : program_.symbols) {
      if (symbol.dimension != -1) {
        const at::Tensor& tensor = slots_[program_.inputs[symbol.argument]].tensor;
        numbers_[symbol.number] = symbol.dimension >= 0 ? tensor.size(symbol.dimension) : tensor.stride(-2 - symbol.dimension);
        continue;
      }
      int overflow;
      const int64_t value = PyLong_AsLongLongAndOverflow(inputs[symbol.argument], &overflow);
      if (value == -1 && PyErr_Occurred()) throw python_error();
      if (overflow) return false;
      numbers_[symbol.number] = value;
    }
    return true;
  }

  // Kernels read memory as it is; a lazily negated or conjugated tensor is not what its memory says, and one of zeros has none.
  static at::Tensor resolved(const at::Tensor& tensor) {
    if (C10_UNLIKELY(tensor._is_zerotensor())) {
      at::Tensor zeros = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
      return zeros.zero_();
    }
    return C10_UNLIKELY(tensor.is_neg() || tensor.is_conj()) ? tensor.resolve_neg().resolve_conj() : tensor;
  }

  // False where a number has no 64-bit value.
  bool evaluate() {
    for (const NumberStep& step : program_.arithmetic) {
      const int64_t a = numbers_[step.a], b = numbers_[step.b];
      int64_t& target = numbers_[step.target];
      switch (step.op) {
        case NumberStep::Op::ADD:
          if (__builtin_add_overflow(a, b, &target)) return false;
          break;
        case NumberStep::Op::MUL:
          if (__builtin_mul_overflow(a, b, &target)) return false;
          break;
        case NumberStep::Op::FLOORDIV:
        case NumberStep::Op::MOD:
          if (!b || (a == INT64_MIN && b == -1)) return false;
          target = step.op == NumberStep::Op::MOD ? a - floor_divide(a, b) * b : floor_divide(a, b);
          break;
        case NumberStep::Op::MIN:
          target = std::min(a, b);
          break;
        case NumberStep::Op::MAX:
          target = std::max(a, b);
          break;
      }
    }
    return true;
  }

  // Blocks of the processor are kept between calls; those of a device come from its allocator, which keeps them.
  void take_arenas() {
    arenas_.reserve(program_.arenas.size());
    for (const ArenaPlan& plan : program_.arenas) {
      const int64_t bytes = numbers_[plan.bytes];
      arenas_.push_back(plan.device.is_cpu() ? arena_pool().take(bytes) : empty_on(plan.device, {bytes}, {1}, at::kByte));
      char* base = static_cast<char*>(arenas_.back().mutable_data_ptr());
      for (const auto& [slot, offset] : plan.places) {
        slots_[slot].pointer = base + numbers_[offset];
        slots_[slot].arena = &arenas_.back();
      }
    }
  }

  void hold(uint32_t slot, at::Tensor tensor) {
    slots_[slot].pointer = tensor.has_storage() && tensor.numel() ? tensor.mutable_data_ptr() : nullptr;
    slots_[slot].tensor = std::move(tensor);
  }

  c10::SmallVector<int64_t, 6> values(const NumberList& list) const {
    c10::SmallVector<int64_t, 6> result(list.size());
    for (size_t i = 0; i < list.size(); ++i) result[i] = numbers_[list[i]];
    return result;
  }

  at::Tensor empty(const Expected& layout) const {
    return empty_on(layout.device, values(layout.sizes), values(layout.strides), layout.dtype);
  }

  void allocate(const Step& step) { hold(step.slot, empty(step.layout)); }

  void run_kernel(const Step& step) {
    pointers_.clear();
    for (const uint32_t slot : step.slots) pointers_.push_back(slots_[slot].pointer);
    sizes_.clear();
    for (const uint32_t number : step.numbers) sizes_.push_back(numbers_[number]);
    const int outside = step.kernel(pointers_.data(), sizes_.data());
    if (outside) raise_outside(outside);
  }

  void launch_kernel(const Step& step) {
    const int64_t programs = numbers_[step.programs];
    if (!programs) return;
    c10::SmallVector<uint64_t, 64> words;
    for (size_t i = 0; i < step.slots.size(); ++i)
      words.push_back(reinterpret_cast<uintptr_t>(aligned(slots_[step.slots[i]], step.written[i])));
    for (const uint32_t number : step.numbers) words.push_back(numbers_[number]);
    if (step.watches) words.push_back(reinterpret_cast<uintptr_t>(program_.flags));
    words.append({0, 0});  // scratch memory that Triton's kernels may take; ours need none
    c10::SmallVector<void*, 64> parameters;
    for (uint64_t& word : words) parameters.push_back(&word);
    try {
      launch(step.launch, static_cast<uint32_t>(programs), stream_, parameters.data());
    } catch (c10::Error& error) {
      error.add_context("in the kernel for " + step.name);
      throw;
    }
  }

  // The address of a buffer, or of a copy of what is only read where kernels could not read it.
  void* aligned(const Slot& slot, bool written) {
    if (C10_LIKELY(reinterpret_cast<uintptr_t>(slot.pointer) % ALIGNMENT == 0)) return slot.pointer;
    TORCH_CHECK(!written && slot.tensor.defined(), "a kernel would write to memory that is not aligned; please report this");
    int64_t reach = 1;
    for (int64_t i = 0; i < slot.tensor.dim(); ++i) reach += (slot.tensor.size(i) - 1) * slot.tensor.stride(i);
    copies_.push_back(slot.tensor.as_strided({reach}, {1}).clone());
    return copies_.back().mutable_data_ptr();
  }

  at::Tensor view(const TensorView& view) const {
    const Slot& slot = slots_[view.slot];
    if (view.whole && slot.tensor.defined()) return slot.tensor;
    const at::Tensor& base = slot.tensor.defined() ? slot.tensor : *slot.arena;
    const size_t item_bytes = c10::elementSize(view.dtype);
    const char* start = static_cast<const char*>(base.storage().data());
    const int64_t bytes = slot.pointer ? static_cast<const char*>(slot.pointer) - start : 0;
    at::Tensor result = at::detail::make_tensor<at::TensorImpl>(
        c10::Storage(base.storage()),
        c10::DispatchKeySet(base.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA),
        c10::scalarTypeToTypeMeta(view.dtype));
    result.unsafeGetTensorImpl()->set_sizes_and_strides(
        values(view.sizes), values(view.strides), bytes / item_bytes + numbers_[view.offset]);
    return result;
  }

  c10::IValue value(const Argument& argument) const {
    switch (argument.kind) {
      case Argument::Kind::TENSOR:
        return view(argument.view);
      case Argument::Kind::NUMBER:
      case Argument::Kind::SCALAR:
        return numbers_[argument.numbers[0]];
      case Argument::Kind::NUMBERS: {
        const auto list = values(argument.numbers);
        return c10::IValue(std::vector<int64_t>(list.begin(), list.end()));
      }
      case Argument::Kind::TENSORS: {
        c10::List<at::Tensor> list;
        for (const auto& part : argument.views) list.push_back(view(*part));
        return list;
      }
      case Argument::Kind::OPTIONAL_TENSORS: {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& part : argument.views) list.push_back(part ? std::optional(view(*part)) : std::nullopt);
        return list;
      }
      case Argument::Kind::CONSTANT:
        return argument.constant;
    }
    return {};
  }

  void call(const Step& step) {
    stack_.clear();
    for (const Argument& argument : step.arguments) stack_.push_back(value(argument));
    step.op->callBoxed(stack_);
    for (size_t i = 0; i < step.slots.size(); ++i) {
      if (step.slots[i] == NOTHING) continue;
      hold(step.slots[i], conform(stack_[i].toTensor(), step.expected[i]));
    }
  }

  // A result whose strides were not foretold is copied.
  at::Tensor conform(at::Tensor result, const Expected& layout) const {
    if (!result.defined() || !result.numel()) return result;
    TORCH_CHECK(result.scalar_type() == layout.dtype, "a library call gave ", result.scalar_type(), " where ",
                layout.dtype, " was foretold; please report this");
    for (size_t i = 0; i < layout.strides.size(); ++i) {
      if (result.size(i) > 1 && result.stride(i) != numbers_[layout.strides[i]]) return empty(layout).copy_(result);
    }
    return result;
  }

  PyObject* to_python(const Argument& argument) const {
    switch (argument.kind) {
      case Argument::Kind::TENSOR:
        return THPVariable_Wrap(view(argument.view));
      case Argument::Kind::NUMBER:
      case Argument::Kind::SCALAR:
        return PyLong_FromLongLong(numbers_[argument.numbers[0]]);
      case Argument::Kind::NUMBERS:
      case Argument::Kind::TENSORS:
      case Argument::Kind::OPTIONAL_TENSORS:
        return to_list(argument);
      case Argument::Kind::CONSTANT:
        return Py_NewRef(argument.object.get());
    }
    return nullptr;
  }

  PyObject* to_list(const Argument& argument) const {
    const bool numbers = argument.kind == Argument::Kind::NUMBERS;
    const size_t count = numbers ? argument.numbers.size() : argument.views.size();
    Ref list = Ref::steal(PyList_New(count));
    for (size_t i = 0; i < count; ++i) {
      PyObject* part = numbers ? PyLong_FromLongLong(numbers_[argument.numbers[i]])
                       : argument.views[i] ? THPVariable_Wrap(view(*argument.views[i]))
                                           : Py_NewRef(Py_None);
      PyList_SET_ITEM(list.get(), i, part);
    }
    return list.release();
  }

  // An operator that only Python can call.
  void call_python(const Step& step) {
    Ref arguments = Ref::steal(PyTuple_New(step.arguments.size()));
    for (size_t i = 0; i < step.arguments.size(); ++i)
      PyTuple_SET_ITEM(arguments.get(), i, to_python(step.arguments[i]));
    Ref result = Ref::steal(PyObject_CallObject(step.function.get(), arguments.get()));
    if (!result) throw python_error();
    for (size_t i = 0; i < step.slots.size(); ++i) {
      if (step.slots[i] == NOTHING) continue;
      Ref part = step.several ? Ref::steal(PySequence_GetItem(result.get(), i)) : Ref::share(result.get());
      if (!part) throw python_error();
      hold(step.slots[i], conform(THPVariable_Unpack(part.get()), step.expected[i]));
    }
  }

  const Program& program_;
  Numbers numbers_;
  std::vector<Slot> slots_;
  std::vector<at::Tensor> arenas_;
  std::vector<at::Tensor> copies_;
  DeviceStream stream_ = nullptr;
  std::vector<c10::IValue> stack_;
  std::vector<void*> pointers_;
  std::vector<int64_t> sizes_;
};

PyObject* run_plan(PyObject* self, PyObject* const* inputs, size_t flagged, PyObject* keywords) {
  const Program& program = reinterpret_cast<PlanObject*>(self)->program;
  auto count = static_cast<size_t>(PyVectorcall_NARGS(flagged));
  PyObject* list = nullptr;
  if (program.takes_list) {
    if (count != 1 || !PyList_Check(inputs[0]))
      return PyErr_Format(PyExc_TypeError, "the plan takes its inputs in one list");
    list = inputs[0];
    inputs = PySequence_Fast_ITEMS(list);
    count = PyList_GET_SIZE(list);
  }
  if (count != program.input_count || (keywords && PyTuple_GET_SIZE(keywords)))
    return PyErr_Format(PyExc_TypeError, "the plan takes %zu inputs, not %zu", program.input_count, count);
  HANDLE_TH_ERRORS
  // Everything below autograd: plans are functional, and gradients are the business of whoever calls them.
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const c10::OptionalDeviceGuard guard(
      program.device >= 0 ? std::optional(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(program.device)))
                          : std::nullopt);
  try {
    Execution execution(program, inputs);
    if (list && PyList_SetSlice(list, 0, PY_SSIZE_T_MAX, nullptr)) throw python_error();
    if (program.calls_python || program.steps.size() <= SHORT_PLAN) {
      execution.run();
    } else {
      const pybind11::gil_scoped_release released;
      execution.run();
    }
    return execution.result();
  } catch (const NoSuchSize&) {
    PyObject* otherwise = reinterpret_cast<PlanObject*>(self)->otherwise.get();
    if (otherwise) return PyObject_Vectorcall(otherwise, inputs, count, nullptr);
    PyErr_SetString(PyExc_OverflowError, "a size of the plan has no 64-bit value");
    return nullptr;
  }
  END_HANDLE_TH_ERRORS
}

PyObject* plan_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *description, *otherwise = Py_None;
  if (!PyArg_ParseTuple(arguments, "O!|O:Plan", &PyTuple_Type, &description, &otherwise)) return nullptr;
  HANDLE_TH_ERRORS
  Program program = build_program(description);
  auto* self = reinterpret_cast<PlanObject*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = run_plan;
  self->takes_list = program.takes_list;
  new (&self->program) Program(std::move(program));
  new (&self->otherwise) Ref(otherwise == Py_None ? Ref() : Ref::share(otherwise));
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

void plan_dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  reinterpret_cast<PlanObject*>(object)->otherwise.~Ref();
  reinterpret_cast<PlanObject*>(object)->program.~Program();
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef plan_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PlanObject, vectorcall), READONLY, nullptr},
    {"_boxed_call", T_BOOL, offsetof(PlanObject, takes_list), READONLY, nullptr},
    {},
};
PyType_Slot plan_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(plan_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(plan_dealloc)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, plan_members},
    {0, nullptr},
};
PyType_Spec plan_spec = {"stoker._C.Plan", sizeof(PlanObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, plan_slots};

}  // namespace

PyObject* release_arenas(PyObject*, PyObject*) {
  arena_pool().release();
  Py_RETURN_NONE;
}

bool add_plan_types(PyObject* module) { return add_type(module, &plan_spec, &plan_type); }

}  // namespace stoker
