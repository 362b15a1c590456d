// stoker::draw(device, increment): the seed and the offset of a CUDA device's generator; the generator's offset moves on by the
// increment, which is a multiple of 4. Kernels make their random numbers of them, as eager's kernels do. Each is a number and an address on
// the device, to be added to it what lies there, or 0: four numbers of the processor, which kernels are given by value.
//
// stoker::can_draw(): does the torch that is loaded tell them?
//
// While a CUDA graph is recorded, addresses are told: what is there when it is replayed, torch puts there for each replay.
#include <ATen/Context.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <dlfcn.h>

#include <mutex>
#include <tuple>

namespace stoker {

namespace {

// at::CUDAGeneratorImpl::philox_cuda_state(uint64_t), of a library that is loaded only where there are such devices: what every random
// kernel of eager's asks. A member function is called as one that takes the object first.
using NextState = at::PhiloxCudaState (*)(c10::GeneratorImpl*, uint64_t);
constexpr const char* NEXT_STATE = "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm";

NextState next_state() {
  static const auto found = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<NextState>(dlsym(library ? library : RTLD_DEFAULT, NEXT_STATE));
  }();
  return found;
}

bool can_draw() { return next_state(); }

at::PhiloxCudaState advance(at::Device device, int64_t increment) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return next_state()(generator.unsafeGetGeneratorImpl(), static_cast<uint64_t>(increment));
}

using Numbers = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Numbers draw(at::Device device, int64_t increment) {
  TORCH_CHECK(device.is_cuda(), "only a CUDA device's generator is a seed and an offset, not that of ", device);
  TORCH_CHECK(increment > 0 && increment % 4 == 0, "an offset moves on by multiples of 4, not by ", increment);
  TORCH_CHECK(can_draw(), "this torch does not tell the state of its CUDA generators");
  const at::PhiloxCudaState state = advance(device, increment);
  const auto number = [](uint64_t value) {
    at::Tensor made = at::empty({}, at::kLong);
    *made.mutable_data_ptr<int64_t>() = static_cast<int64_t>(value);
    return made;
  };
  const auto address = [&](const int64_t* place) { return number(reinterpret_cast<uintptr_t>(place)); };
  if (!state.captured_) return {number(state.seed_.val), number(0), number(state.offset_.val), number(0)};
  return {number(0), address(state.seed_.ptr), number(state.offset_intragraph_), address(state.offset_.ptr)};
}

}  // namespace

}  // namespace stoker

TORCH_LIBRARY_FRAGMENT(stoker, library) {
  library.def("draw(Device device, int increment) -> (Tensor, Tensor, Tensor, Tensor)", {at::Tag::nondeterministic_seeded});
  library.def("can_draw() -> bool");
  library.impl("can_draw", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(stoker::can_draw));
  library.impl("draw", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(stoker::draw));
}
