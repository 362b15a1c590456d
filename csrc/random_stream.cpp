// stoker::draw(device, increment): the seed and the offset of a CUDA device's generator, two words on that device; the generator's
// offset moves on by the increment, which is a multiple of 4. Kernels make their random numbers of them, as eager's kernels do.
//
// stoker::can_draw(): does the torch that is loaded tell them?
//
// While a CUDA graph is recorded, the words are read when it is replayed, from where torch puts them for each replay.
#include <ATen/Context.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <dlfcn.h>

#include <mutex>

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

at::Tensor draw(at::Device device, int64_t increment) {
  TORCH_CHECK(device.is_cuda(), "only a CUDA device's generator is a seed and an offset, not that of ", device);
  TORCH_CHECK(increment > 0 && increment % 4 == 0, "an offset moves on by multiples of 4, not by ", increment);
  TORCH_CHECK(can_draw(), "this torch does not tell the state of its CUDA generators");
  const at::PhiloxCudaState state = advance(device, increment);
  const auto options = at::TensorOptions().dtype(at::kLong);
  at::Tensor words = at::empty({2}, options.device(device));
  if (state.captured_) {
    const auto word = [&](int64_t* place) { return at::for_blob(place, {}).options(options).target_device(device).make_tensor(); };
    words.select(0, 0).copy_(word(state.seed_.ptr));
    words.select(0, 1).copy_(word(state.offset_.ptr)).add_(static_cast<int64_t>(state.offset_intragraph_));
    return words;
  }
  const at::Tensor host = at::empty({2}, options);
  host.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(state.seed_.val);
  host.mutable_data_ptr<int64_t>()[1] = static_cast<int64_t>(state.offset_.val);
  return words.copy_(host, /*non_blocking=*/true);
}

}  // namespace

}  // namespace stoker

TORCH_LIBRARY_FRAGMENT(stoker, library) {
  library.def("draw(Device device, int increment) -> Tensor", {at::Tag::nondeterministic_seeded});
  library.def("can_draw() -> bool");
  library.impl("can_draw", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(stoker::can_draw));
  library.impl("draw", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(stoker::draw));
}
