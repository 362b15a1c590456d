// What is known about a code object: for each compiler, a record of its compiled versions.
//
// Ownership: a Compiler owns its records, a record owns its entries. The code object points at records through its
// extra slot and owns nothing; a record points at its code and its compiler and owns neither. So whichever of the three
// dies first takes its records out of the others (tests/unit/csrc/test_lifetime.py).
#pragma once

#include "python_compat.h"
#include "ref.h"

#include <unordered_map>
#include <vector>

namespace stoker {

struct GuardProgram;
struct Compiler;

// What on_miss may answer instead of an entry, and the state of a record.
enum class Action : int { RUN_ONCE = 0, SKIP = 1, SKIP_DEEP = 2, FREEZE = 3 };

// One compiled version of a code object.
struct Entry {
  PyObject_HEAD
  Owned<PyCodeObject> code;
  Owned<GuardProgram> guards;
  Ref tag;
  Ref globals;   // those of the first function it ran for; null before
  Ref function;  // made once, when the code has no free variables
  Py_ssize_t hits;
  bool keeps_hook;

  void each(const auto& visit) { visit(tag), visit(globals), visit(function); }
  // A run in progress needs these two, and they lie on no cycle that the others do not cut.
  void each_kept(const auto& visit) { visit(code), visit(guards); }
};

struct Record {
  PyCodeObject* code;  // borrowed; null once the record is dropped
  Compiler* compiler;  // borrowed
  std::vector<Ref> entries;
  size_t recent = 0, streak = 0;  // the entry that ran last, and how often before, one time after the other
  Action state = Action::RUN_ONCE;
  int holders = 0;
};

// Keeps a record alive while Python code may drop it.
class RecordHold {
 public:
  explicit RecordHold(Record* record) : record_(record) { ++record_->holders; }
  RecordHold(const RecordHold&) = delete;
  RecordHold& operator=(const RecordHold&) = delete;
  ~RecordHold() {
    if (--record_->holders == 0) delete record_;
  }
  Record* operator->() const { return record_; }

 private:
  Record* record_;
};

struct Compiler {
  PyObject_HEAD
  Ref on_miss;
  PyObject* weak_references;
  std::unordered_map<PyCodeObject*, Record*> records;

  void each(const auto& visit) { visit(on_miss); }
  void each_kept(const auto& visit) {
    for (auto& [code, record] : records)
      for (Ref& entry : record->entries) visit(entry);
  }
  void clear();
};

extern PyTypeObject* entry_type;
extern PyTypeObject* compiler_type;

// Null if the compiler has not met this code.
Record* find_record(PyCodeObject* code, const Compiler* compiler);
// Makes one if needed; null with an exception set when memory is out.
Record* make_record(PyCodeObject* code, Compiler* compiler);

inline bool is_entry(PyObject* object) { return Py_TYPE(object) == entry_type; }

bool add_cache_types(PyObject* module);

}  // namespace stoker
