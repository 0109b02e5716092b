// @name@: formats, and verdicts on a script of good and bad steps.
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/precision_policy.hpp>

#include <limits>

#include "catch.hpp"

using namespace strata;

namespace {
GradientHealth good(std::int64_t step) {
  return {step, 1.0, true};
}
GradientHealth bad(std::int64_t step) {
  return {step, std::numeric_limits<double>::infinity(), false};
}
}  // namespace

TEST_CASE("layers compute in bf16, sums and updates are fp32") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<PrecisionPolicy> policy(library);
  CHECK(policy->dtypes({}) == DTypes{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat});
  CHECK(policy->activation() == at::kBFloat16);
}

TEST_CASE("bad steps are skipped, too many in a row stop the run, also when it was resumed between them") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<PrecisionPolicy> first(library, {{"max_consecutive_skips", "1"}});
  CHECK(first->judge(bad(1)) == Verdict::Skip);
  CHECK(first->judge(good(2)) == Verdict::Apply);
  CHECK(first->judge(bad(3)) == Verdict::Skip);
  fakes::SavedState saved;
  first->save(saved);
  const fakes::LoadedPlugin<PrecisionPolicy> resumed(library, {{"max_consecutive_skips", "1"}});
  resumed->load(saved, resumed->state_version());
  CHECK(resumed->judge(bad(4)) == Verdict::Stop);
  CHECK_THROWS_AS(resumed->load(saved, resumed->state_version() + 1), UserError);
}
