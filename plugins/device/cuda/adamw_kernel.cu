// The launch of the one-pass AdamW update: formats to template arguments, sizes to a grid.
#include <algorithm>
#include <type_traits>

#include "adamw_kernel.cuh"

namespace strata::cuda_device {
namespace {

constexpr std::int64_t block_threads = 256;
constexpr std::int64_t blocks_at_most =
    132 * 8 * 4;  // a few waves on the largest GPUs; the kernel strides over the rest

template <typename Gradient, typename Parameter>
void launch(AdamwArguments a, cudaStream_t stream) {
  a.head = packs_begin(a, sizeof(Gradient), std::is_same_v<Parameter, NoCopy> ? 0 : sizeof(Parameter));
  const std::int64_t threads = a.head == a.count ? a.count : (a.count - a.head + 3) / 4;
  const std::int64_t blocks =
      std::clamp<std::int64_t>((threads + block_threads - 1) / block_threads, 1, blocks_at_most);
  adamw_kernel<Gradient, Parameter><<<static_cast<unsigned>(blocks), block_threads, 0, stream>>>(a);
}

template <typename Gradient>
void launch_for(const AdamwArguments& a, Format parameter, cudaStream_t stream) {
  switch (parameter) {
    case Format::None:
      return launch<Gradient, NoCopy>(a, stream);
    case Format::Fp32:
      return launch<Gradient, float>(a, stream);
    case Format::Bf16:
      return launch<Gradient, Bf16>(a, stream);
    case Format::Fp16:
      return launch<Gradient, Fp16>(a, stream);
  }
}

}  // namespace

const char* launch_adamw(AdamwArguments arguments, AdamwFormats formats, void* stream) {
  if (arguments.count == 0) return nullptr;
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  switch (formats.gradient) {
    case Format::None:
      return "a step needs a gradient";
    case Format::Fp32:
      launch_for<float>(arguments, formats.parameter, cuda_stream);
      break;
    case Format::Bf16:
      launch_for<Bf16>(arguments, formats.parameter, cuda_stream);
      break;
    case Format::Fp16:
      launch_for<Fp16>(arguments, formats.parameter, cuda_stream);
      break;
  }
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace strata::cuda_device
