#pragma once
#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>
#include <strata/export.hpp>

#include <cstdint>

#include "dry_run/counting_allocator.hpp"

namespace strata::runtime {

// [Note: scratch of products] On a processor without bf16 instructions oneDNN, which libtorch calls, sums a bf16
// product in an fp32 table of the result's size: for the logits it is the largest thing of a step, and no tensor of
// ours. Whether it does depends on the processor, so it is measured: a product is run and libtorch's allocator asked.
// The blocks that it packs are not counted: they stop growing at a megabyte or two.

// Bytes that libtorch's allocator hands out beside the result, for each of its elements, while this processor
// multiplies matrices of `dtype`. 0 where they do not grow with the result. The first call for a type multiplies two
// small matrices and may block the host for some milliseconds. Throws nothing.
STRATA_EXPORT std::int64_t product_scratch_per_element(at::ScalarType dtype);

// While it lives, every product of meta matrices is counted with the scratch that the processor would take for it. One
// at a time in a process. `counted` must outlive it.
class STRATA_EXPORT ProductScratch {
 public:
  explicit ProductScratch(CountingAllocator& counted);
  ~ProductScratch();
  ProductScratch(const ProductScratch&) = delete;
  ProductScratch& operator=(const ProductScratch&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace strata::runtime
