// From the plain form of a plan (stoker/codegen/plan_records.py) to its records.
#include "plan_executor.h"

#include "record_reader.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

namespace stoker {

namespace {

class PlanReader : public RecordReader<PlanReader> {
 public:
  explicit PlanReader(PyObject* objects) : objects_(objects) {}

  using RecordReader::read;

  void read(PyObject* from, at::ScalarType& to) const {
    static PyObject* torch = PyImport_ImportModule("torch");
    require(PyUnicode_Check(from), "the name of a dtype", from);
    const Ref found = Ref::steal(PyObject_GetAttr(torch, from));
    if (!found) throw python_error();
    require(THPDtype_Check(found.get()), "the name of a dtype", found.get());
    to = reinterpret_cast<THPDtype*>(found.get())->scalar_type;
  }

  void read(PyObject* from, c10::Device& to) const { to = c10::Device(get<std::string>(from)); }

  void read(PyObject* from, std::optional<c10::OperatorHandle>& to) const {
    const auto name = get<std::string>(from);
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
    to = literal(get<LiteralKind>(PyTuple_GET_ITEM(from, 1)), PyTuple_GET_ITEM(from, 2));
  }

 private:
  PyObject* object(PyObject* from) const {
    const auto place = get<uint32_t>(from);
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
    each(from, [&](PyObject* part) { result.push_back(get<Part>(part)); });
    return result;
  }

  c10::IValue literal(LiteralKind kind, PyObject* value) const {
    switch (kind) {
      case LiteralKind::NONE:
        return {};
      case LiteralKind::UNDEFINED:
        return at::Tensor();
      case LiteralKind::BOOL:
        return get<bool>(value);
      case LiteralKind::INT:
        return get<int64_t>(value);
      case LiteralKind::FLOAT:
        return get<double>(value);
      case LiteralKind::TEXT:
        return get<std::string>(value);
      case LiteralKind::DTYPE:
        return static_cast<int64_t>(get<at::ScalarType>(value));
      case LiteralKind::DEVICE:
        return c10::Device(get<std::string>(value));
      case LiteralKind::BOOLS:
        return list<bool>(value);
      case LiteralKind::FLOATS:
        return list<double>(value);
      case LiteralKind::SCALARS: {
        c10::List<std::optional<at::Scalar>> scalars;
        each(value, [&](PyObject* part) { scalars.push_back(at::Scalar(get<double>(part))); });
        return scalars;
      }
    }
    throw Malformed{"", "there is no such kind of literal"};
  }

  PyObject* objects_;
};

}  // namespace

PlanRecord read_plan(PyObject* plain, PyObject* objects) {
  return reading("a plan", [&] { return PlanReader(objects).get<PlanRecord>(plain); });
}

}  // namespace stoker
