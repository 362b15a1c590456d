// FrozenCall: a compiled graph, and values made of weights alone that are kept from call to call.
//
// FrozenCall(call, prepare, watched, without): `prepare` makes the kept tensors from the inputs at the watched positions, and
// runs again when one of these is another tensor, has another version, or another content: writes through `.data` or NumPy leave
// the version as it was, so a checksum of each is compared too. Where weights change too often for that to pay, `without()` gives a
// compiled graph that keeps nothing, and that one is called from then on.
#include "module.h"

#include "object_type.h"
#include "ref.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace stoker {

namespace {

PyTypeObject* frozen_type;

// Preparing this often, and for more than one call in four, is too often.
constexpr size_t MOST_PREPARED = 4;

// What tells one content of a weight from another.
struct Print {
  const c10::TensorImpl* tensor = nullptr;
  const void* data = nullptr;
  uint32_t version = 0;
  uint64_t checksum = 0;

  bool operator==(const Print&) const = default;
};

// A sum and a sum of sums, as Fletcher's, in lanes that a vector holds: it differs where an element does, or two change places.
uint64_t checksum_of(const char* data, size_t bytes) {
  constexpr size_t LANES = 16;
  uint64_t plain[LANES] = {}, running[LANES] = {};
  const size_t blocks = bytes / sizeof(plain);
  for (size_t block = 0; block < blocks; ++block) {
    uint64_t words[LANES];
    std::memcpy(words, data + block * sizeof(plain), sizeof(plain));
    for (size_t lane = 0; lane < LANES; ++lane) running[lane] += plain[lane] += words[lane];
  }
  uint64_t rest[LANES] = {};
  std::memcpy(rest, data + blocks * sizeof(plain), bytes - blocks * sizeof(plain));
  uint64_t sum = bytes;
  for (size_t lane = 0; lane < LANES; ++lane)
    for (const uint64_t part : {plain[lane], running[lane], rest[lane]}) sum = (sum ^ part) * 0x9E3779B97F4A7C15u + (sum >> 29);
  return sum;
}

// Of a weight that is large, parts by several threads.
uint64_t checksum_of(const at::Tensor& tensor) {
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  const int64_t bytes = tensor.numel() * static_cast<int64_t>(tensor.element_size());
  constexpr int64_t PART = 1 << 16;
  std::vector<uint64_t> parts((bytes + PART - 1) / PART);
  at::parallel_for(0, static_cast<int64_t>(parts.size()), 8, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) parts[i] = checksum_of(data + i * PART, std::min(PART, bytes - i * PART));
  });
  return checksum_of(reinterpret_cast<const char*>(parts.data()), parts.size() * sizeof(uint64_t));
}

Print print_of(const at::Tensor& tensor) {
  Print print{tensor.unsafeGetTensorImpl(), tensor.const_data_ptr(), 0, 0};
  const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
  if (counter.enabled()) print.version = counter.current_version();
  if (tensor.numel() && tensor.is_cpu())
    print.checksum = checksum_of(tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous());
  return print;
}

struct FrozenObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Ref call, prepare, without, kept;
  size_t calls, prepared;
  std::vector<Py_ssize_t> watched;
  std::vector<Print> seen;
};

// Are the watched inputs as they were? Remembers them as they are.
bool unchanged(FrozenObject* self, PyObject* const* inputs) {
  bool same = static_cast<bool>(self->kept);
  for (size_t i = 0; i < self->watched.size(); ++i) {
    const Print print = print_of(THPVariable_Unpack(inputs[self->watched[i]]));
    if (print == self->seen[i]) continue;
    self->seen[i] = print;
    same = false;
  }
  return same;
}

bool refresh(FrozenObject* self, PyObject* const* inputs) {
  std::vector<PyObject*> weights;
  for (const Py_ssize_t position : self->watched) weights.push_back(inputs[position]);
  ++self->prepared;
  self->kept = Ref::steal(PyObject_Vectorcall(self->prepare.get(), weights.data(), weights.size(), nullptr));
  if (self->kept && PyTuple_Check(self->kept.get())) return true;
  if (self->kept) PyErr_SetString(PyExc_TypeError, "what prepares kept values returns a tuple");
  self->kept.clear();
  return false;
}

// From now on, a graph that keeps nothing.
bool give_up(FrozenObject* self) {
  Ref plain = Ref::steal(PyObject_CallNoArgs(self->without.get()));
  if (!plain) return false;
  self->call = std::move(plain);
  self->watched.clear();
  self->kept = Ref::steal(PyTuple_New(0));
  return static_cast<bool>(self->kept);
}

PyObject* run_frozen(PyObject* object, PyObject* const* inputs, size_t flagged, PyObject* keywords) {
  auto* self = as<FrozenObject>(object);
  const Py_ssize_t count = PyVectorcall_NARGS(flagged);
  if (keywords && PyTuple_GET_SIZE(keywords)) return PyErr_Format(PyExc_TypeError, "a compiled graph takes no keywords");
  for (const Py_ssize_t position : self->watched)
    if (position >= count || !THPVariable_Check(inputs[position]))
      return PyErr_Format(PyExc_TypeError, "input %zd of a compiled graph is not a tensor", position);
  HANDLE_TH_ERRORS
  ++self->calls;
  if (!unchanged(self, inputs)) {
    const bool often = self->prepared >= MOST_PREPARED && self->prepared * 4 > self->calls;
    if (!(often ? give_up(self) : refresh(self, inputs))) return nullptr;
  }
  const Ref call = self->call;
  const Ref kept = self->kept;  // another thread may replace both meanwhile
  std::vector<PyObject*> all(inputs, inputs + count);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kept.get()); ++i) all.push_back(PyTuple_GET_ITEM(kept.get(), i));
  return PyObject_Vectorcall(call.get(), all.data(), all.size(), nullptr);
  END_HANDLE_TH_ERRORS
}

PyObject* frozen_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *call, *prepare, *watched, *without;
  if (!PyArg_ParseTuple(arguments, "OOO!O:FrozenCall", &call, &prepare, &PyTuple_Type, &watched, &without)) return nullptr;
  auto* self = make<FrozenObject>(type);
  if (!self) return nullptr;
  self->vectorcall = run_frozen;
  self->call = Ref::share(call);
  self->prepare = Ref::share(prepare);
  self->without = Ref::share(without);
  self->seen.resize(PyTuple_GET_SIZE(watched));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(watched); ++i)
    self->watched.push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(watched, i)));
  return reinterpret_cast<PyObject*>(self);
}

}  // namespace

bool add_frozen_types(PyObject* module) { 
  return add_type<FrozenObject>(module, "stoker._C.FrozenCall", frozen_type, {slot(Py_tp_new, frozen_new)});
 }

}  // namespace stoker
