#include "frame_hook.h"

#include "code_cache.h"
#include "dispatch.h"
#include "ref.h"

namespace stoker {

constinit thread_local HookThread hook_thread __attribute__((tls_model("initial-exec"))) = {nullptr, nullptr,
                                                                                              Stance::COMPILED, nullptr};

namespace {

int active_threads = 0;
_PyFrameEvalFunction previous_evaluator = nullptr;
// Code that only returns None, without RESUME, a stack or constants of its own: it ends a frame that is not to be run.
PyCodeObject* end_frame_code = nullptr;

PyObject* run_frame(PyThreadState* thread, compat::Frame* frame, int throws) {
  return previous_evaluator ? previous_evaluator(thread, frame, throws) : _PyEval_EvalFrameDefault(thread, frame, throws);
}

// Disposes of a frame whose result came from elsewhere.
void end_frame(PyThreadState* thread, compat::Frame* frame) {
  if constexpr (compat::EVALUATOR_CLEARS_FRAME) {
    compat::SavedError error;
    compat::frame_replace_code(frame, end_frame_code);
    Py_XDECREF(_PyEval_EvalFrameDefault(thread, frame, 0));
    PyErr_Clear();
    error.restore();
  }
}

// Whether the frame is one that gives an answer in place of running.
bool is_answered(compat::Frame* frame, int throws) {
  const Answer* answer = hook_thread.answer;
  return answer && !throws && answer->code && compat::frame_code(frame) == answer->code;
}

PyObject* give_answer(PyThreadState* thread, compat::Frame* frame) {
  Answer* answer = hook_thread.answer;
  answer->code = nullptr;
  end_frame(thread, frame);
  if (!answer->raises) return Py_NewRef(answer->given);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(answer->given)), answer->given);
  return nullptr;
}

PyObject* evaluate(PyThreadState* thread, compat::Frame* frame, int throws) {
  if (is_answered(frame, throws)) return give_answer(thread, frame);
  Compiler* compiler = hook_thread.active;
  if (!compiler || throws || hook_thread.stance == Stance::EAGER) return run_frame(thread, frame, throws);
  PyCodeObject* code = compat::frame_code(frame);
  if (code == hook_thread.pass_through) {
    hook_thread.pass_through = nullptr;
    return run_frame(thread, frame, throws);
  }
  if (!is_replaceable(code)) return run_frame(thread, frame, throws);

  Record* record = make_record(code, compiler);
  if (record && record->state == Action::SKIP) return run_frame(thread, frame, throws);
  PyObject* result = nullptr;
  Outcome outcome = Outcome::DONE;
  if (record) {
    auto* function = reinterpret_cast<PyFunctionObject*>(compat::frame_function(frame));
    Call call{compiler, code, function, compat::frame_slots(frame), bound_count(code)};
    outcome = dispatch(call, record, &result);
  }
  switch (outcome) {
    case Outcome::ORIGINAL:
      return run_frame(thread, frame, throws);
    case Outcome::ORIGINAL_DEEP: {
      HookScope off(nullptr);
      return run_frame(thread, frame, throws);
    }
    case Outcome::DONE:
      break;
  }
  result = follow_tail_calls(compiler, result);
  end_frame(thread, frame);
  return result;
}

PyCodeObject* make_end_frame_code() {
  Ref empty = Ref::steal(reinterpret_cast<PyObject*>(PyCode_NewEmpty("<stoker>", "<end of frame>", 1)));
  Ref opcode = Ref::steal(PyImport_ImportModule("opcode"));
  if (!empty || !opcode) return nullptr;
  Ref numbers = Ref::steal(PyObject_GetAttrString(opcode.get(), "opmap"));
  if (!numbers) return nullptr;
  Ref number = Ref::steal(PyMapping_GetItemString(numbers.get(), "RETURN_CONST"));
  if (!number) return nullptr;
  const char text[2] = {static_cast<char>(PyLong_AsLong(number.get())), 0};
  Ref replace = Ref::steal(PyObject_GetAttrString(empty.get(), "replace"));
  Ref keywords = Ref::steal(Py_BuildValue("{s:y#,s:(O)}", "co_code", text, Py_ssize_t{2}, "co_consts", Py_None));
  Ref none = Ref::steal(PyTuple_New(0));
  if (!replace || !keywords || !none) return nullptr;
  return reinterpret_cast<PyCodeObject*>(PyObject_Call(replace.get(), none.get(), keywords.get()));
}

}  // namespace

void hook_acquire() {
  if (active_threads++ > 0) return;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  _PyFrameEvalFunction present = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  previous_evaluator = present == _PyEval_EvalFrameDefault ? nullptr : present;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

void hook_release() {
  if (--active_threads > 0) return;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluate) return;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, previous_evaluator ? previous_evaluator : _PyEval_EvalFrameDefault);
}

bool prepare_frame_hook() {
  if constexpr (compat::EVALUATOR_CLEARS_FRAME) {
    end_frame_code = make_end_frame_code();
    return end_frame_code != nullptr;
  }
  return true;
}

}  // namespace stoker
