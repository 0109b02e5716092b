#include "dry_run/product_scratch.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace strata::runtime {

namespace {

// What libtorch tells profilers of the memory that this thread takes.
class AllocationsSeen final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    now_ += bytes;
    peak = std::max(peak, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak = 0;

 private:
  std::int64_t now_ = 0;
};

// Beside a result of [rows, 256].
std::int64_t taken_beside(std::int64_t rows, at::ScalarType dtype) {
  const c10::NoGradGuard no_grad;
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(at::kCPU);
  const at::Tensor left = at::ones({rows, 64}, options), right = at::ones({64, 256}, options);
  at::Tensor result = at::empty({rows, 256}, options);
  const auto seen = std::make_shared<AllocationsSeen>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, seen);
  at::mm_out(result, left, right);
  return seen->peak;
}

CountingAllocator* observed = nullptr;

void count_product(const at::RecordFunction& function, at::ObserverContext*) {
  const char* name = function.name();
  if (observed == nullptr || (std::strcmp(name, "aten::mm") != 0 && std::strcmp(name, "aten::addmm") != 0)) return;
  for (const c10::IValue& output : function.outputs()) {
    if (!output.isTensor() || !output.toTensor().defined() || !output.toTensor().is_meta()) continue;
    const at::Tensor& result = output.toTensor();
    observed->count_moment(result.numel() * product_scratch_per_element(result.scalar_type()));
  }
}

}  // namespace

std::int64_t product_scratch_per_element(at::ScalarType dtype) {
  static std::mutex mutex;
  static std::map<at::ScalarType, std::int64_t> known;
  if (dtype != at::kBFloat16 && dtype != at::kHalf) return 0;  // summed in their own type
  const std::lock_guard lock(mutex);
  const auto found = known.find(dtype);
  if (found != known.end()) return found->second;
  const std::int64_t few = 256, many = 768;
  const std::int64_t grown = (taken_beside(many, dtype) - taken_beside(few, dtype)) / (256 * (many - few));
  // A table of the result in a wider type. What grows by less are buffers of blocks, which stop growing.
  const auto wider = static_cast<std::int64_t>(c10::elementSize(at::kFloat));
  return known[dtype] = grown >= wider ? wider : 0;
}

ProductScratch::ProductScratch(CountingAllocator& counted) {
  strata_check(observed == nullptr, "one ProductScratch at a time");
  observed = &counted;
  handle_ = at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; }, &count_product)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

ProductScratch::~ProductScratch() {
  at::removeCallback(handle_);
  observed = nullptr;
}

}  // namespace strata::runtime
