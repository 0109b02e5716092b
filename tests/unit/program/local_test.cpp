// Weights that are averaged over groups of ranks after the update.
#include <strata/error.hpp>

#include "catch.hpp"
#include "one_rank.hpp"
#include "program/passes.hpp"
#include "program/validate_program.hpp"

using namespace strata;
using namespace strata::program;
using Catch::Contains;

namespace {

LayerOptions local_layers() {
  LayerOptions layers = plain_layers(2);
  layers.policy = config::StepPolicy::Local;
  return layers;
}

void check_refused(const Program& program, bool synchronizes, const std::string& sentence) {
  const LayerOptions layers = local_layers();
  CHECK_THROWS_WITH(
      validate_end_of_step(program, layers.parameters, {}, layers.sums_of_round, /*updates=*/0, synchronizes),
      Contains(sentence));
}

}  // namespace

TEST_CASE("each parameter is synchronized between its last update and its publishing, once") {
  const Program whole = one_rank(local_layers());
  const std::vector<std::string> lines = to_text(whole);
  CHECK(std::vector<std::string>(lines.end() - 7, lines.end()) ==
        std::vector<std::string>{"Norm", "Update parameter 0 round 0", "Update parameter 1 round 0",
                                 "Synchronize parameter 0", "Publish parameter 0", "Synchronize parameter 1",
                                 "Publish parameter 1"});
  const auto place = static_cast<std::ptrdiff_t>(place_of(whole, "Synchronize parameter 1"));
  Program program = whole;
  program.erase(program.begin() + place);
  check_refused(program, true, "published before it is synchronized");
  program = whole;
  program.insert(program.begin() + place, program[static_cast<std::size_t>(place)]);
  check_refused(program, true, "synchronized once, after the last update and before it is published");
  check_refused(moved(whole, "Synchronize parameter 1", place_of(whole, "Update parameter 1 round 0")), true,
                "synchronized once, after the last update and before it is published");
  check_refused(whole, false, "synchronized once, after the last update and before it is published");
}
