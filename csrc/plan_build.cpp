// From the plain form of a plan (stoker/codegen/plan_records.py) to its records: each field is read by the type it has in C++.
#include "plan_executor.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

namespace stoker {

namespace {

// What is wrong, and where: the path to the field is put before it on the way out.
struct Malformed {
  std::string where, what;
};

void require(bool holds, const char* what, PyObject* found) {
  if (!holds) throw Malformed{"", std::string("expected ") + what + ", not " + Py_TYPE(found)->tp_name};
}

class Reader {
 public:
  explicit Reader(PyObject* objects) : objects_(objects) {}

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

  void read(PyObject* from, uint32_t& to) const {
    int64_t value;
    read(from, value);
    if (value < 0 || value > UINT32_MAX) throw Malformed{"", "a place is out of range"};
    to = static_cast<uint32_t>(value);
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

  void read(PyObject* from, at::ScalarType& to) const {
    static PyObject* torch = PyImport_ImportModule("torch");
    require(PyUnicode_Check(from), "the name of a dtype", from);
    const Ref found = Ref::steal(PyObject_GetAttr(torch, from));
    if (!found) throw python_error();
    require(THPDtype_Check(found.get()), "the name of a dtype", found.get());
    to = reinterpret_cast<THPDtype*>(found.get())->scalar_type;
  }

  void read(PyObject* from, c10::Device& to) const { to = c10::Device(read<std::string>(from)); }

  void read(PyObject* from, std::optional<c10::OperatorHandle>& to) const {
    const auto name = read<std::string>(from);
    const size_t dot = name.find('.');
    const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
    to = c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(), overload.c_str());
  }

  void read(PyObject* from, Kernel& to) const { to = reinterpret_cast<Kernel>(address(from)); }
  void read(PyObject* from, DeviceFunction& to) const { to = address(from); }
  void read(PyObject* from, int32_t*& to) const { to = static_cast<int32_t*>(address(from)); }
  void read(PyObject* from, Ref& to) const { to = Ref::share(object(from)); }

  void read(PyObject* from, at::Tensor& to) const {
    require(THPVariable_Check(object(from)), "a tensor", object(from));
    to = THPVariable_Unpack(object(from));
  }

  void read(PyObject* from, c10::IValue& to) const {
    require(PyTuple_Check(from) && PyTuple_GET_SIZE(from) == 3, "a literal", from);
    to = literal(read<LiteralKind>(PyTuple_GET_ITEM(from, 1)), PyTuple_GET_ITEM(from, 2));
  }

  template <class Enum>
    requires std::is_enum_v<Enum>
  void read(PyObject* from, Enum& to) const {
    to = static_cast<Enum>(read<uint32_t>(from));
  }

  template <class Part>
  void read(PyObject* from, std::optional<Part>& to) const {
    if (from != Py_None) to = read<Part>(from);
  }

  template <class Part>
  void read(PyObject* from, std::vector<Part>& to) const {
    each(from, [&](PyObject* part) { to.push_back(read<Part>(part)); });
  }

  template <class Record>
    requires requires { Record::NAME; }
  void read(PyObject* from, Record& to) const {
    require(named(from, Record::NAME), Record::NAME, from);
    Py_ssize_t place = 1;
    to.each([&](const char* name, auto& field) {
      const std::string where = std::string(Record::NAME) + "." + name;
      if (place >= PyTuple_GET_SIZE(from)) throw Malformed{where, "it is missing"};
      at(where, [&] { read(PyTuple_GET_ITEM(from, place++), field); });
    });
    if (place != PyTuple_GET_SIZE(from)) throw Malformed{Record::NAME, "it has more fields than are known"};
  }

  template <class... Records>
  void read(PyObject* from, std::variant<Records...>& to) const {
    const bool found = ((named(from, Records::NAME) && (to = read<Records>(from), true)) || ...);
    require(found, (std::string("one of") + ... + (std::string(" ") + Records::NAME)).c_str(), from);
  }

  template <class Value>
  Value read(PyObject* from) const {
    Value result{};
    read(from, result);
    return result;
  }

 private:
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

  PyObject* object(PyObject* from) const {
    const auto place = read<uint32_t>(from);
    if (place >= PyTuple_GET_SIZE(objects_)) throw Malformed{"", "there is no such object"};
    return PyTuple_GET_ITEM(objects_, place);
  }

  void* address(PyObject* from) const {
    require(PyLong_Check(object(from)), "an address", object(from));
    return PyLong_AsVoidPtr(object(from));
  }

  template <class Part>
  c10::IValue list(PyObject* from) const {
    c10::List<Part> result;
    each(from, [&](PyObject* part) { result.push_back(read<Part>(part)); });
    return result;
  }

  c10::IValue literal(LiteralKind kind, PyObject* value) const {
    switch (kind) {
      case LiteralKind::NONE:
        return {};
      case LiteralKind::UNDEFINED:
        return at::Tensor();
      case LiteralKind::BOOL:
        return read<bool>(value);
      case LiteralKind::INT:
        return read<int64_t>(value);
      case LiteralKind::FLOAT:
        return read<double>(value);
      case LiteralKind::TEXT:
        return read<std::string>(value);
      case LiteralKind::DTYPE:
        return static_cast<int64_t>(read<at::ScalarType>(value));
      case LiteralKind::DEVICE:
        return c10::Device(read<std::string>(value));
      case LiteralKind::BOOLS:
        return list<bool>(value);
      case LiteralKind::FLOATS:
        return list<double>(value);
      case LiteralKind::SCALARS: {
        c10::List<std::optional<at::Scalar>> scalars;
        each(value, [&](PyObject* part) { scalars.push_back(at::Scalar(read<double>(part))); });
        return scalars;
      }
    }
    throw Malformed{"", "there is no such kind of literal"};
  }

  PyObject* objects_;
};

}  // namespace

PlanRecord read_plan(PyObject* plain, PyObject* objects) {
  try {
    return Reader(objects).read<PlanRecord>(plain);
  } catch (const Malformed& error) {
    TORCH_CHECK_VALUE(false, "a plan cannot be read at ", error.where, ": ", error.what);
  }
}

}  // namespace stoker
