// From fp32 to bf16 past the caches: what is written in the usual way, at every place in a cache line.
#include <ATen/ATen.h>

#include <limits>

#include "catch.hpp"
#include "half_precision.hpp"

TEST_CASE("what is rounded past the caches is what is rounded in the usual way, and nothing beside it is written") {
  at::manual_seed(5);
  for (const std::int64_t begin : {0, 1, 7, 31, 32, 33}) {
    for (const std::int64_t count : {0, 1, 30, 31, 32, 33, 95, 512}) {
      CAPTURE(begin, count);
      const at::Tensor values = at::randn({count});
      if (count > 2) {
        values[0] = std::numeric_limits<float>::quiet_NaN();
        values[1] = std::numeric_limits<float>::infinity();
        values[2] = std::numeric_limits<float>::max();  // rounds to infinity
      }
      const at::Tensor found = at::full({begin + count + 40}, 7.0, at::kBFloat16), expected = found.clone();
      strata::narrow(values.const_data_ptr<float>(), expected.data_ptr<at::BFloat16>() + begin, count);
      strata::narrow_past_caches(values.const_data_ptr<float>(), found.data_ptr<at::BFloat16>() + begin, count);
      strata::fence_stores();
      CHECK(at::equal(found.view(at::kShort), expected.view(at::kShort)));
    }
  }
}
