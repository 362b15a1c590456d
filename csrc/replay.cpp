// Replay(description): calls a recorded graph on the inputs of the plan it was recorded from; NotImplemented where it cannot.
//
// What the graph reads and writes lies where it lay when it was recorded, but for inputs that change: those are copied to where
// the graph reads them, or the parameters of the nodes that hold their address are changed in the instantiated graph, which
// affects later launches alone. Results lie in memory of the recording; while somebody still has one of the last, the graph
// cannot run. stoker/cudagraph/recording.py makes the description, of the fields named in `build`.
#include "module.h"

#include "cuda_driver.h"
#include "object_type.h"
#include "plan_executor.h"
#include "record_reader.h"
#include "ref.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <optional>
#include <vector>

namespace stoker {

namespace {

PyTypeObject* replay_type;

constexpr uintptr_t ALIGNMENT = 16;  // kernels were chosen for memory that is aligned so
// Where CUDA_KERNEL_NODE_PARAMS holds the pointers to its parameters, and to one buffer of them all.
constexpr size_t PARAMETERS_AT = 40, EXTRA_AT = 48;

// The driver's functions that change a node of an instantiated graph; that for kernels ignores the context.
using SetNode = int (*)(void* executable, void* node, const void* record, void* context);

// A node that holds addresses of inputs.
struct Node {
  SetNode set{};
  void *handle{}, *context{};
  std::vector<char> record;                 // the driver's structure
  std::vector<std::vector<char>> buffers;   // a kernel's parameters, or the one buffer of them
  bool extra{};                             // is there one buffer?
  std::vector<void*> pointers;              // to the parameters; or the marks, buffer and size of `extra`
  size_t extra_bytes{};
  bool stale{};

  void each(const auto& field) {
    field("set", set), field("handle", handle), field("context", context), field("record", record);
    field("parameters", buffers), field("extra", extra);
  }
};

// Where an address stands: in a buffer of a node, or in its record; and how far into the input it points.
struct Word {
  size_t node{};
  int64_t buffer{}, offset{}, delta{};

  void each(const auto& field) { field("node", node), field("buffer", buffer), field("offset", offset), field("delta", delta); }
};

struct Changing {
  size_t input{};
  at::Tensor place;  // bytes: where the graph reads it unless patched
  char* now{};       // where the graph reads it at present
  std::vector<Word> words;
  bool patches{}, written{};

  void each(const auto& field) {
    field("input", input), field("place", place), field("words", words), field("patches", patches), field("written", written);
  }
};

struct Result {
  enum class Kind : uint8_t { ITSELF, INPUT, HOME, LASTING, OBJECT, SAME } kind{};  // ITSELF: an input, INPUT: a view of one
  Ref value;       // the object itself, or an index
  size_t index{};  // of an input, of a piece of memory, or of an earlier result
  std::optional<at::ScalarType> dtype;
  std::vector<int64_t> sizes, strides;
  int64_t offset{};

  void each(const auto& field) {
    field("kind", kind), field("value", value), field("dtype", dtype), field("sizes", sizes);
    field("strides", strides), field("offset", offset);
  }
};

// A number that the recording holds for: a size (dimension >= 0), a stride (from -2 down), or the input itself (-1).
struct Held {
  size_t input{};
  int64_t dimension{}, value{};

  void each(const auto& field) { field("input", input), field("dimension", dimension), field("value", value); }
};

// An input that stays where it was.
struct Fixed {
  size_t input{};
  void* address{};

  void each(const auto& field) { field("input", input), field("address", address); }
};

struct Recording {
  Ref launch;  // None: the driver launches the graph
  Ref owner;   // of the graph, and of what it works in
  void* executable{};
  DeviceStream stream{};
  int64_t device{};
  size_t input_count{};
  std::vector<Node> nodes;
  std::vector<Fixed> fixed;
  std::vector<Changing> changing;
  std::vector<c10::Storage> homes;    // of results
  std::vector<c10::Storage> lasting;  // of results that no replay writes
  std::vector<Result> results;
  std::vector<Held> held;
  std::vector<size_t> aligned;  // inputs that the plan is for only where they are aligned

  void each(const auto& field) {
    field("launch", launch), field("owner", owner), field("executable", executable), field("stream", stream);
    field("device", device);
    field("input_count", input_count), field("nodes", nodes), field("fixed", fixed), field("changing", changing);
    field("homes", homes), field("lasting", lasting), field("results", results), field("held", held);
    field("aligned", aligned);
  }
};

// Why a call could not be replayed, told by `reason`.
enum class Reason : int { NONE, MOVED, OTHER_SIZE, RESULTS_IN_USE, OTHER_STREAM, RUNNING, REFUSED, LAZY, UNALIGNED };

struct ReplayObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Recording recording;
  int reason;
  long long copied_bytes, patched_nodes, replays;
  char running;
};

const at::Tensor& tensor_in(PyObject* const* inputs, size_t index) { return THPVariable_Unpack(inputs[index]); }

bool holds(const Held& held, PyObject* const* inputs) {
  if (held.dimension == -1) return PyLong_AsLongLong(inputs[held.input]) == held.value && !PyErr_Occurred();
  const at::Tensor& tensor = tensor_in(inputs, held.input);
  return (held.dimension >= 0 ? tensor.size(held.dimension) : tensor.stride(-2 - held.dimension)) == held.value;
}

// Is a tensor not what its memory says?
bool is_lazy(const at::Tensor& tensor) { return tensor.is_neg() || tensor.is_conj() || tensor._is_zerotensor(); }

Reason obstacle(ReplayObject* self, PyObject* const* inputs) {
  Recording& recording = self->recording;
  if (self->running) return Reason::RUNNING;
  for (const Held& held : recording.held)
    if (!holds(held, inputs)) return Reason::OTHER_SIZE;
  for (const auto& [input, address] : recording.fixed)
    if (is_lazy(tensor_in(inputs, input)) || tensor_in(inputs, input).const_data_ptr() != address) return Reason::MOVED;
  for (const Changing& changing : recording.changing)
    if (is_lazy(tensor_in(inputs, changing.input))) return Reason::LAZY;
  for (const size_t input : recording.aligned)
    if (reinterpret_cast<uintptr_t>(tensor_in(inputs, input).const_data_ptr()) % ALIGNMENT) return Reason::UNALIGNED;
  for (const c10::Storage& home : recording.homes)
    if (home.use_count() > 1) return Reason::RESULTS_IN_USE;
  return current_stream(static_cast<int>(recording.device)) == recording.stream ? Reason::NONE : Reason::OTHER_STREAM;
}

at::Tensor bytes_of(const at::Tensor& tensor, int64_t count) {
  const char* start = static_cast<const char*>(tensor.storage().data());
  return tensor_over(tensor.storage(), at::kByte, {count}, {1}, static_cast<const char*>(tensor.const_data_ptr()) - start);
}

void point(Recording& recording, Changing& changing, char* address) {
  for (const Word& word : changing.words) {
    Node& node = recording.nodes[word.node];
    std::vector<char>& where = word.buffer < 0 ? node.record : node.buffers[word.buffer];
    const char* target = address + word.delta;
    std::memcpy(where.data() + word.offset, &target, sizeof(target));
    node.stale = true;
  }
  changing.now = address;
}

// False where the driver refuses to change a node.
bool bring(ReplayObject* self, PyObject* const* inputs) {
  for (Changing& changing : self->recording.changing) {
    const at::Tensor& input = tensor_in(inputs, changing.input);
    if (!input.numel()) continue;
    auto* address = static_cast<char*>(input.mutable_data_ptr());
    if (changing.patches && reinterpret_cast<uintptr_t>(address) % ALIGNMENT == 0) {
      if (address != changing.now) point(self->recording, changing, address);
      continue;
    }
    auto* place = static_cast<char*>(changing.place.mutable_data_ptr());
    if (changing.now != place) point(self->recording, changing, place);
    const auto bytes = static_cast<int64_t>(at::detail::computeStorageNbytes(input.sizes(), input.strides(), input.element_size()));
    changing.place.narrow(0, 0, bytes).copy_(bytes_of(input, bytes), /*non_blocking=*/true);
    self->copied_bytes += bytes;
  }
  for (Node& node : self->recording.nodes) {
    if (!node.stale) continue;
    if (node.set(self->recording.executable, node.handle, node.record.data(), node.context)) return false;
    node.stale = false;
    ++self->patched_nodes;
  }
  return true;
}

void start(const Recording& recording) {
  if (recording.launch.get() == Py_None) {
    enter_device(static_cast<int>(recording.device));
    const pybind11::gil_scoped_release others;  // a full queue lets the launch wait
    launch_graph(recording.executable, recording.stream);
  } else {
    const Ref launched = Ref::steal(PyObject_CallNoArgs(recording.launch.get()));
    if (!launched) throw python_error();
  }
}

// What the graph wrote to places goes to the inputs that were copied there.
void take_back(const Recording& recording, PyObject* const* inputs) {
  for (const Changing& changing : recording.changing) {
    const at::Tensor& input = tensor_in(inputs, changing.input);
    if (!changing.written || changing.now != changing.place.const_data_ptr() || !input.numel()) continue;
    input.copy_(tensor_over(changing.place.storage(), input.scalar_type(), input.sizes(), input.strides(), 0));
  }
}

PyObject* result_of(const Recording& recording, const Result& result, PyObject* const* inputs) {
  if (result.kind == Result::Kind::OBJECT) return Py_NewRef(result.value.get());
  if (result.kind == Result::Kind::ITSELF) return Py_NewRef(inputs[result.index]);
  const at::Tensor* base = result.kind == Result::Kind::INPUT ? &tensor_in(inputs, result.index) : nullptr;
  const std::vector<c10::Storage>& own = result.kind == Result::Kind::HOME ? recording.homes : recording.lasting;
  return THPVariable_Wrap(tensor_over(base ? base->storage() : own[result.index], *result.dtype, result.sizes, result.strides,
                                      result.offset + (base ? base->storage_offset() : 0)));
}

PyObject* run_replay(PyObject* object, PyObject* const* inputs, size_t flagged, PyObject* keywords) {
  auto* self = as<ReplayObject>(object);
  Recording& recording = self->recording;
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flagged));
  if (count != recording.input_count || (keywords && PyTuple_GET_SIZE(keywords)))
    return PyErr_Format(PyExc_TypeError, "the recording takes %zu inputs, not %zu", recording.input_count, count);
  HANDLE_TH_ERRORS
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const Reason reason = obstacle(self, inputs);
  self->reason = static_cast<int>(reason);
  if (PyErr_Occurred()) PyErr_Clear();  // a number that fits no recording
  if (reason != Reason::NONE) return Py_NewRef(Py_NotImplemented);
  self->running = true;  // a launch lets other threads run: none of them may change the graph meanwhile
  const auto done = c10::make_scope_exit([self] { self->running = false; });
  if (!bring(self, inputs)) {
    self->reason = static_cast<int>(Reason::REFUSED);
    return Py_NewRef(Py_NotImplemented);
  }
  start(recording);
  take_back(recording, inputs);
  ++self->replays;
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(recording.results.size())));
  for (size_t i = 0; i < recording.results.size(); ++i) {
    const Result& result = recording.results[i];
    PyObject* value = result.kind == Result::Kind::SAME ? Py_NewRef(PyTuple_GET_ITEM(tuple.get(), result.index))
                                                        : result_of(recording, result, inputs);
    if (!value) throw python_error();
    PyTuple_SET_ITEM(tuple.get(), i, value);
  }
  return tuple.release();
  END_HANDLE_TH_ERRORS
}

class RecordingReader : public RecordReader<RecordingReader> {
 public:
  using RecordReader::read;

  void read(PyObject* from, Ref& to) const { to = Ref::share(from); }
  void read(PyObject* from, SetNode& to) const { to = reinterpret_cast<SetNode>(get<void*>(from)); }

  void read(PyObject* from, void*& to) const {
    require(PyLong_Check(from), "an address", from);
    to = PyLong_AsVoidPtr(from);
    if (PyErr_Occurred()) throw python_error();
  }

  void read(PyObject* from, std::vector<char>& to) const {
    require(PyBytes_Check(from), "bytes", from);
    to.assign(PyBytes_AS_STRING(from), PyBytes_AS_STRING(from) + PyBytes_GET_SIZE(from));
  }

  void read(PyObject* from, at::Tensor& to) const {
    require(THPVariable_Check(from), "a tensor", from);
    to = THPVariable_Unpack(from);
  }

  void read(PyObject* from, at::ScalarType& to) const {
    require(THPDtype_Check(from), "a dtype", from);
    to = reinterpret_cast<THPDtype*>(from)->scalar_type;
  }

  void read(PyObject* from, c10::Storage& to) const { to = get<at::Tensor>(from).storage(); }
};

// Lets a kernel's record point to our copies of its parameters. Called once the node stays where it is.
void tie(Node& node) {
  if (node.buffers.empty()) return;
  void *parameters = nullptr, *extra = nullptr;
  if (node.extra) {
    node.extra_bytes = node.buffers[0].size();
    // CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE and _END
    node.pointers = {reinterpret_cast<void*>(1), node.buffers[0].data(), reinterpret_cast<void*>(2), &node.extra_bytes, nullptr};
    extra = node.pointers.data();
  } else {
    for (std::vector<char>& buffer : node.buffers) node.pointers.push_back(buffer.data());
    parameters = node.pointers.data();
  }
  TORCH_CHECK(node.record.size() >= EXTRA_AT + sizeof(extra), "malformed recording: a kernel's record is too short");
  std::memcpy(node.record.data() + PARAMETERS_AT, &parameters, sizeof(parameters));
  std::memcpy(node.record.data() + EXTRA_AT, &extra, sizeof(extra));
}

Recording build(PyObject* described) {
  return reading("a recording", [&] {
    const RecordingReader reader;
    auto made = reader.get<Recording>(described);
    for (Node& node : made.nodes) tie(node);
    for (Changing& changing : made.changing) changing.now = static_cast<char*>(changing.place.mutable_data_ptr());
    for (Result& result : made.results)
      if (result.kind != Result::Kind::OBJECT) result.index = reader.get<size_t>(result.value.get());
    return made;
  });
}

PyObject* replay_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject* described;
  if (!PyArg_ParseTuple(arguments, "O:Replay", &described)) return nullptr;
  HANDLE_TH_ERRORS
  Recording recording = build(described);
  auto* self = make<ReplayObject>(type);
  if (!self) return nullptr;
  self->vectorcall = run_replay;
  self->recording = std::move(recording);
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

// patch(inputs): these are patched from now on, the other inputs that change are copied.
PyObject* patch(PyObject* object, PyObject* inputs) {
  for (Changing& changing : as<ReplayObject>(object)->recording.changing) {
    Ref number = Ref::steal(PyLong_FromSize_t(changing.input));
    const int found = PySequence_Contains(inputs, number.get());
    if (found < 0) return nullptr;
    changing.patches = found;
  }
  Py_RETURN_NONE;
}

PyMethodDef replay_methods[] = {
    {"patch", patch, METH_O, "patch(inputs): these are patched from now on, the others that change are copied"},
    {},
};
}  // namespace

bool add_replay_types(PyObject* module) {
  return add_type<ReplayObject>(module, "stoker._C.Replay", replay_type,
                                {slot(Py_tp_new, replay_new), {Py_tp_methods, replay_methods}},
                                {{"reason", T_INT, offsetof(ReplayObject, reason), READONLY, nullptr},
                                 {"copied_bytes", T_LONGLONG, offsetof(ReplayObject, copied_bytes), READONLY, nullptr},
                                 {"patched_nodes", T_LONGLONG, offsetof(ReplayObject, patched_nodes), READONLY, nullptr},
                                 {"replays", T_LONGLONG, offsetof(ReplayObject, replays), READONLY, nullptr}});
}

}  // namespace stoker
