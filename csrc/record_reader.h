// Reading records out of Python's tuples: each field by the type it has in C++, each mistake by the names of record and field.
//
// A record is a struct with `each(field)`, which shows `field` the name and place of each member in order. One with a NAME is a tuple that
// begins with it; one without is the tuple of its fields, or an object with attributes of their names.
#pragma once

#include "python_compat.h"
#include "ref.h"

#include <torch/csrc/Exceptions.h>

#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace stoker {

// What is wrong, and where: the path to the field is put before it on the way out.
struct Malformed {
  std::string where, what;
};

// What `body` reads, of something that users would call `what`; a mistake is a ValueError.
template <class Body>
auto reading(const char* what, const Body& body) {
  try {
    return body();
  } catch (const Malformed& error) {
    TORCH_CHECK_VALUE(false, what, " cannot be read at ", error.where, ": ", error.what);
  }
}

inline void require(bool holds, const char* what, PyObject* found) {
  if (!holds) throw Malformed{"", std::string("expected ") + what + ", not " + Py_TYPE(found)->tp_name};
}

struct AnyField {
  void operator()(const char*, const auto&) const {}
};
template <class T>
concept NamedRecord = requires { T::NAME; };
template <class T>
concept Row = !NamedRecord<T> && requires(T& record) { record.each(AnyField()); };

// `Derived` adds what fields of its own records hold, and says `using RecordReader::read`.
template <class Derived>
class RecordReader {
 public:
  void read(PyObject* from, bool& to) const {
    require(PyBool_Check(from), "a bool", from);
    to = from == Py_True;
  }

  void read(PyObject* from, int64_t& to) const {
    require(PyLong_Check(from), "an integer", from);
    int overflow;
    to = PyLong_AsLongLongAndOverflow(from, &overflow);
    if (overflow) throw Malformed{"", "the integer does not fit into 64 bits"};
  }

  void read(PyObject* from, std::unsigned_integral auto& to) const {
    const auto value = get<int64_t>(from);
    to = static_cast<std::remove_reference_t<decltype(to)>>(value);
    if (value < 0 || static_cast<int64_t>(to) != value) throw Malformed{"", "a place is out of range"};
  }

  void read(PyObject* from, double& to) const {
    require(PyFloat_Check(from), "a float", from);
    to = PyFloat_AS_DOUBLE(from);
  }

  void read(PyObject* from, std::string& to) const {
    require(PyUnicode_Check(from), "text", from);
    Py_ssize_t length;
    const char* characters = PyUnicode_AsUTF8AndSize(from, &length);
    if (!characters) throw python_error();
    to.assign(characters, length);
  }

  template <class Enum>
    requires std::is_enum_v<Enum>
  void read(PyObject* from, Enum& to) const {
    to = static_cast<Enum>(get<uint32_t>(from));
  }

  template <class Part>
  void read(PyObject* from, std::optional<Part>& to) const {
    if (from != Py_None) to = get<Part>(from);
  }

  template <class Part>
  void read(PyObject* from, std::vector<Part>& to) const {
    each(from, [&](PyObject* part) { to.push_back(get<Part>(part)); });
  }

  template <NamedRecord T>
  void read(PyObject* from, T& to) const {
    require(named(from, T::NAME), T::NAME, from);
    read_fields(from, 1, std::string(T::NAME), to);
  }

  template <Row T>
  void read(PyObject* from, T& to) const {
    if (PyTuple_Check(from)) return read_fields(from, 0, "", to);
    to.each([&](const char* name, auto& field) {
      const Ref value = Ref::steal(PyObject_GetAttrString(from, name));
      if (!value) throw python_error();
      at(name, [&] { derived().read(value.get(), field); });
    });
  }

  template <class... Records>
  void read(PyObject* from, std::variant<Records...>& to) const {
    const bool found = ((named(from, Records::NAME) && (to = get<Records>(from), true)) || ...);
    require(found, (std::string("one of") + ... + (std::string(" ") + Records::NAME)).c_str(), from);
  }

  // The fields by their names, as a call's keywords.
  template <class T>
  void read_keywords(PyObject* dict, T& to) const {
    Py_ssize_t known = 0;
    to.each([&](const char* name, auto& field) {
      PyObject* value = dict ? PyDict_GetItemString(dict, name) : nullptr;
      if (!value) throw Malformed{name, "it is missing"};
      at(name, [&] { derived().read(value, field); });
      ++known;
    });
    if (dict && PyDict_GET_SIZE(dict) != known) throw Malformed{"", "there are more keywords than are known"};
  }

  template <class Value>
  Value get(PyObject* from) const {
    Value result{};
    derived().read(from, result);
    return result;
  }

 protected:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }

  template <class Body>
  static void at(const std::string& where, const Body& body) {
    try {
      body();
    } catch (Malformed& error) {
      error.where = where + (error.where.empty() || error.where[0] == '[' ? "" : " > ") + error.where;
      throw;
    }
  }

  template <class Body>
  static void each(PyObject* from, const Body& body) {
    require(PyTuple_Check(from), "a tuple", from);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(from); ++i)
      at("[" + std::to_string(i) + "]", [&] { body(PyTuple_GET_ITEM(from, i)); });
  }

  static bool named(PyObject* from, const char* name) {
    return PyTuple_Check(from) && PyTuple_GET_SIZE(from) && PyUnicode_Check(PyTuple_GET_ITEM(from, 0)) &&
           PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(from, 0), name) == 0;
  }

 private:
  template <class T>
  void read_fields(PyObject* from, Py_ssize_t place, const std::string& record, T& to) const {
    to.each([&](const char* name, auto& field) {
      const std::string where = record.empty() ? name : record + "." + name;
      if (place >= PyTuple_GET_SIZE(from)) throw Malformed{where, "it is missing"};
      at(where, [&] { derived().read(PyTuple_GET_ITEM(from, place++), field); });
    });
    if (place != PyTuple_GET_SIZE(from)) throw Malformed{record, "it has more fields than are known"};
  }
};

}  // namespace stoker
