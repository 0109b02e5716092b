// What this processor takes beside a matrix product, and what a dry run counts of it.
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include "catch.hpp"
#include "dry_run/product_scratch.hpp"
#include "unit/model/counting_allocator.hpp"

using namespace strata;

namespace {

constexpr std::int64_t rows = 640, inner = 96, columns = 3001;

at::TensorOptions of(at::ScalarType dtype, at::DeviceType device) {
  return at::TensorOptions().dtype(dtype).device(device);
}

}  // namespace

TEST_CASE("A product takes beside its result what is said of this processor") {
  const c10::NoGradGuard no_grad;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const std::int64_t said = rows * columns * runtime::product_scratch_per_element(dtype);
    ::CountingAllocator counted(c10::DeviceType::CPU);
    const at::Tensor left = at::ones({rows, inner}, of(dtype, at::kCPU)),
                     right = at::ones({inner, columns}, of(dtype, at::kCPU));
    at::Tensor result = at::empty({rows, columns}, of(dtype, at::kCPU));
    const std::int64_t before = counted.now;
    counted.most = before;
    at::mm_out(result, left, right);
    INFO(toString(dtype) << ": " << counted.most - before << " bytes, " << said << " said");
    CHECK(std::abs(counted.most - before - said) <
          rows * columns * 4 / 10);  // a copy in fp32 would be ten times as much
  }
}

TEST_CASE("A dry run counts it for products of meta tensors, while they last") {
  const c10::NoGradGuard no_grad;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    runtime::CountingAllocator counted;
    const runtime::ProductScratch scratch(counted);
    const at::Tensor left = at::empty({rows, inner}, of(dtype, at::kMeta)),
                     right = at::empty({inner, columns}, of(dtype, at::kMeta));
    const at::Tensor result = at::mm(left, right);
    const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
    CHECK(counted.now() == (rows * inner + inner * columns + rows * columns) * element_bytes);
    CHECK(counted.peak() == counted.now() + rows * columns * runtime::product_scratch_per_element(dtype));
  }
  runtime::CountingAllocator counted;
  const at::Tensor left = at::empty({rows, inner}, of(at::kBFloat16, at::kMeta));
  const at::Tensor result = at::mm(left, left.t());
  CHECK(counted.peak() == counted.now());
}
