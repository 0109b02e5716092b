#include "bf16_product.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <limits>
#include <optional>

// MKL's: result = factor left right + kept result. libtorch's builds for x86 processors hold it.
extern "C" [[gnu::weak]] void cblas_gemm_bf16bf16f32(int layout, int left_order, int right_order, int m, int n, int k,
                                                     float factor, const void* left, int left_stride, const void* right,
                                                     int right_stride, float kept, float* result, int result_stride);

namespace strata {
namespace {

bool can_multiply() {
#if defined(__x86_64__)
  return cblas_gemm_bf16bf16f32 != nullptr && __builtin_cpu_is("intel") != 0 && multiplies_bf16_faster();
#else
  return false;
#endif
}

#if defined(__x86_64__)
// AMX's instructions for bf16, which a virtual machine may lack on a processor that has them.
bool has_tiles_of_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & (1U << 22)) != 0;
}
#endif

// A matrix as BLAS takes it.
struct Stored {
  static constexpr int by_rows = 101, as_it_is = 111, transposed = 112;
  int order = 0;
  int stride = 0;
};

// None if neither rows nor columns lie one after the other.
std::optional<Stored> stored(const at::Tensor& matrix) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  if (matrix.size(0) > most || matrix.size(1) > most) return std::nullopt;
  const auto fits = [](std::int64_t stride, std::int64_t length) {
    return stride >= length && length > 0 && stride <= most;
  };
  if (matrix.stride(1) == 1 && fits(matrix.stride(0), matrix.size(1)))
    return Stored{Stored::as_it_is, static_cast<int>(matrix.stride(0))};
  if (matrix.stride(0) == 1 && fits(matrix.stride(1), matrix.size(0)))
    return Stored{Stored::transposed, static_cast<int>(matrix.stride(1))};
  return std::nullopt;
}

}  // namespace

bool multiplies_bf16_faster() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16") == 0) return false;
  return __builtin_cpu_is("intel") == 0 || __builtin_cpu_is("cooperlake") != 0 || has_tiles_of_bf16();
#else
  return true;
#endif
}

bool add_bf16_product(const at::Tensor& target, const at::Tensor& left, const at::Tensor& right, bool first) {
  static const bool can = can_multiply();
  if (!can || target.scalar_type() != at::kFloat || left.scalar_type() != at::kBFloat16) return false;
  if (!target.is_cpu() && !target.is_meta()) return false;
  const std::optional<Stored> to = stored(target), x = stored(left), y = stored(right);
  if (!to || to->order != Stored::as_it_is || !x || !y) return false;
  if (target.is_meta()) return true;
  if (first) target.zero_();  // MKL would clear it too, and takes longer
  cblas_gemm_bf16bf16f32(Stored::by_rows, x->order, y->order, static_cast<int>(left.size(0)),
                         static_cast<int>(right.size(1)), static_cast<int>(left.size(1)), 1.0F, left.const_data_ptr(),
                         x->stride, right.const_data_ptr(), y->stride, 1.0F, target.mutable_data_ptr<float>(),
                         to->stride);
  return true;
}

}  // namespace strata
