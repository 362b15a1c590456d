// Control flow on data over compiled graphs (stoker/graph/nested.py), without Python in between.
//
// Branch(first, second)(predicate, *inputs): what `first` gives of the inputs if the predicate holds, else what `second` gives.
// Loop(condition, body, carried)(*carried, *rest): `body` of what is carried and of the rest, for as long as `condition` gives true.
// Scan(step, carried, sequences, backwards)(*carried, *sequences, *rest): `step` of what is carried, of one element of each sequence
// after the other, and of the rest; what is carried last, then the step's other results, stacked.
#include "module.h"

#include "object_type.h"
#include "ref.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <vector>

namespace stoker {

namespace {

PyTypeObject *branch_type, *loop_type, *scan_type;

using Values = std::vector<Ref>;

// A callable's results. Throws if it raises.
Values called(const Ref& callable, const Values& arguments) {
  std::vector<PyObject*> borrowed;
  borrowed.reserve(arguments.size());
  for (const Ref& argument : arguments) borrowed.push_back(argument.get());
  const Ref result = Ref::steal(PyObject_Vectorcall(callable.get(), borrowed.data(), borrowed.size(), nullptr));
  if (!result) throw python_error();
  const Ref parts = Ref::steal(PySequence_Fast(result.get(), "a graph gives a tuple"));
  if (!parts) throw python_error();
  Values found;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(parts.get()); ++i)
    found.push_back(Ref::share(PySequence_Fast_GET_ITEM(parts.get(), i)));
  return found;
}

at::Tensor tensor_of(const Ref& value) {
  TORCH_CHECK_TYPE(THPVariable_Check(value.get()), "control flow over graphs is given tensors");
  return THPVariable_Unpack(value.get());
}

bool holds(const Ref& value) { return tensor_of(value).item().toBool(); }

Ref wrapped(const at::Tensor& tensor) {
  Ref made = Ref::steal(THPVariable_Wrap(tensor));
  if (!made) throw python_error();
  return made;
}

PyObject* as_tuple(const Values& values) {
  PyObject* made = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  if (!made) throw python_error();
  for (size_t i = 0; i < values.size(); ++i) PyTuple_SET_ITEM(made, i, Ref(values[i]).release());
  return made;
}

Values shared(PyObject* const* first, PyObject* const* last) {
  Values found;
  for (; first != last; ++first) found.push_back(Ref::share(*first));
  return found;
}

void append(Values& to, const Values& more) { to.insert(to.end(), more.begin(), more.end()); }

void let_interrupt() {
  if (PyErr_CheckSignals()) throw python_error();
}

struct Control {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Ref first, second;              // the graphs: a branch's two, a loop's condition and body, a scan's step
  Py_ssize_t carried, sequences;  // how many inputs go from round to round, and how many have an element for each
  int backwards;

  void each(const auto& visit) { visit(first), visit(second); }
};

bool too_few(Py_ssize_t count, Py_ssize_t least) {
  if (count >= least) return false;
  PyErr_Format(PyExc_TypeError, "control flow over graphs takes at least %zd inputs, not %zd", least, count);
  return true;
}

PyObject* run_branch(PyObject* object, PyObject* const* inputs, size_t flagged, PyObject*) {
  auto* self = as<Control>(object);
  const Py_ssize_t count = PyVectorcall_NARGS(flagged);
  if (too_few(count, 1)) return nullptr;
  HANDLE_TH_ERRORS
  const Ref& taken = holds(Ref::share(inputs[0])) ? self->first : self->second;
  return PyObject_Vectorcall(taken.get(), inputs + 1, count - 1, nullptr);
  END_HANDLE_TH_ERRORS
}

PyObject* run_loop(PyObject* object, PyObject* const* inputs, size_t flagged, PyObject*) {
  auto* self = as<Control>(object);
  const Py_ssize_t count = PyVectorcall_NARGS(flagged);
  if (too_few(count, self->carried)) return nullptr;
  HANDLE_TH_ERRORS
  const Values rest = shared(inputs + self->carried, inputs + count);
  Values given = shared(inputs, inputs + count);
  bool ran = false;
  while (holds(called(self->first, given).at(0))) {
    given = called(self->second, given);
    append(given, rest);
    ran = true;
    let_interrupt();
  }
  given.resize(self->carried);
  if (!ran)  // results are no one's memory but their own
    for (Ref& value : given) value = wrapped(tensor_of(value).clone());
  return as_tuple(given);
  END_HANDLE_TH_ERRORS
}

// The rows of a result, which the first one to come gives its shape.
struct Rows {
  at::Tensor all;

  void prepare(int64_t count, const at::Tensor& row) {
    if (all.defined()) return;
    std::vector<int64_t> sizes{count};
    sizes.insert(sizes.end(), row.sizes().begin(), row.sizes().end());
    all = at::empty(sizes, row.options());
  }
};

PyObject* run_scan(PyObject* object, PyObject* const* inputs, size_t flagged, PyObject*) {
  auto* self = as<Control>(object);
  const Py_ssize_t count = PyVectorcall_NARGS(flagged);
  if (too_few(count, self->carried + self->sequences)) return nullptr;
  HANDLE_TH_ERRORS
  Values carried = shared(inputs, inputs + self->carried);
  std::vector<at::Tensor> sequences;
  for (Py_ssize_t i = 0; i < self->sequences; ++i) sequences.push_back(tensor_of(Ref::share(inputs[self->carried + i])));
  const Values rest = shared(inputs + self->carried + self->sequences, inputs + count);
  const int64_t length = sequences.at(0).size(0);
  std::vector<Rows> rows;
  const auto step_on = [&](const auto& element_of) {
    Values given = carried;
    for (const at::Tensor& sequence : sequences) given.push_back(wrapped(element_of(sequence)));
    append(given, rest);
    Values found = called(self->first, given);
    rows.resize(found.size() - self->carried);
    for (size_t i = 0; i < rows.size(); ++i) rows[i].prepare(length, tensor_of(found[self->carried + i]));
    return found;
  };
  for (int64_t step = 0; step < length; ++step) {
    const int64_t index = self->backwards ? length - 1 - step : step;
    Values found = step_on([&](const at::Tensor& sequence) { return sequence.select(0, index); });
    for (size_t i = 0; i < rows.size(); ++i) rows[i].all.select(0, index).copy_(tensor_of(found[self->carried + i]));
    found.resize(self->carried);
    carried = std::move(found);
    let_interrupt();
  }
  if (length == 0) {
    // No step says what its rows look like: one is run on zeros. And results are no one's memory but their own.
    step_on([](const at::Tensor& sequence) { return at::zeros(sequence.sizes().slice(1), sequence.options()); });
    for (Ref& value : carried) value = wrapped(tensor_of(value).clone());
  }
  for (const Rows& row : rows) carried.push_back(wrapped(row.all));
  return as_tuple(carried);
  END_HANDLE_TH_ERRORS
}

template <vectorcallfunc RUN, bool IS_SCAN = false>
PyObject* control_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *first, *second = nullptr;
  Py_ssize_t carried = 0, sequences = 0;
  int backwards = 0;
  if (!(IS_SCAN ? PyArg_ParseTuple(arguments, "Onnp:Scan", &first, &carried, &sequences, &backwards)
                : PyArg_ParseTuple(arguments, "OO|n", &first, &second, &carried)))
    return nullptr;
  auto* self = make<Control>(type);
  if (!self) return nullptr;
  self->vectorcall = RUN;
  self->first = Ref::share(first);
  self->second = Ref::share(second);
  self->carried = carried, self->sequences = sequences, self->backwards = backwards;
  return reinterpret_cast<PyObject*>(self);
}

}  // namespace

bool add_control_types(PyObject* module) {
  return add_type<Control>(module, "stoker._C.Branch", branch_type, {slot(Py_tp_new, control_new<run_branch>)}) &&
         add_type<Control>(module, "stoker._C.Loop", loop_type, {slot(Py_tp_new, control_new<run_loop>)}) &&
         add_type<Control>(module, "stoker._C.Scan", scan_type, {slot(Py_tp_new, control_new<run_scan, true>)});
}

}  // namespace stoker
