#include "plan_executor.h"

#include "dispatch.h"
#include "object_type.h"
#include "shape_program.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace stoker {

namespace {

PyTypeObject* plan_type;

// Steps of a plan that is too short to let other Python threads run meanwhile.
constexpr size_t SHORT_PLAN = 3;

struct PlanObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  char takes_list;
  bool calls_python;
  PlanRecord plan;
  Ref otherwise;  // what to call with inputs that the plan is not for; may be empty
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

// What each kind of Arithmetic does.
constexpr ShapeOp ARITHMETIC[] = {ShapeOp::ADD, ShapeOp::MUL, ShapeOp::FLOORDIV, ShapeOp::MOD, ShapeOp::MIN, ShapeOp::MAX};

// What an index out of range raises: bits of a kernel's result, as in stoker/errors.py.
[[noreturn]] void raise_outside(int families) {
  TORCH_CHECK_INDEX(!(families & 1), "index is out of bounds for its dimension");
  TORCH_CHECK_INDEX(!(families & 2), "index out of range in self");
  TORCH_CHECK_INDEX(!(families & 4), "Target is out of bounds.");
  TORCH_CHECK(false, "index is out of bounds for its dimension");
}

constexpr int FAMILIES = 4;
constexpr int64_t NARROW_LIMIT = (int64_t(1) << 31) - (1 << 16);  // as in stoker/codegen/triton/width.py
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
  compat::SavedError error;
  error.mark(LATE);
  error.restore();
  throw python_error();
}

// Memory of a device's allocator, which is that of its operators.
at::Tensor empty_on(c10::Device device, c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) {
  if (device.is_cpu()) return at::detail::empty_strided_cpu(sizes, strides, dtype);
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(device.type()),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype);
}

// The plan is not for these inputs. A number that it computes does not fit, or is a division by zero: Python's integers know what comes
// of it. Or it is too large for kernels that compute with 32 bits, or an input lies where eager's kernels would draw other random numbers.
struct NotForThese {};

// One call of a plan.
class Execution {
 public:
  // `arena_source`, of a device's number and bytes, gives the memory for temporaries on devices; may be null.
  Execution(const PlanRecord& plan, PyObject* const* inputs, PyObject* arena_source)
      : plan_(plan), numbers_(plan.numbers), arena_source_(arena_source) {
    slots_.resize(plan.slot_count);
    if (!read_inputs(inputs) || !evaluate() || !fits_kernels()) throw NotForThese();
    if (plan.device) {
      if (plan.flags) raise_noted(*plan.flags);
      const auto device = static_cast<int>(*plan.device);
      stream_ = current_stream(device);
      enter_device(device);
    }
    take_arenas();
  }

  ~Execution() {
    for (at::Tensor& arena : arenas_)
      if (arena.is_cpu()) arena_pool().give(std::move(arena));
  }

  // `written` becomes true where the first step begins that writes to an input.
  void run(bool& written) {
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      if (static_cast<int64_t>(i) == plan_.first_write) written = true;
      std::visit([this](const auto& kind) { take(kind); }, plan_.steps[i]);
    }
  }

  PyObject* result() {
    Ref tuple = Ref::steal(PyTuple_New(plan_.outputs.size()));
    if (!tuple) throw python_error();
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      PyTuple_SET_ITEM(tuple.get(), i, to_python(plan_.outputs[i]));
    }
    return tuple.release();
  }

 private:
  bool read_inputs(PyObject* const* inputs) {
    for (size_t i = 0; i < plan_.inputs.size(); ++i)
      if (plan_.inputs[i]) hold(*plan_.inputs[i], resolved(THPVariable_Unpack(inputs[i])));
    for (const int64_t input : plan_.aligned)
      if (reinterpret_cast<uintptr_t>(slots_[*plan_.inputs[input]].pointer) % ALIGNMENT) return false;
    for (const PlanConstant& constant : plan_.constants) hold(constant.slot, constant.value);
    for (const SymbolRead& symbol : plan_.symbols) {
      if (symbol.dimension) {
        const at::Tensor& tensor = slots_[*plan_.inputs[symbol.argument]].tensor;
        numbers_[symbol.number] = symbol.stride ? tensor.stride(*symbol.dimension) : tensor.size(*symbol.dimension);
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
  // What they read instead is laid out alike, also where elements share a place or places between them belong to nobody.
  static at::Tensor resolved(const at::Tensor& tensor) {
    const bool zero = tensor._is_zerotensor();
    if (C10_LIKELY(!zero && !tensor.is_neg() && !tensor.is_conj())) return tensor;
    int64_t span = tensor.numel() ? 1 : 0;
    for (int64_t dimension = 0; span && dimension < tensor.dim(); ++dimension)
      span += (tensor.size(dimension) - 1) * tensor.stride(dimension);
    if (zero) return at::zeros({span}, tensor.options()).as_strided(tensor.sizes(), tensor.strides());
    const at::Tensor negated = tensor.is_neg() ? at::_neg_view(tensor) : tensor;
    const at::Tensor plain = negated.is_conj() ? at::_conj(negated) : negated;
    at::Tensor made = plain.as_strided({span}, {1});
    if (tensor.is_conj()) made = at::conj_physical(made);
    if (tensor.is_neg()) made = at::neg(made);
    return made.as_strided(tensor.sizes(), tensor.strides(), 0);
  }

  // False where a number has no 64-bit value.
  bool evaluate() {
    for (const NumberStep& step : plan_.arithmetic) {
      int64_t value = numbers_[step.a];
      if (!combine(ARITHMETIC[static_cast<size_t>(step.how)], value, numbers_[step.b])) return false;
      numbers_[step.target] = value;
    }
    return true;
  }

  // Are numbers that kernels compute with in 32 bits small enough?
  bool fits_kernels() const {
    return std::all_of(plan_.narrow.begin(), plan_.narrow.end(), [this](uint32_t number) {
      return numbers_[number] > -NARROW_LIMIT && numbers_[number] < NARROW_LIMIT;
    });
  }

  // Blocks of the processor are kept between calls; those of a device come from its allocator, which keeps them.
  void take_arenas() {
    arenas_.reserve(plan_.arenas.size());
    for (const ArenaRecord& arena : plan_.arenas) {
      const int64_t bytes = numbers_[arena.size_bytes];
      arenas_.push_back(arena.device.is_cpu() ? arena_pool().take(bytes)
                        : arena_source_       ? given_arena(arena.device, bytes)
                                              : empty_on(arena.device, {bytes}, {1}, at::kByte));
      char* base = static_cast<char*>(arenas_.back().mutable_data_ptr());
      for (const ArenaPlace& place : arena.places) {
        slots_[place.slot].pointer = base + numbers_[place.offset_bytes];
        slots_[place.slot].arena = &arenas_.back();
      }
    }
  }

  at::Tensor given_arena(c10::Device device, int64_t bytes) const {
    const Ref found = Ref::steal(PyObject_CallFunction(arena_source_, "iL", device.index(), static_cast<long long>(bytes)));
    if (!found) throw python_error();
    TORCH_CHECK(THPVariable_Check(found.get()), "an arena is a tensor");
    return THPVariable_Unpack(found.get());
  }

  void hold(uint32_t slot, at::Tensor tensor) {
    slots_[slot].pointer = tensor.has_storage() && tensor.numel() ? tensor.mutable_data_ptr() : nullptr;
    slots_[slot].tensor = std::move(tensor);
  }

  c10::SmallVector<int64_t, 6> values(const std::vector<uint32_t>& list) const {
    c10::SmallVector<int64_t, 6> result(list.size());
    for (size_t i = 0; i < list.size(); ++i) result[i] = numbers_[list[i]];
    return result;
  }

  at::Tensor empty(const BufferLayout& layout) const {
    return empty_on(layout.device, values(layout.sizes), values(layout.strides), layout.dtype);
  }

  void take(const AllocateStep& step) { hold(step.slot, empty(step.layout)); }

  void take(const FreeStep& step) { slots_[step.slot] = Slot(); }

  void take(const RunStep& step) {
    pointers_.clear();
    for (const uint32_t slot : step.slots) pointers_.push_back(slots_[slot].pointer);
    sizes_.clear();
    for (const uint32_t number : step.sizes) sizes_.push_back(numbers_[number]);
    const int outside = step.kernel(pointers_.data(), sizes_.data());
    if (outside) raise_outside(outside);
  }

  void take(const LaunchStep& step) {
    const int64_t programs = numbers_[step.programs];
    if (!programs) return;
    c10::SmallVector<uint64_t, 64> words;
    for (size_t i = 0; i < step.slots.size(); ++i) {
      const Slot& slot = slots_[step.slots[i]];
      words.push_back(step.value_bytes[i] ? number_in(slot, step.value_bytes[i])
                                          : reinterpret_cast<uintptr_t>(aligned(slot, step.written[i])));
    }
    for (const uint32_t number : step.sizes) words.push_back(numbers_[number]);
    if (step.watches) words.push_back(reinterpret_cast<uintptr_t>(*plan_.flags));
    words.append({0, 0});  // scratch memory that Triton's kernels may take; ours need none
    c10::SmallVector<void*, 64> parameters;
    for (uint64_t& word : words) parameters.push_back(&word);
    try {
      const Launch kernel{step.kernel, uint32_t(step.threads), uint32_t(step.shared_bytes), step.overlaps};
      launch(kernel, static_cast<uint32_t>(programs), stream_, parameters.data());
    } catch (c10::Error& error) {
      error.add_context("in the kernel for " + step.origins);
      throw;
    }
    if (step.hands_on) return;
    for (const auto& [memory, copy] : written_back_) memory.copy_(copy);
    written_back_.clear();
  }

  // The bits of a number of the processor.
  static uint64_t number_in(const Slot& slot, int64_t bytes) {
    uint64_t word = 0;
    std::memcpy(&word, slot.pointer, bytes);
    return word;
  }

  // The address of a buffer; or of a copy where kernels could not use it, which is written back after the launch if it is written.
  void* aligned(const Slot& slot, bool written) {
    if (C10_LIKELY(reinterpret_cast<uintptr_t>(slot.pointer) % ALIGNMENT == 0)) return slot.pointer;
    TORCH_CHECK(slot.tensor.defined(), "memory of the plan itself is not aligned; please report this");
    int64_t reach = 1;
    for (int64_t i = 0; i < slot.tensor.dim(); ++i) reach += (slot.tensor.size(i) - 1) * slot.tensor.stride(i);
    const at::Tensor memory = slot.tensor.as_strided({reach}, {1});
    copies_.push_back(memory.clone());
    if (written) written_back_.emplace_back(memory, copies_.back());
    return copies_.back().mutable_data_ptr();
  }

  at::Tensor view(const TensorView& view) const {
    const Slot& slot = slots_[view.slot];
    if (view.whole && slot.tensor.defined()) return slot.tensor;
    if (C10_UNLIKELY(!slot.tensor.defined() && !slot.arena)) return {};  // a library call gave none
    const at::Tensor& base = slot.tensor.defined() ? slot.tensor : *slot.arena;
    const char* start = static_cast<const char*>(base.storage().data());
    const int64_t bytes = slot.pointer ? static_cast<const char*>(slot.pointer) - start : 0;
    const int64_t offset = bytes / static_cast<int64_t>(c10::elementSize(view.dtype)) + numbers_[view.offset];
    return tensor_over(base.storage(), view.dtype, values(view.sizes), values(view.strides), offset);
  }

  c10::IValue value(const TensorView& argument) const { return view(argument); }
  c10::IValue value(const NumberArgument& argument) const { return numbers_[argument.number]; }
  c10::IValue value(const LiteralArgument& argument) const { return argument.literal; }

  c10::IValue value(const NumbersArgument& argument) const {
    const auto list = values(argument.numbers);
    return c10::IValue(std::vector<int64_t>(list.begin(), list.end()));
  }

  c10::IValue value(const ViewsArgument& argument) const {
    c10::List<at::Tensor> list;
    for (const TensorView& part : argument.views) list.push_back(view(part));
    return list;
  }

  c10::IValue value(const OptionalViewsArgument& argument) const {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& part : argument.views) list.push_back(part ? std::optional(view(*part)) : std::nullopt);
    return list;
  }

  void take(const CallStep& step) {
    for (const CallArgument& argument : step.arguments)
      stack_.push_back(std::visit([this](const auto& kind) { return value(kind); }, argument));
    step.callee->callBoxed(stack_);
    for (size_t i = 0; i < step.results.size(); ++i)
      if (step.results[i]) hold(*step.results[i], conform(stack_[i].toTensor(), *step.layouts[i]));
    stack_.clear();  // what it was given may be freed before the next call
  }

  // A result whose strides were not foretold is copied.
  at::Tensor conform(at::Tensor result, const BufferLayout& layout) const {
    if (!result.defined() || !result.numel()) return result;
    TORCH_CHECK(result.scalar_type() == layout.dtype, "a library call gave ", result.scalar_type(), " where ",
                layout.dtype, " was foretold; please report this");
    for (size_t i = 0; i < layout.strides.size(); ++i) {
      if (result.size(i) > 1 && result.stride(i) != numbers_[layout.strides[i]]) return empty(layout).copy_(result);
    }
    return result;
  }

  PyObject* python(const TensorView& argument) const { return THPVariable_Wrap(view(argument)); }
  PyObject* python(const NumberArgument& argument) const { return PyLong_FromLongLong(numbers_[argument.number]); }
  PyObject* python(const ObjectOutput& argument) const { return Py_NewRef(argument.value.get()); }

  template <class Union>
  PyObject* to_python(const Union& argument) const {
    PyObject* result = std::visit([this](const auto& kind) { return python(kind); }, argument);
    if (!result) throw python_error();
    return result;
  }

  // An operator that only Python can call.
  void take(const PythonStep& step) {
    Ref arguments = Ref::steal(PyTuple_New(step.arguments.size()));
    for (size_t i = 0; i < step.arguments.size(); ++i)
      PyTuple_SET_ITEM(arguments.get(), i, to_python(step.arguments[i]));
    Ref result = Ref::steal(PyObject_CallObject(step.callee.get(), arguments.get()));
    if (!result) throw python_error();
    for (size_t i = 0; i < step.results.size(); ++i) {
      if (!step.results[i]) continue;
      Ref part = step.several ? Ref::steal(PySequence_GetItem(result.get(), i)) : Ref::share(result.get());
      if (!part) throw python_error();
      hold(*step.results[i], conform(THPVariable_Unpack(part.get()), *step.layouts[i]));
    }
  }

  const PlanRecord& plan_;
  std::vector<int64_t> numbers_;
  PyObject* arena_source_;
  std::vector<Slot> slots_;
  std::vector<at::Tensor> arenas_;
  std::vector<at::Tensor> copies_;
  std::vector<std::pair<at::Tensor, at::Tensor>> written_back_;  // memory that is not aligned, and the copy that was written
  DeviceStream stream_ = nullptr;
  std::vector<c10::IValue> stack_;
  std::vector<void*> pointers_;
  std::vector<int64_t> sizes_;
};

PyObject* run_steps(PyObject* self, PyObject* const* inputs, size_t flagged, PyObject* keywords, PyObject* arena_source,
                    bool& written) {
  const auto* object = as<PlanObject>(self);
  const PlanRecord& plan = object->plan;
  auto count = static_cast<size_t>(PyVectorcall_NARGS(flagged));
  PyObject* list = nullptr;
  if (plan.takes_list) {
    if (count != 1 || !PyList_Check(inputs[0]))
      return PyErr_Format(PyExc_TypeError, "the plan takes its inputs in one list");
    list = inputs[0];
    inputs = PySequence_Fast_ITEMS(list);
    count = PyList_GET_SIZE(list);
  }
  if (count != plan.inputs.size() || (keywords && PyTuple_GET_SIZE(keywords)))
    return PyErr_Format(PyExc_TypeError, "the plan takes %zu inputs, not %zu", plan.inputs.size(), count);
  HANDLE_TH_ERRORS
  // Everything below autograd: plans are functional, and gradients are the business of whoever calls them.
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const c10::OptionalDeviceGuard guard(
      plan.device ? std::optional(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(*plan.device)))
                  : std::nullopt);
  try {
    Execution execution(plan, inputs, arena_source);
    if (list && PyList_SetSlice(list, 0, PY_SSIZE_T_MAX, nullptr)) throw python_error();
    if (object->calls_python || plan.steps.size() <= SHORT_PLAN) {
      execution.run(written);
    } else {
      const pybind11::gil_scoped_release released;
      execution.run(written);
    }
    return execution.result();
  } catch (const NotForThese&) {
    if (object->otherwise) return PyObject_Vectorcall(object->otherwise.get(), inputs, count, nullptr);
    PyErr_SetString(PyExc_OverflowError, "a size of the plan has no 64-bit value, or an input is not aligned");
    return nullptr;
  }
  END_HANDLE_TH_ERRORS
}

PyObject* run_in(PyObject* self, PyObject* const* inputs, size_t flagged, PyObject* keywords, PyObject* arena_source) {
  bool written = false;
  PyObject* result = run_steps(self, inputs, flagged, keywords, arena_source, written);
  if (C10_LIKELY(result || !written)) return result;
  compat::SavedError error;
  error.mark(WRITTEN);
  error.restore();
  return nullptr;
}

PyObject* run_plan(PyObject* self, PyObject* const* inputs, size_t flagged, PyObject* keywords) {
  return run_in(self, inputs, flagged, keywords, nullptr);
}

// run_in(arena_source, *inputs): a call whose temporaries on devices lie in given memory.
PyObject* run_in_arenas(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 1) return PyErr_Format(PyExc_TypeError, "run_in takes a source of arenas, and the inputs");
  return run_in(self, arguments + 1, static_cast<size_t>(count - 1), nullptr, arguments[0]);
}

PyObject* plan_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *plain, *objects, *otherwise = Py_None;
  if (!PyArg_ParseTuple(arguments, "O!O!|O:Plan", &PyTuple_Type, &plain, &PyTuple_Type, &objects, &otherwise)) return nullptr;
  HANDLE_TH_ERRORS
  PlanRecord plan = read_plan(plain, objects);
  auto* self = make<PlanObject>(type);
  if (!self) return nullptr;
  self->vectorcall = run_plan;
  self->takes_list = plan.takes_list;
  self->calls_python = std::any_of(plan.steps.begin(), plan.steps.end(),
                                   [](const PlanStep& step) { return std::holds_alternative<PythonStep>(step); });
  self->plan = std::move(plan);
  self->otherwise = Ref::share(otherwise == Py_None ? nullptr : otherwise);
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

PyMethodDef plan_methods[] = {
    {"run_in", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_in_arenas)), METH_FASTCALL,
     "run_in(arena_source, *inputs): a call whose temporaries on devices lie in memory that arena_source(device, bytes) gives"},
    {},
};

}  // namespace

at::Tensor tensor_over(const c10::Storage& storage, at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                       int64_t offset) {
  const auto key = storage.device_type() == at::kCPU ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  at::Tensor made = at::detail::make_tensor<at::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key),
                                                            c10::scalarTypeToTypeMeta(dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return made;
}

PyObject* release_arenas(PyObject*, PyObject*) {
  arena_pool().release();
  Py_RETURN_NONE;
}

bool add_plan_types(PyObject* module) { 
  return add_type<PlanObject>(module, "stoker._C.Plan", plan_type, {slot(Py_tp_new, plan_new), {Py_tp_methods, plan_methods}},
                              {{"_boxed_call", T_BOOL, offsetof(PlanObject, takes_list), READONLY, nullptr}});
 }

}  // namespace stoker
