// The frame evaluator of PEP 523, and which compiler each thread runs under.
//
// The interpreter's evaluator is ours only while some thread has an active compiler. A thread without one runs the
// evaluator that was there before.
#pragma once

#include "python_compat.h"

#include <utility>

namespace stoker {

struct Compiler;

// What the user wants of compiled callables in this thread, for a while (stoker.stance).
enum class Stance : int { COMPILED = 0, EAGER = 1, FAIL_ON_RECOMPILE = 2 };

// What the next frame of a code object gives in place of running, once.
struct Answer {
  PyCodeObject* code;  // null once it was given
  PyObject* given;     // borrowed
  bool raises;
  Answer* outer;
};

struct HookThread {
  Compiler* active;            // borrowed: whoever opens a HookScope keeps the compiler alive
  PyCodeObject* pass_through;  // the next frame of this code is run as it is, without a look-up
  Stance stance;
  Answer* answer;
};

// Initial-exec: one load instead of a call. The module is 32 bytes of static TLS.
extern constinit thread_local HookThread hook_thread __attribute__((tls_model("initial-exec")));

void hook_acquire();
void hook_release();

// Sets this thread's active compiler (null: none) until the end of the scope.
class HookScope {
 public:
  explicit HookScope(Compiler* compiler) : previous_(hook_thread.active) { activate(compiler); }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
  ~HookScope() { activate(previous_); }

 private:
  static void activate(Compiler* compiler) {
    Compiler* old = std::exchange(hook_thread.active, compiler);
    if (!old == !compiler) return;
    if (compiler)
      hook_acquire();
    else
      hook_release();
  }
  Compiler* previous_;
};

// Lets the next frame of `code` run as it is, if the hook would see it.
class PassThrough {
 public:
  explicit PassThrough(PyCodeObject* code) : previous_(hook_thread.pass_through) { hook_thread.pass_through = code; }
  PassThrough(const PassThrough&) = delete;
  PassThrough& operator=(const PassThrough&) = delete;
  ~PassThrough() { hook_thread.pass_through = previous_; }

 private:
  PyCodeObject* previous_;
};

// Whether frames of this code are ever replaced: functions are, module and class bodies and all kinds of generators not.
inline bool is_replaceable(PyCodeObject* code) {
  constexpr int generators = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  return (code->co_flags & (CO_OPTIMIZED | generators)) == CO_OPTIMIZED;
}

bool prepare_frame_hook();

}  // namespace stoker
