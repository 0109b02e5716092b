// Residency and reduction against a naive interpreter, over random small models, schedules and limits.
#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "catch.hpp"
#include "program/passes.hpp"
#include "program/validate_program.hpp"
#include "schedulers.hpp"

using namespace strata;
using namespace strata::program;

namespace {

constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max();

struct SmallModel {
  Program computes;  // of one stage
  ParameterUse use;
  int micro_batches = 0;
};

class RandomModels {
 public:
  explicit RandomModels(unsigned seed) : random_(seed) {}
  int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

  SmallModel next() {
    SmallModel model;
    const int layers = 1 + below(6);
    const int parameters = 1 + below(6);
    for (int i = 0; i < parameters; ++i)
      model.use.flat_parameters.push_back({1 + below(20), below(4) != 0, below(2) == 0});
    for (int layer = 0; layer < layers; ++layer) {
      std::set<int> own;
      for (int i = below(4); i > 0; --i) own.insert(below(parameters));  // none, own and shared ones
      model.use.flat_parameters_of_layer.emplace_back(own.begin(), own.end());
      model.use.backward_reads.push_back(below(4) != 0);
    }
    model.micro_batches = 1 + below(4);
    std::vector<bool> recompute;
    for (int layer = 0; layer < layers; ++layer) recompute.push_back(below(2) == 0);
    model.computes = expand_layers(random_order(model.micro_batches), {{0}, {{0, layers}}}, recompute);
    return model;
  }

 private:
  // Forwards, backwards and weights of one chunk, mixed in any legal order.
  std::vector<ComputeAction> random_order(int micro_batches) {
    std::vector<ComputeAction> order;
    std::vector<int> progress(static_cast<std::size_t>(micro_batches), 0);
    std::vector<bool> split;
    for (int i = 0; i < micro_batches; ++i) split.push_back(below(3) == 0);
    while (true) {
      std::vector<int> open;
      for (int i = 0; i < micro_batches; ++i) {
        if (progress[static_cast<std::size_t>(i)] < (split[static_cast<std::size_t>(i)] ? 3 : 2)) open.push_back(i);
      }
      if (open.empty()) return order;
      const int chosen = open[static_cast<std::size_t>(below(static_cast<int>(open.size())))];
      const auto index = static_cast<std::size_t>(chosen);
      constexpr ComputeKind whole_kinds[] = {ComputeKind::Forward, ComputeKind::Backward};
      constexpr ComputeKind split_kinds[] = {ComputeKind::Forward, ComputeKind::BackwardInput,
                                             ComputeKind::BackwardWeight};
      const ComputeKind kind = split[index] ? split_kinds[progress[index]] : whole_kinds[progress[index]];
      order.push_back({kind, 0, chosen, 0});
      ++progress[index];
    }
  }

  std::mt19937 random_;
};

Program computes_of(const Program& program) {
  Program computes;
  std::copy_if(program.begin(), program.end(), std::back_inserter(computes),
               [](const auto& i) { return is_compute(i.op); });
  return computes;
}

std::int64_t size_of(const SmallModel& model, int parameter) {
  return model.use.flat_parameter(parameter).elements;
}

std::int64_t needed_by(const SmallModel& model, const Instruction& compute) {
  std::int64_t elements = 0;
  for (const int parameter : values_used(compute, model.use)) elements += size_of(model, parameter);
  return elements;
}

bool uses(const SmallModel& model, const Instruction& compute, int parameter) {
  const auto& used = values_used(compute, model.use);
  return std::find(used.begin(), used.end(), parameter) != used.end();
}

// The next use after `position`, or the number of computes.
std::size_t next_use(const SmallModel& model, const Program& computes, std::size_t position, int parameter) {
  std::size_t next = position + 1;
  while (next < computes.size() && !uses(model, computes[next], parameter)) ++next;
  return next;
}

// The rules of add_residency, written down again.
bool is_near(const SmallModel& model, const Program& computes, std::size_t position, int parameter,
             const Lookahead& lookahead) {
  const std::size_t next = next_use(model, computes, position, parameter);
  if (next == computes.size()) return false;
  std::int64_t distance = 0;
  for (std::size_t i = position + 1; i < next; ++i) distance += needed_by(model, computes[i]);
  const bool at_once = static_cast<int>(next - position - 1) <= lookahead.layers &&
                       distance <= lookahead.elements - size_of(model, parameter);
  return lookahead.reuse_distance >= 0 && (distance <= lookahead.reuse_distance || at_once);
}

struct Stay {
  int parameter = 0;
  std::size_t prefetched = 0;  // before this compute; `gathered` when it was not
  std::size_t gathered = 0;
  std::size_t released = 0;  // before this compute
};

struct Seen {
  int gathers = 0;
  int prefetches = 0;
  std::vector<Stay> stays;  // in the order of their gathers
};

// Follows the program with a set of gathered parameters and checks everything at each instruction.
Seen interpret(const SmallModel& model, const Program& program, const Lookahead& lookahead) {
  const Program computes = computes_of(program);
  REQUIRE(computes == model.computes);
  std::map<int, Instruction> there;                           // gathered: by its Gather
  std::map<int, std::pair<std::size_t, std::size_t>> flying;  // prefetched: at which compute, and its order
  std::size_t position = 0;                                   // of the next compute
  std::size_t order = 0;
  Seen seen;
  const auto live = [&] {
    std::int64_t elements = 0;
    for (const auto& [parameter, unused] : there) elements += size_of(model, parameter);
    for (const auto& [parameter, unused] : flying) elements += size_of(model, parameter);
    return elements;
  };
  for (const Instruction& i : program) {
    const int parameter = i.flat_parameter;
    if (i.op == Op::Prefetch) {
      REQUIRE_FALSE(there.contains(parameter));
      REQUIRE_FALSE(flying.contains(parameter));
      flying[parameter] = {position, order++};
      std::int64_t ahead = 0;
      for (const auto& [one, unused] : flying) ahead += size_of(model, one);
      REQUIRE(ahead <= lookahead.elements);
      ++seen.prefetches;
    } else if (i.op == Op::Gather) {
      REQUIRE_FALSE(there.contains(parameter));
      REQUIRE(uses(model, computes.at(position), parameter));  // only for the compute that follows
      REQUIRE(i.phase == phase_of(computes[position]));
      std::size_t came_from = position;
      if (flying.contains(parameter)) {
        came_from = flying[parameter].first;
        REQUIRE(position - flying[parameter].first <= static_cast<std::size_t>(lookahead.layers));
        REQUIRE(position > flying[parameter].first);
        for (const auto& [unused, other] : flying)
          REQUIRE(other.second >= flying[parameter].second);  // first in, first out
        flying.erase(parameter);
      }
      there[parameter] = i;
      ++seen.gathers;
      seen.stays.push_back({parameter, came_from, position, 0});
    } else if (i.op == Op::Release) {
      REQUIRE(there.contains(parameter));
      REQUIRE(uses(model, computes.at(position - 1), parameter));  // directly after a use
      REQUIRE(i.phase == phase_of(computes[position - 1]));
      there.erase(parameter);
      std::find_if(seen.stays.rbegin(), seen.stays.rend(), [&](const Stay& stay) {
        return stay.parameter == parameter;
      })->released = position;
    } else if (is_compute(i.op)) {
      for (const int used : values_used(i, model.use)) REQUIRE(there.contains(used));
      REQUIRE(live() <= std::max(lookahead.live_parameters, needed_by(model, i)));
      ++position;
    }
  }
  REQUIRE(there.empty());
  REQUIRE(flying.empty());
  return seen;
}

// After each use: whether the program keeps the parameter. By compute and parameter.
std::map<std::pair<std::size_t, int>, bool> kept_after(const SmallModel& model, const Program& program) {
  std::map<std::pair<std::size_t, int>, bool> kept;
  std::size_t position = 0;
  for (const Instruction& i : program) {
    if (is_compute(i.op)) {
      for (const int parameter : values_used(i, model.use)) kept[{position, parameter}] = true;
      ++position;
    }
    if (i.op == Op::Release) kept[{position - 1, i.flat_parameter}] = false;
  }
  return kept;
}

}  // namespace

TEST_CASE("residency keeps every rule on random models under random limits") {
  RandomModels models(3);
  for (int round = 0; round < 1500; ++round) {
    INFO("round " << round);
    const SmallModel model = models.next();
    const Lookahead lookahead{models.below(5), models.below(60), models.below(3) * models.below(40) - 1,
                              models.below(120)};
    const Program program = add_residency(model.computes, model.use, lookahead);
    interpret(model, program, lookahead);
    validate_residency(program, model.use, lookahead);
    for (const auto& [use, stays] : kept_after(model, program)) {
      if (stays) REQUIRE(is_near(model, model.computes, use.first, use.second, lookahead));
    }
  }
}

TEST_CASE("without a bound, exactly the near layers stay and prefetches start early") {
  RandomModels models(5);
  for (int round = 0; round < 500; ++round) {
    INFO("round " << round);
    const SmallModel model = models.next();
    const Lookahead lookahead{models.below(4), unbounded, models.below(40) - 1, unbounded};
    const Program program = add_residency(model.computes, model.use, lookahead);
    const Seen seen = interpret(model, program, lookahead);
    for (const auto& [use, stays] : kept_after(model, program)) {
      REQUIRE(stays == is_near(model, model.computes, use.first, use.second, lookahead));
    }
    std::map<int, std::size_t> free_from;
    std::size_t earliest = 0;
    for (const Stay& stay : seen.stays) {
      const auto layers = static_cast<std::size_t>(lookahead.layers);
      earliest = std::max({earliest, free_from[stay.parameter], stay.gathered - std::min(layers, stay.gathered)});
      REQUIRE(stay.prefetched == earliest);
      free_from[stay.parameter] = stay.released;
    }
  }
}

TEST_CASE("no lookahead: a gather for each use, but where the same parameters are used in a row") {
  RandomModels models(9);
  for (int round = 0; round < 300; ++round) {
    const SmallModel model = models.next();
    const Program program = add_residency(model.computes, model.use, {});
    const Seen seen = interpret(model, program, {});
    CHECK(seen.prefetches == 0);
    int expected = 0;
    for (std::size_t position = 0; position < model.computes.size(); ++position) {
      for (const int parameter : values_used(model.computes[position], model.use)) {
        // Kept from the use before: with nothing in between that needs any parameter, nothing more is live.
        bool stays = false;
        for (std::size_t before = position; before-- > 0 && !stays;) {
          if (uses(model, model.computes[before], parameter)) {
            stays = next_use(model, model.computes, before, parameter) == position &&
                    is_near(model, model.computes, before, parameter, {}) && before + 1 == position;
            break;
          }
        }
        if (!stays) ++expected;
      }
    }
    CHECK(seen.gathers == expected);
  }
}

TEST_CASE("unbounded reuse gathers each parameter once, resident ones never") {
  const StepPlan plan = plan_step("scheduler/1f1b", *make_scheduler("1f1b"), {1, 1, 5}, costs_of(4));
  const LayerOptions layers = plain_layers(4);
  const auto count = [](const Program& program, Op op) {
    return std::count_if(program.begin(), program.end(), [&](const Instruction& i) { return i.op == op; });
  };
  const Program kept = lower_training(plan, layers, {0, 0, unbounded, unbounded}, 0);
  CHECK(count(kept, Op::Gather) == 4);
  CHECK(count(kept, Op::Release) == 4);
  Lookahead resident;
  resident.resident = true;
  const Program still = lower_training(plan, layers, resident, 0);
  CHECK(count(still, Op::Gather) + count(still, Op::Prefetch) + count(still, Op::Release) == 0);
  CHECK(count(still, Op::Reduce) == 20);
}

TEST_CASE("a parameter at the turn from forward to backward stays, others are gathered again") {
  const StepPlan plan = plan_step("scheduler/sequential", *make_scheduler("sequential"), {1, 1, 1}, costs_of(3));
  const Program program = lower_training(plan, plain_layers(3), {1, 10, 0, 20}, 0);
  std::vector<std::string> lines;
  for (const Instruction& i : program) {
    if (is_compute(i.op) || i.op == Op::Prefetch || i.op == Op::Gather || i.op == Op::Release)
      lines.push_back(to_string(i));
  }
  CHECK(lines == std::vector<std::string>{"Gather parameter 0 for forward",
                                          "Prefetch parameter 1 for forward",
                                          "Forward 0.0 layer 0",
                                          "Release parameter 0 for forward",
                                          "Gather parameter 1 for forward",
                                          "Prefetch parameter 2 for forward",
                                          "Forward 0.0 layer 1",
                                          "Release parameter 1 for forward",
                                          "Gather parameter 2 for forward",
                                          "Forward 0.0 layer 2",
                                          "Prefetch parameter 1 for backward",
                                          "Backward 0.0 layer 2",
                                          "Release parameter 2 for backward",
                                          "Gather parameter 1 for backward",
                                          "Prefetch parameter 0 for backward",
                                          "Backward 0.0 layer 1",
                                          "Release parameter 1 for backward",
                                          "Gather parameter 0 for backward",
                                          "Backward 0.0 layer 0",
                                          "Release parameter 0 for backward"});
}

TEST_CASE("a layer whose backward reads no values is gathered for its forward alone") {
  const StepPlan plan = plan_step("scheduler/sequential", *make_scheduler("sequential"), {1, 1, 1}, costs_of(3));
  const auto gathers_of_the_first = [&](bool reads, bool recomputed) {
    LayerOptions layers = plain_layers(3);
    layers.parameters.backward_reads = {reads, true, true};
    layers.recompute[0] = recomputed;
    std::vector<std::string> lines;
    for (const Instruction& i : lower_training(plan, layers, {1, 10, 0, 20}, 0))
      if (i.op == Op::Gather && i.flat_parameter == 0) lines.push_back(to_string(i));
    return lines;
  };
  const std::string forward = "Gather parameter 0 for forward", recompute = "Gather parameter 0 for recompute";
  CHECK(gathers_of_the_first(true, false) == std::vector<std::string>{forward, "Gather parameter 0 for backward"});
  CHECK(gathers_of_the_first(false, false) == std::vector<std::string>{forward});
  CHECK(gathers_of_the_first(false, true) == std::vector<std::string>{forward, recompute});
}

TEST_CASE("gradients are reduced once per micro-batch after their last write, and never frozen ones") {
  RandomModels models(21);
  for (int round = 0; round < 1500; ++round) {
    INFO("round " << round);
    const SmallModel model = models.next();
    const UpdatePlan updates =
        all_updates(UpdatePlace::AtEnd, updated_parameters(model.computes, model.use), {false, true});
    const Program program = add_end_of_step(add_reduction(model.computes, model.use), model.use, {}, updates);
    validate_reduction(program, model.use);
    validate_end_of_step(program, model.use, {}, {false, true});
    std::map<int, std::vector<const Instruction*>> reduces;
    std::map<int, int> outstanding;  // writes into a borrowed gradient that no Reduce has taken
    std::set<int> borrowed;
    for (std::size_t i = 0; i < program.size(); ++i) {
      const Instruction& instruction = program[i];
      const int parameter = instruction.flat_parameter;
      if (instruction.op == Op::BorrowGradient) REQUIRE(borrowed.insert(parameter).second);
      if (is_compute(instruction.op)) {
        for (const int used : model.use.of_layer(instruction.layer)) {
          if (!writes_gradient(instruction, model.use.flat_parameter(used))) continue;
          REQUIRE(borrowed.contains(used));
          ++outstanding[used];
        }
      }
      if (instruction.op != Op::Reduce) continue;
      REQUIRE(model.use.flat_parameter(parameter).trainable);
      REQUIRE(borrowed.erase(parameter) == 1);
      outstanding[parameter] = 0;
      for (std::size_t later = i; later < program.size(); ++later) {  // nothing of this micro-batch writes any more
        const Instruction& other = program[later];
        if (!is_compute(other.op) || other.micro_batch != instruction.micro_batch ||
            !writes_gradient(other, model.use.flat_parameter(parameter)))
          continue;
        const auto& used = model.use.of_layer(other.layer);
        REQUIRE(std::find(used.begin(), used.end(), parameter) == used.end());
      }
      reduces[parameter].push_back(&instruction);
    }
    for (const auto& [parameter, writes] : outstanding) REQUIRE(writes == 0);
    for (const auto& used : model.use.flat_parameters_of_layer) {
      for (const int parameter : used) {
        if (!model.use.flat_parameter(parameter).trainable) continue;
        const auto& list = reduces[parameter];
        REQUIRE(static_cast<int>(list.size()) == model.micro_batches);
        for (std::size_t i = 0; i < list.size(); ++i) {
          REQUIRE(list[i]->first == (i == 0));
          REQUIRE(list[i]->last == (i + 1 == list.size()));
        }
      }
    }
  }
}
