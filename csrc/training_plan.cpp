#include "training_plan.h"

#include "record_reader.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>

namespace stoker {

namespace {

class TrainingReader : public RecordReader<TrainingReader> {
 public:
  using RecordReader::read;

  void read(PyObject* from, Ref& to) const { to = Ref::share(from); }

  void read(PyObject* from, at::DimVector& to) const {
    each(from, [&](PyObject* part) { to.push_back(get<int64_t>(part)); });
  }

  void read(PyObject* from, at::ScalarType& to) const {
    require(THPDtype_Check(from), "a dtype", from);
    to = reinterpret_cast<THPDtype*>(from)->scalar_type;
  }

  void read(PyObject* from, at::Device& to) const {
    require(THPDevice_Check(from), "a device", from);
    to = reinterpret_cast<THPDevice*>(from)->device;
  }

  // A letter for each.
  void read(PyObject* from, std::vector<Memory>& to) const {
    for (const char letter : get<std::string>(from)) to.push_back(static_cast<Memory>(letter));
  }
};

}  // namespace

TrainingPlan read_training_plan(PyObject* keywords) {
  return reading("a training call", [&] {
    TrainingPlan plan;
    TrainingReader().read_keywords(keywords, plan);
    return plan;
  });
}

Backward read_backward(PyObject* tuple) {
  return reading("a backward", [&] { return TrainingReader().get<Backward>(tuple); });
}

}  // namespace stoker
