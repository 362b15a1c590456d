// Written by tools/plan_records.py from stoker/codegen/plan_records.py, which says what each record and field means.
#pragma once

#include "cuda_driver.h"
#include "ref.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace stoker {

using Kernel = int (*)(void* const*, const int64_t*);  // not 0: which families of indices were out of range

struct PlanRecord;

enum class Arithmetic : uint8_t { ADD, MUL, FLOORDIV, MOD, MIN, MAX };

enum class LiteralKind : uint8_t { NONE, UNDEFINED, BOOL, INT, FLOAT, TEXT, DTYPE, DEVICE, BOOLS, FLOATS, SCALARS };

struct BufferLayout {
  static constexpr const char* NAME = "BufferLayout";
  at::ScalarType dtype{};
  std::vector<uint32_t> sizes{}, strides{};
  c10::Device device{c10::kCPU};
  template <class Field> void each(const Field& field) {
    field("dtype", dtype); field("sizes", sizes); field("strides", strides); field("device", device);
  }
};

struct TensorView {
  static constexpr const char* NAME = "TensorView";
  uint32_t slot{};
  at::ScalarType dtype{};
  std::vector<uint32_t> sizes{}, strides{};
  uint32_t offset{};
  bool whole{};
  template <class Field> void each(const Field& field) {
    field("slot", slot); field("dtype", dtype); field("sizes", sizes); field("strides", strides); field("offset", offset);
    field("whole", whole);
  }
};

struct NumberArgument {
  static constexpr const char* NAME = "NumberArgument";
  uint32_t number{};
  template <class Field> void each(const Field& field) { field("number", number); }
};

using PythonArgument = std::variant<TensorView, NumberArgument>;

struct NumbersArgument {
  static constexpr const char* NAME = "NumbersArgument";
  std::vector<uint32_t> numbers{};
  template <class Field> void each(const Field& field) { field("numbers", numbers); }
};

struct ViewsArgument {
  static constexpr const char* NAME = "ViewsArgument";
  std::vector<TensorView> views{};
  template <class Field> void each(const Field& field) { field("views", views); }
};

struct OptionalViewsArgument {
  static constexpr const char* NAME = "OptionalViewsArgument";
  std::vector<std::optional<TensorView>> views{};
  template <class Field> void each(const Field& field) { field("views", views); }
};

struct LiteralArgument {
  static constexpr const char* NAME = "LiteralArgument";
  c10::IValue literal{};
  template <class Field> void each(const Field& field) { field("literal", literal); }
};

using CallArgument = std::variant<TensorView, NumberArgument, NumbersArgument, ViewsArgument, OptionalViewsArgument, LiteralArgument>;

struct ObjectOutput {
  static constexpr const char* NAME = "ObjectOutput";
  Ref value{};
  template <class Field> void each(const Field& field) { field("value", value); }
};

using PlanOutput = std::variant<TensorView, NumberArgument, ObjectOutput>;

struct AllocateStep {
  static constexpr const char* NAME = "AllocateStep";
  uint32_t slot{};
  BufferLayout layout{};
  template <class Field> void each(const Field& field) { field("slot", slot); field("layout", layout); }
};

struct FreeStep {
  static constexpr const char* NAME = "FreeStep";
  uint32_t slot{};
  template <class Field> void each(const Field& field) { field("slot", slot); }
};

struct RunStep {
  static constexpr const char* NAME = "RunStep";
  Kernel kernel{};
  std::vector<uint32_t> slots{}, sizes{};
  template <class Field> void each(const Field& field) {
    field("kernel", kernel); field("slots", slots); field("sizes", sizes);
  }
};

struct LaunchStep {
  static constexpr const char* NAME = "LaunchStep";
  DeviceFunction kernel{};
  int64_t threads{}, shared_bytes{};
  bool overlaps{};
  uint32_t programs{};
  std::vector<uint32_t> slots{};
  std::vector<bool> written{};
  std::vector<int64_t> value_bytes{};
  std::vector<uint32_t> sizes{};
  bool watches{};
  std::string origins{};
  bool hands_on{};
  template <class Field> void each(const Field& field) {
    field("kernel", kernel); field("threads", threads); field("shared_bytes", shared_bytes); field("overlaps", overlaps);
    field("programs", programs); field("slots", slots); field("written", written); field("value_bytes", value_bytes);
    field("sizes", sizes); field("watches", watches); field("origins", origins); field("hands_on", hands_on);
  }
};

struct CallStep {
  static constexpr const char* NAME = "CallStep";
  std::optional<c10::OperatorHandle> callee{};
  std::vector<CallArgument> arguments{};
  std::vector<std::optional<uint32_t>> results{};
  std::vector<std::optional<BufferLayout>> layouts{};
  template <class Field> void each(const Field& field) {
    field("callee", callee); field("arguments", arguments); field("results", results); field("layouts", layouts);
  }
};

struct PythonStep {
  static constexpr const char* NAME = "PythonStep";
  Ref callee{};
  std::vector<PythonArgument> arguments{};
  std::vector<std::optional<uint32_t>> results{};
  std::vector<std::optional<BufferLayout>> layouts{};
  bool several{};
  template <class Field> void each(const Field& field) {
    field("callee", callee); field("arguments", arguments); field("results", results); field("layouts", layouts);
    field("several", several);
  }
};

using PlanStep = std::variant<AllocateStep, FreeStep, RunStep, LaunchStep, CallStep, PythonStep>;

struct PlanConstant {
  static constexpr const char* NAME = "PlanConstant";
  uint32_t slot{};
  at::Tensor value{};
  template <class Field> void each(const Field& field) { field("slot", slot); field("value", value); }
};

struct SymbolRead {
  static constexpr const char* NAME = "SymbolRead";
  uint32_t number{};
  int64_t argument{};
  std::optional<int64_t> dimension{};
  bool stride{};
  template <class Field> void each(const Field& field) {
    field("number", number); field("argument", argument); field("dimension", dimension); field("stride", stride);
  }
};

struct NumberStep {
  static constexpr const char* NAME = "NumberStep";
  Arithmetic how{};
  uint32_t target{}, a{}, b{};
  template <class Field> void each(const Field& field) {
    field("how", how); field("target", target); field("a", a); field("b", b);
  }
};

struct ArenaPlace {
  static constexpr const char* NAME = "ArenaPlace";
  uint32_t slot{}, offset_bytes{};
  template <class Field> void each(const Field& field) { field("slot", slot); field("offset_bytes", offset_bytes); }
};

struct ArenaRecord {
  static constexpr const char* NAME = "ArenaRecord";
  c10::Device device{c10::kCPU};
  uint32_t size_bytes{};
  std::vector<ArenaPlace> places{};
  template <class Field> void each(const Field& field) {
    field("device", device); field("size_bytes", size_bytes); field("places", places);
  }
};

struct PlanRecord {
  static constexpr const char* NAME = "PlanRecord";
  int64_t slot_count{};
  std::vector<std::optional<uint32_t>> inputs{};
  std::vector<PlanConstant> constants{};
  std::vector<int64_t> numbers{};
  std::vector<SymbolRead> symbols{};
  std::vector<NumberStep> arithmetic{};
  std::vector<ArenaRecord> arenas{};
  std::vector<PlanStep> steps{};
  std::vector<PlanOutput> outputs{};
  bool takes_list{};
  std::optional<int64_t> device{};
  std::optional<int32_t*> flags{};
  std::vector<int64_t> aligned{};
  std::vector<uint32_t> narrow{};
  int64_t first_write{};
  template <class Field> void each(const Field& field) {
    field("slot_count", slot_count); field("inputs", inputs); field("constants", constants); field("numbers", numbers);
    field("symbols", symbols); field("arithmetic", arithmetic); field("arenas", arenas); field("steps", steps);
    field("outputs", outputs); field("takes_list", takes_list); field("device", device); field("flags", flags);
    field("aligned", aligned); field("narrow", narrow); field("first_write", first_write);
  }
};

}  // namespace stoker
