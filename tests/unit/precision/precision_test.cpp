#include <strata/precision_policy.hpp>

#include <ATen/ATen.h>
#include <limits>

#include "catch.hpp"
#include "loaded_plugin.hpp"
#include "saved_state.hpp"

namespace {

using strata::GradientHealth;
using strata::Verdict;

strata::OptionValues options(std::int64_t skips, const char* accumulation = "fp32", const char* reduction = "fp32") {
  strata::OptionValues values;
  values.set("max_consecutive_skips", skips);
  values.set("accumulation", std::string(accumulation));
  values.set("reduction", std::string(reduction));
  return values;
}

GradientHealth good() {
  return {1, 2.0, true};
}
GradientHealth bad(std::int64_t step) {
  return {step, std::numeric_limits<double>::infinity(), false};
}

}  // namespace

TEST_CASE("number formats") {
  const LoadedPlugin<strata::PrecisionPolicy> fp32(FP32_LIBRARY, options(1));
  CHECK(fp32->dtypes({}) == strata::DTypes{});
  CHECK_FALSE(fp32->dtypes({}).has_master());
  CHECK(fp32->activation() == at::kFloat);
  CHECK(fp32->loss_scale() == 1.0);
  const LoadedPlugin<strata::PrecisionPolicy> bf16(BF16_LIBRARY, options(1));
  CHECK(bf16->dtypes({}) == strata::DTypes{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat});
  CHECK(bf16->activation() == at::kBFloat16);
  CHECK(bf16->loss_scale() == 1.0);
  const LoadedPlugin<strata::PrecisionPolicy> lean(BF16_LIBRARY, options(1, "bf16", "bf16"));
  CHECK(lean->dtypes({}) == strata::DTypes{at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kFloat});
}

TEST_CASE("gradients that are not finite are skipped, and too many in a row stop the run") {
  for (const char* library : {FP32_LIBRARY, BF16_LIBRARY}) {
    const LoadedPlugin<strata::PrecisionPolicy> policy(library, options(2));
    CHECK(policy->judge(good()) == Verdict::Apply);
    CHECK(policy->judge(bad(2)) == Verdict::Skip);
    CHECK(policy->judge(bad(3)) == Verdict::Skip);
    CHECK(policy->judge(good()) == Verdict::Apply);
    CHECK(policy->judge(bad(5)) == Verdict::Skip);
    SavedState saved;
    policy->save(saved);
    const LoadedPlugin<strata::PrecisionPolicy> resumed(library, options(2));
    resumed->load(saved, resumed->state_version());
    CHECK(resumed->judge(bad(6)) == Verdict::Skip);
    CHECK(resumed->judge(bad(7)) == Verdict::Stop);
    CHECK_THAT(resumed->stop_reason(), Catch::Contains("3 steps in a row") && Catch::Contains("step 7") &&
                                           Catch::Contains("max_consecutive_skips allows 2"));
    const LoadedPlugin<strata::PrecisionPolicy> strict(library, options(0));
    CHECK(strict->judge(bad(1)) == Verdict::Stop);
  }
}

TEST_CASE("the default linear is libtorch's, with a bias or without") {
  const LoadedPlugin<strata::PrecisionPolicy> policy(FP32_LIBRARY, options(1));
  const at::Tensor x = at::randn({2, 3, 5}), w = at::randn({4, 5}), b = at::randn({4});
  CHECK(at::equal(policy->linear(x, w, b), at::linear(x, w, b)));
  CHECK(at::equal(policy->linear(x, w, {}), at::linear(x, w)));
}
