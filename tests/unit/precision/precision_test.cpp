#include <ATen/ATen.h>
#include <strata/fakes/plugin_library.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/precision_policy.hpp>

#include <limits>

#include "catch.hpp"

namespace {

using strata::GradientHealth;
using strata::Verdict;
using strata::fakes::PluginLibrary;
using strata::fakes::SavedState;
using Policy = strata::fakes::LoadedPlugin<strata::PrecisionPolicy>;

GradientHealth good() {
  return {1, 2.0, true};
}
GradientHealth bad(std::int64_t step) {
  return {step, std::numeric_limits<double>::infinity(), false};
}

}  // namespace

TEST_CASE("number formats") {
  const Policy fp32{PluginLibrary(FP32_LIBRARY)};
  CHECK(fp32->dtypes({}) == strata::DTypes{});
  CHECK_FALSE(fp32->dtypes({}).has_master());
  CHECK(fp32->activation() == at::kFloat);
  CHECK(fp32->loss_scale() == 1.0);
  const PluginLibrary library(BF16_LIBRARY);
  const Policy bf16(library);
  CHECK(bf16->dtypes({}) == strata::DTypes{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat});
  CHECK(bf16->activation() == at::kBFloat16);
  CHECK(bf16->loss_scale() == 1.0);
  const Policy lean(library, {{"accumulation", "bf16"}, {"reduction", "bf16"}});
  CHECK(lean->dtypes({}) == strata::DTypes{at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kFloat});
}

TEST_CASE("gradients that are not finite are skipped, and too many in a row stop the run") {
  for (const char* file : {FP32_LIBRARY, BF16_LIBRARY}) {
    const PluginLibrary library(file);
    const Policy policy(library, {{"max_consecutive_skips", "2"}});
    CHECK(policy->judge(good()) == Verdict::Apply);
    CHECK(policy->judge(bad(2)) == Verdict::Skip);
    CHECK(policy->judge(bad(3)) == Verdict::Skip);
    CHECK(policy->judge(good()) == Verdict::Apply);
    CHECK(policy->judge(bad(5)) == Verdict::Skip);
    SavedState saved;
    policy->save(saved);
    const Policy resumed(library, {{"max_consecutive_skips", "2"}});
    resumed->load(saved, resumed->state_version());
    CHECK(resumed->judge(bad(6)) == Verdict::Skip);
    CHECK(resumed->judge(bad(7)) == Verdict::Stop);
    CHECK_THAT(resumed->stop_reason(), Catch::Contains("3 consecutive steps") && Catch::Contains("step 7") &&
                                           Catch::Contains("max_consecutive_skips allows 2"));
    const Policy strict(library, {{"max_consecutive_skips", "0"}});
    CHECK(strict->judge(bad(1)) == Verdict::Stop);
  }
}

TEST_CASE("the default linear is libtorch's, with a bias or without") {
  const Policy policy{PluginLibrary(FP32_LIBRARY)};
  const at::Tensor x = at::randn({2, 3, 5}), b = at::randn({4});
  const strata::Parameter w{{}, at::randn({4, 5})};
  CHECK(at::equal(policy->linear(x, w, b), at::linear(x, w.tensor, b)));
  CHECK(at::equal(policy->linear(x, w, {}), at::linear(x, w.tensor)));
}
