// Updates that do not wait for the norm.
#include <strata/error.hpp>

#include <algorithm>
#include <numeric>

#include "catch.hpp"
#include "program/validate_program.hpp"
#include "schedulers.hpp"

using namespace strata;
using namespace strata::program;
using Catch::Contains;

namespace {

LayerOptions speculative_layers(int layers) {
  LayerOptions options = plain_layers(layers);
  options.sums_of_round = {false, true};
  options.policy = config::StepPolicy::Speculative;
  return options;
}

StepPlan plan_of(const std::string& scheduler, const PipelineShape& shape, int layers) {
  return plan_step("scheduler/" + scheduler, *make_scheduler(scheduler), shape, costs_of(layers));
}

void refuses(Program program, std::size_t without, const LayerOptions& layers, const std::string& sentence) {
  program.erase(program.begin() + static_cast<std::ptrdiff_t>(without));
  CHECK_THROWS_WITH(validate_end_of_step(program, layers.parameters, {}, layers.sums_of_round),
                    Contains(sentence) && Contains("<-- here"));
}

}  // namespace

TEST_CASE("a schedule in V shape looks ahead as far as stages end apart, and is then never idle") {
  const int stages = GENERATE(2, 3, 4, 8), micro_batches = GENERATE(8, 16, 32);
  if (micro_batches < 2 * stages) return;
  CAPTURE(stages, micro_batches);
  const LookAhead found = look_ahead(plan_of("zero_bubble_v", {stages, 2, micro_batches}, 2 * stages));
  for (int stage = 0; stage < stages; ++stage)
    CHECK(found.actions[static_cast<std::size_t>(stage)] == static_cast<std::size_t>(stages - 1 - stage));
  CHECK(found.period == 6 * micro_batches);  // forward and both backwards of two chunks, each 1
}

TEST_CASE("a schedule whose first stage ends last has no lookahead") {
  for (const char* const name : {"gpipe", "1f1b", "interleaved_1f1b", "sequential"}) {
    CAPTURE(name);
    const int chunks = name == std::string("interleaved_1f1b") ? 2 : 1;
    const StepPlan plan = plan_of(name, {4, chunks, 8}, 8);
    const LookAhead found = look_ahead(plan);
    CHECK_FALSE(found.any());
    CHECK(found.period == simulate(plan.orders, plan.placement, [&](const ComputeAction& action) {
                            return plan.shape.cost_of(action.kind, action.chunk);
                          }).makespan);
    LayerOptions layers = speculative_layers(8);
    const Program program = lower_training(plan, layers, {.resident = true}, 0);
    layers.policy = config::StepPolicy::Plain;
    CHECK(program == lower_training(plan, layers, {.resident = true}, 0));
  }
}

TEST_CASE("instructions ahead are independent of the rest and precede it") {
  const std::string name = GENERATE("zero_bubble_v", "dualpipe_v", "zero_bubble_h1");
  const int stages = GENERATE(2, 3, 4);
  const int chunks = name == "zero_bubble_h1" ? 1 : 2;
  const StepPlan plan = plan_of(name, {stages, chunks, 2 * stages + 1}, stages * chunks);
  const Lookahead lookahead = GENERATE(Lookahead{.resident = true}, Lookahead{2, 300, 0, 400});
  for (int stage = 0; stage < stages; ++stage) {
    LayerOptions layers = speculative_layers(stages * chunks);
    const Program program = lower_training(plan, layers, lookahead, stage);
    const auto rest = std::ranges::find_if(program, [](const Instruction& i) { return !i.ahead; });
    CHECK(std::none_of(rest, program.end(), [](const Instruction& i) { return i.ahead; }));
    CHECK(std::none_of(program.begin(), rest, [](const Instruction& i) { return computes_backward(i.op); }));
    CHECK_NOTHROW(validate_residency({program.begin(), rest}, layers.parameters, lookahead));
    CHECK_NOTHROW(validate_residency({rest, program.end()}, layers.parameters, lookahead));
    layers.policy = config::StepPolicy::Plain;
    Program plain = lower_training(plan, layers, lookahead, stage), computed = program;
    for (Program* const one : {&plain, &computed})
      std::erase_if(*one, [](const Instruction& i) { return !is_compute(i.op) && i.op != Op::Reduce; });
    for (Instruction& instruction : computed) instruction.ahead = false;
    CHECK(plain == computed);
  }
}

TEST_CASE("a speculative step updates before the norm, and then once more, read line by line") {
  const StepPlan plan = plan_of("zero_bubble_v", {2, 2, 4}, 4);
  const LayerOptions layers = speculative_layers(4);
  const Program program = lower_training(plan, layers, {.resident = true}, 0);
  const std::vector<std::string> lines = to_text(program);
  CHECK(std::vector<std::string>(lines.begin(), lines.begin() + 3) ==
        std::vector<std::string>{"Forward 0.0 ahead layer 0", "SendActivation 0.0 ahead to stage 1",
                                 "Forward 0.1 layer 0"});
  const std::vector<std::string> updates{
      "Update parameter 0 round 0",  "Update parameter 3 round 0", "Measure parameter 0 round 1",
      "Measure parameter 3 round 1", "SumStatistics round 1",      "Update parameter 0 round 1",
      "Update parameter 3 round 1",  "Publish parameter 0",        "Publish parameter 3"};
  std::vector<std::string> end{"StartNorm", "SaveState parameter 0", "SaveState parameter 3"};
  end.insert(end.end(), updates.begin(), updates.end());
  end.insert(end.end(), {"Norm", "RestoreState parameter 0", "RestoreState parameter 3"});
  end.insert(end.end(), updates.begin(), updates.end());
  CHECK(std::vector<std::string>(lines.end() - static_cast<std::ptrdiff_t>(end.size()), lines.end()) == end);
}

TEST_CASE("a speculative step that lacks one of its parts is refused") {
  const StepPlan plan = plan_of("zero_bubble_v", {2, 2, 4}, 4);
  const LayerOptions layers = speculative_layers(4);
  const Program program = lower_training(plan, layers, {.resident = true}, 0);
  const std::size_t norm = place_of(program, "Norm");
  refuses(program, place_of(program, "StartNorm"), layers, "state is saved once, before the updates");
  refuses(program, place_of(program, "SaveState parameter 3"), layers,
          "updated before the norm is known, and not saved");
  refuses(program, norm, layers, "state is restored once, after the norm");
  refuses(program, place_of(program, "RestoreState parameter 3"), layers, "updated again and not restored");
  refuses(program, place_of(program, "Update parameter 3 round 1", norm), layers, "published before its last update");
  refuses(program, place_of(program, "Measure parameter 0 round 1", norm), layers, "the sums lack parameter 0");
  refuses(program, place_of(program, "Publish parameter 0", norm), layers, "parameter 0 is never published");
  refuses(program, place_of(program, "Publish parameter 0"), layers, "state is restored once, after the norm");
  Program never(program.begin(), program.begin() + static_cast<std::ptrdiff_t>(norm) + 1);
  CHECK_THROWS_WITH(validate_end_of_step(never, layers.parameters, {}, layers.sums_of_round),
                    Contains("is not restored for an update as the norm says"));
}
