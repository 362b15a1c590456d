#include "dispatch.h"

#include "frame_hook.h"
#include "guard_program.h"

#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace stoker {

namespace {

struct Failure {
  Ref entry;
  int guard;
};
using Failures = std::vector<Failure>;

// The guard index reported for an entry that was made for other globals.
constexpr int OTHER_GLOBALS = -1;

// The function that runs the entry's code: one for all calls, or one per call where there is a closure to carry.
Ref entry_function(Entry* entry, PyFunctionObject* original) {
  if (entry->function) return entry->function;
  Ref made = Ref::steal(PyFunction_NewWithQualName(reinterpret_cast<PyObject*>(entry->code.get()), original->func_globals,
                                                   original->func_qualname));
  if (!made) return made;
  auto* function = reinterpret_cast<PyFunctionObject*>(made.get());
  Py_SETREF(function->func_name, Py_NewRef(original->func_name));
  if (!entry->globals) entry->globals = Ref::share(original->func_globals);
  if (compat::code_free_count(entry->code.get()) > 0)
    Py_XSETREF(function->func_closure, Py_XNewRef(original->func_closure));
  else
    entry->function = made;
  return made;
}

PyObject* run_entry(const Call& call, Entry* entry, PyObject** arguments) {
  Ref function = entry_function(entry, call.function);
  if (!function) return nullptr;
  ++entry->hits;
  HookScope scope(entry->keeps_hook ? call.compiler : nullptr);
  PassThrough pass(entry->keeps_hook ? entry->code.get() : nullptr);
  const vectorcallfunc run = reinterpret_cast<PyFunctionObject*>(function.get())->vectorcall;
  return run(function.get(), arguments, call.count + entry->guards->slot_count, nullptr);
}

// GUARDS_HOLD and a result (null: exception), or the index of the guard that failed.
int try_entry(const Call& call, Entry* entry, PyObject** result) {
  if (entry->globals && entry->globals.get() != call.function->func_globals) return OTHER_GLOBALS;
  const Py_ssize_t slots = entry->guards->slot_count;
  ArgumentArray arguments(call.count + slots);
  PyObject** fetched = arguments.get() + call.count;
  int failed = check_guards(entry->guards.get(), call.bound, call.count, call.function, fetched);
  if (failed != GUARDS_HOLD) return failed;
  std::copy_n(call.bound, call.count, arguments.get());
  *result = run_entry(call, entry, arguments.get());
  for (Py_ssize_t i = 0; i < slots; ++i) Py_DECREF(fetched[i]);
  return GUARDS_HOLD;
}

// An error of a graph that has written to nothing (UNTOUCHED) is taken back: CPython runs the frame from its start, does what the
// program does before the error, and raises eager's own.
Outcome finished(PyObject* result) {
  if (result) return Outcome::DONE;
  compat::SavedError error;
  const bool untouched = error.has(UNTOUCHED);
  error.restore();
  if (!untouched) return Outcome::DONE;
  PyErr_Clear();
  return Outcome::ORIGINAL_DEEP;
}

constexpr size_t STEADY = 16;
bool try_entries(const Call& call, Record* record, Failures& failures, PyObject** result) {
  const size_t recent = record->streak < STEADY ? 0 : record->recent;
  for (size_t turn = 0; turn < record->entries.size(); ++turn) {
    // In order, so that equal calls run what they ran before, whatever was compiled meanwhile; but first one that runs always.
    size_t index = turn == 0 ? recent : turn <= recent ? turn - 1 : turn;
    if (index >= record->entries.size()) continue;
    Ref entry = record->entries[index];
    int failed = try_entry(call, reinterpret_cast<Entry*>(entry.get()), result);
    if (failed == GUARDS_HOLD) {
      record->streak = index == record->recent ? record->streak + 1 : 0;
      record->recent = index;
      return true;
    }
    failures.push_back({std::move(entry), failed});
  }
  return false;
}

Ref ask_compiler(const Call& call, const Failures& failures) {
  Ref bound = Ref::steal(PyList_New(call.count));
  if (!bound) return bound;
  for (Py_ssize_t i = 0; i < call.count; ++i) PyList_SET_ITEM(bound.get(), i, Py_NewRef(call.bound[i]));
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return list;
  for (const Failure& failure : failures) {
    Ref pair = Ref::steal(Py_BuildValue("(Oi)", failure.entry.get(), failure.guard));
    if (!pair || PyList_Append(list.get(), pair.get()) < 0) return Ref();
  }
  const Ref on_miss = call.compiler->on_miss;
  if (!on_miss) {
    PyErr_SetString(PyExc_RuntimeError, "this Compiler has no on_miss");
    return Ref();
  }
  PyObject* arguments[] = {reinterpret_cast<PyObject*>(call.code), reinterpret_cast<PyObject*>(call.function), bound.get(),
                           list.get()};
  HookScope off(nullptr);
  return Ref::steal(PyObject_Vectorcall(on_miss.get(), arguments, 4, nullptr));
}

bool entry_fits(const Call& call, Entry* entry) {
  const Py_ssize_t given = call.count + entry->guards->slot_count;
  if (entry->code->co_argcount != given) {
    PyErr_Format(PyExc_TypeError, "the entry for %U takes %d arguments, its frame and guards give %zd", call.code->co_qualname,
                 entry->code->co_argcount, given);
    return false;
  }
  const int free_count = compat::code_free_count(entry->code.get());
  if (free_count != 0 && free_count != compat::code_free_count(call.code)) {
    PyErr_Format(PyExc_TypeError, "the entry for %U has other free variables", call.code->co_qualname);
    return false;
  }
  return true;
}

// Runs an entry that on_miss has just made. Its guards may fail at once, if making it changed what they look at.
Outcome run_new_entry(const Call& call, const Ref& answer, PyObject** result) {
  auto* entry = reinterpret_cast<Entry*>(answer.get());
  if (!entry_fits(call, entry)) return Outcome::DONE;
  Record* record = make_record(call.code, call.compiler);
  if (!record) return Outcome::DONE;
  auto known = std::find_if(record->entries.begin(), record->entries.end(),
                            [&](const Ref& other) { return other.get() == answer.get(); });
  record->recent = known - record->entries.begin(), record->streak = 0;
  if (known == record->entries.end()) record->entries.push_back(answer);
  return try_entry(call, entry, result) == GUARDS_HOLD ? finished(*result) : Outcome::ORIGINAL;
}

Outcome take_action(const Call& call, PyObject* answer) {
  int overflow = 0;
  long number = PyLong_Check(answer) ? PyLong_AsLongAndOverflow(answer, &overflow) : -1;
  if (number < 0 || overflow || number > static_cast<long>(Action::FREEZE)) {
    PyErr_Format(PyExc_TypeError, "on_miss returned %R, not an Entry, RUN_ONCE, SKIP, SKIP_DEEP or FREEZE", answer);
    return Outcome::DONE;
  }
  Record* record = make_record(call.code, call.compiler);
  if (!record) return Outcome::DONE;
  auto action = static_cast<Action>(number);
  if (action != Action::RUN_ONCE) record->state = action;
  return action == Action::SKIP_DEEP ? Outcome::ORIGINAL_DEEP : Outcome::ORIGINAL;
}

// Does a mode want to see the operators of the program, one by one? That which detects anomalies names the line of each.
bool wants_each_operator() {
  return c10::impl::TorchDispatchModeTLS::any_modes_set() || torch::autograd::AnomalyMode::is_enabled();
}

// One tail call: bound arguments are its tuple's items.
PyObject* run_tail_call(Compiler* compiler, const TailCall* tail) {
  PyObject* function = tail->function.get();
  PyObject* const* items = &PyTuple_GET_ITEM(tail->arguments.get(), 0);
  const Py_ssize_t count = PyTuple_GET_SIZE(tail->arguments.get());
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const bool plain = code->co_argcount == count && bound_count(code) == count;
  if (!plain || !is_replaceable(code)) return call_original(compiler, function, items, count, nullptr);
  Record* record = make_record(code, compiler);
  if (!record) return nullptr;
  PyObject* result = nullptr;
  Call call{compiler, code, reinterpret_cast<PyFunctionObject*>(function), items, count};
  const Outcome outcome = dispatch(call, record, &result);
  if (outcome == Outcome::DONE) return result;
  return call_original(outcome == Outcome::ORIGINAL ? compiler : nullptr, function, items, count, nullptr);
}

}  // namespace

Outcome dispatch(const Call& call, Record* known, PyObject** result) {
  if (known->state == Action::SKIP) return Outcome::ORIGINAL;
  if (known->state == Action::SKIP_DEEP) return Outcome::ORIGINAL_DEEP;
  if (wants_each_operator()) return Outcome::ORIGINAL_DEEP;
  RecordHold record(known);
  Failures failures;
  if (try_entries(call, known, failures, result)) return finished(*result);
  if (record->state == Action::FREEZE) return Outcome::ORIGINAL;

  Ref code = Ref::share(reinterpret_cast<PyObject*>(call.code));
  Ref answer = ask_compiler(call, failures);
  if (!answer) return Outcome::DONE;
  if (is_entry(answer.get())) return run_new_entry(call, answer, result);
  return take_action(call, answer.get());
}

PyObject* follow_tail_calls(Compiler* compiler, PyObject* result) {
  while (result && Py_TYPE(result) == tail_call_type) {
    Ref tail = Ref::steal(result);
    result = run_tail_call(compiler, reinterpret_cast<TailCall*>(tail.get()));
  }
  return result;
}

PyObject* call_original(Compiler* compiler, PyObject* callable, PyObject* const* arguments, size_t count,
                        PyObject* keyword_names) {
  HookScope scope(compiler);
  const bool seen = compiler && PyFunction_Check(callable);
  PassThrough pass(seen ? reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(callable)) : nullptr);
  return PyObject_Vectorcall(callable, arguments, count, keyword_names);
}

}  // namespace stoker
