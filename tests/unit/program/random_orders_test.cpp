// The checker of orders and the communication pass, on random orders.
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "catch.hpp"
#include "communicate.hpp"
#include "program/validate_schedule.hpp"
#include "schedulers.hpp"

using namespace strata;
using namespace strata::program;

namespace {

struct RandomOrders {
  PipelineShape shape;
  Placement placement;
  ComputeOrders orders;
};

class Random {
 public:
  explicit Random(unsigned seed) : source_(seed) {}
  int below(std::size_t bound) { return static_cast<int>(source_() % bound); }
  std::mt19937& source() { return source_; }

 private:
  std::mt19937 source_;
};

// What has been computed, on any stage.
class Done {
 public:
  explicit Done(int chunks) : chunks_(chunks) {}

  // Whether all that this action reads is there.
  bool ready(const ComputeAction& action) const {
    const auto has = [&](ComputeKind kind, int chunk) { return done_.contains({kind, chunk, action.micro_batch}); };
    const int chunk = action.chunk;
    switch (action.kind) {
      case ComputeKind::Forward:
        return chunk == 0 || has(ComputeKind::Forward, chunk - 1);
      case ComputeKind::BackwardWeight:
        return has(ComputeKind::BackwardInput, chunk);
      default:
        return has(ComputeKind::Forward, chunk) && (chunk == chunks_ - 1 || has(ComputeKind::Backward, chunk + 1) ||
                                                    has(ComputeKind::BackwardInput, chunk + 1));
    }
  }

  // False where it was computed before.
  bool compute(const ComputeAction& action) {
    return done_.insert({action.kind, action.chunk, action.micro_batch}).second;
  }

 private:
  int chunks_;
  std::set<std::tuple<ComputeKind, int, int>> done_;
};

// Orders that all stages can complete: random actions of those that are ready, until none is left.
RandomOrders random_orders(Random& random) {
  const int stages = 1 + random.below(5);
  const int per_stage = 1 + random.below(3);
  RandomOrders made{{stages, per_stage, 1 + random.below(5)}, {}, {}};
  for (int chunk = 0; chunk < made.shape.chunks(); ++chunk) {
    made.placement.stage_of_chunk.push_back(chunk % stages);
    made.placement.layers_of_chunk.emplace_back(2 * chunk, 2 * chunk + 2);
  }
  std::shuffle(made.placement.stage_of_chunk.begin(), made.placement.stage_of_chunk.end(), random.source());
  made.orders.resize(static_cast<std::size_t>(stages));
  std::vector<ComputeAction> left;
  for (int chunk = 0; chunk < made.shape.chunks(); ++chunk)
    for (int micro_batch = 0; micro_batch < made.shape.micro_batches; ++micro_batch) {
      left.push_back({ComputeKind::Forward, chunk, micro_batch});
      if (random.below(2) == 0) {
        left.push_back({ComputeKind::Backward, chunk, micro_batch});
      } else {
        left.push_back({ComputeKind::BackwardInput, chunk, micro_batch});
        left.push_back({ComputeKind::BackwardWeight, chunk, micro_batch});
      }
    }
  Done done(made.shape.chunks());
  while (!left.empty()) {
    const auto chosen = left.begin() + random.below(left.size());
    if (!done.ready(*chosen)) continue;
    const int stage = made.placement.stage_of_chunk[static_cast<std::size_t>(chosen->chunk)];
    made.orders[static_cast<std::size_t>(stage)].push_back(*chosen);
    done.compute(*chosen);
    left.erase(chosen);
  }
  return made;
}

// Changes one thing: an action is moved, left out, doubled, or becomes another. What results may still be in order.
void change(RandomOrders& made, Random& random) {
  auto& order = made.orders[static_cast<std::size_t>(random.below(made.orders.size()))];
  const auto at = order.begin() + random.below(order.size());
  ComputeAction action = *at;
  switch (random.below(8)) {
    case 0:
      order.erase(at);
      return;
    case 1:
      order.insert(order.begin() + random.below(order.size() + 1), action);
      return;
    case 2:
      at->kind = std::array{ComputeKind::Forward, ComputeKind::Backward, ComputeKind::BackwardInput,
                            ComputeKind::BackwardWeight}[static_cast<std::size_t>(random.below(4))];
      return;
    case 3:
      at->micro_batch = random.below(static_cast<std::size_t>(made.shape.micro_batches) + 1);
      return;
    case 4:
      at->chunk = random.below(static_cast<std::size_t>(made.shape.chunks()) + 1);
      return;
    default:
      order.erase(at);
      order.insert(order.begin() + random.below(order.size() + 1), action);
  }
}

// Each stage takes its next action as soon as it is ready, until no stage can; then everything must have been computed
// once.
bool can_finish(const RandomOrders& made) {
  const auto& [shape, placement, orders] = made;
  std::vector<std::size_t> next(orders.size());
  std::map<std::pair<int, int>, std::vector<ComputeKind>> computed;
  Done done(shape.chunks());
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t stage = 0; stage < orders.size(); ++stage) {
      if (next[stage] == orders[stage].size()) continue;
      const ComputeAction& action = orders[stage][next[stage]];
      const bool known = action.chunk < shape.chunks() && action.micro_batch < shape.micro_batches;
      if (!known || placement.stage_of_chunk[static_cast<std::size_t>(action.chunk)] != static_cast<int>(stage))
        return false;
      if (!done.ready(action)) continue;
      if (!done.compute(action)) return false;
      computed[{action.chunk, action.micro_batch}].push_back(action.kind);
      ++next[stage];
      progress = true;
    }
  }
  for (std::size_t stage = 0; stage < orders.size(); ++stage)
    if (next[stage] < orders[stage].size()) return false;
  using enum ComputeKind;
  for (int chunk = 0; chunk < shape.chunks(); ++chunk)
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      const std::vector<ComputeKind>& passes = computed[{chunk, micro_batch}];
      if (passes != std::vector{Forward, Backward} && passes != std::vector{Forward, BackwardInput, BackwardWeight})
        return false;
    }
  return true;
}

}  // namespace

TEST_CASE("any schedule that can run gets communication that cannot deadlock") {
  Random random(11);
  for (int round = 0; round < 400; ++round) {
    const RandomOrders made = random_orders(random);
    CAPTURE(round);
    REQUIRE_NOTHROW(validate_orders("random", made.orders, made.placement, made.shape));
    const auto programs = communicate(made.orders, made.placement);
    for (int stage = 0; stage < made.shape.stages; ++stage) {
      const Program& program = programs[static_cast<std::size_t>(stage)];
      const auto found =
          std::count_if(program.begin(), program.end(), [](const Instruction& i) { return !is_compute(i.op); });
      REQUIRE(found == transfers_of(stage, made.placement, made.shape.micro_batches));
    }
  }
}

TEST_CASE("exactly the orders that can be finished are accepted") {
  Random random(12);
  int finished = 0;
  constexpr int rounds = 3000;
  for (int round = 0; round < rounds; ++round) {
    RandomOrders made = random_orders(random);
    for (int changes = random.below(4); changes > 0; --changes) change(made, random);
    const bool expected = can_finish(made);
    finished += expected;
    std::string refused;
    try {
      validate_orders("random", made.orders, made.placement, made.shape);
    } catch (const UserError& error) {
      refused = error.what();
    }
    INFO("round " << round << ": " << refused);
    REQUIRE(refused.empty() == expected);
  }
  CHECK(finished > rounds / 4);
  CHECK(finished < rounds * 3 / 4);
}
