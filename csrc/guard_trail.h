// The trail of a guard program: what the last successful walk saw, as words of memory to compare.
//
// A walk follows pointers and asks each object. Most of it repeats: the modules are the same ones, their dictionaries are
// unchanged. A trail says so in a flat list: this place in memory still holds this word. A place is a type pointer, an
// instance's dictionary pointer, a dictionary's tag or length, a function's code. What the words do not prove is left to
// steps that check or visit, as the walk would.
//
// In:  a program whose walk has just passed, and its call.
// Out: GUARDS_HOLD and the fetched objects; the index of the guard that failed; or STALE: the walk decides.
//
// An object on the trail is known in one of two ways. It is the *same* object as recorded when something proves that it
// has been held ever since: the program holds it, or a dictionary does whose tag is unchanged (tags are unique over all
// dictionaries and never come back), or an immutable object that is the same itself. Otherwise it is only an object *at
// that address*: the recorded one may be dead and this another one.
//
// Requirements, held by tests/unit/csrc/test_trail.py and test_trail_torch.py:
//   1. A trail passes only where a walk would pass. Recording proves each guard itself, at one instant without Python code;
//      it trusts nothing that the walk saw.
//   2. A place is read only if a word before it, in the same run, proves that the memory is still what it was: the words lie
//      in preorder, no Python code runs between them, and an object at an address is read only after its type, which must be
//      static or held by the program.
//   3. What may run Python code comes last (VISIT and CHECK steps), with references of its own to what it looks at.
//   4. A trail keeps no user object alive.
//   5. A trail is never changed once recorded, and outlives its runs: Python code in a step may forget or replace it.
//   6. A dictionary that keeps changing is looked into instead (Item): what lies below it stays on the trail.
#pragma once

#include "python_compat.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace stoker {

struct GuardProgram;
struct Context;

struct Trail {
  // A bound slot must be the recorded object.
  struct Root {
    Py_ssize_t slot;
    PyObject* object;
  };
  struct Word {
    const uintptr_t* place;
    uintptr_t expected;
  };
  // An item of a dictionary that keeps changing, looked up before the word of this number.
  struct Item {
    size_t before;
    uint32_t node;
    PyObject *dict, *value;
  };
  struct TensorStep {
    PyObject *tensor, *spec;
  };
  struct Stored {
    PyObject* object;
    int slot;
  };
  // VISIT: a node below this parent. CHECK: a check on this object.
  struct Step {
    bool is_visit;
    uint32_t index;
    PyObject* object;
  };

  std::vector<Root> roots;
  std::vector<Word> words;
  std::vector<uint32_t> owners;  // the node of each word
  std::vector<Item> items;
  std::vector<TensorStep> tensors;
  std::vector<Stored> stored;
  std::vector<Step> steps;
  bool runs_python = false;
};

// The trails of one program: one for each set of root objects, because an entry may serve many instances of a class.
class Trails {
 public:
  std::shared_ptr<const Trail> find(const Context& context);
  // Runs it; when it is stale, forgets it.
  int follow(GuardProgram* program, const std::shared_ptr<const Trail>& trail, const Context& context);
  // After a walk that passed.
  void record(GuardProgram* program, const Context& context);
  void clear();

 private:
  struct Known {
    Trail::Root first;  // the trail's first root, to tell most trails apart at a glance
    uint32_t hits;
    std::shared_ptr<const Trail> trail;
  };
  void forget(const std::shared_ptr<const Trail>& trail, uint32_t owner);
  void count_changes(const Trail& old, const Trail& fresh);
  void count_change(uint32_t owner);

  std::vector<Known> known_;
  std::shared_ptr<const Trail> stale_;  // to be compared with its successor
  bool was_settled_ = false;            // the stale one had been followed often
  std::vector<uint8_t> changes_;        // for each node: how often in a row its word was stale
  uint32_t fruitless_ = 0;              // trails recorded since one was followed to its end
  uint32_t wait_ = 0;                   // walks to let pass before recording again
  bool useless_ = false;                // nothing in this program can be shortened
};

// No guard has this index.
inline constexpr int STALE = INT32_MIN + 1;

}  // namespace stoker
