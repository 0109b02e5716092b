// Ranks that work on their own come to one outcome.
#include "checkpoint/agreement.hpp"

#include <strata/error.hpp>
#include <strata/fakes/local_group.hpp>

#include <vector>

#include "catch.hpp"
#include "checkpoint/training_checkpoint.hpp"

using namespace strata;
using strata::checkpoint::DamagedCheckpoint;
using strata::checkpoint::Failure;
using strata::checkpoint::Outcome;

TEST_CASE("ranks that work on their own come to one outcome") {
  std::vector<Outcome> outcomes(3);
  std::vector<int> calls(3);
  fakes::on_ranks(3, [&](CheckedGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    outcomes[rank] = checkpoint::work_in_rounds(group, at::kCPU, [&] { return ++calls[rank] <= 2 * group.rank(); });
  });
  CHECK(calls == std::vector<int>{1, 3, 5});
  for (const Outcome& outcome : outcomes) CHECK_NOTHROW(outcome.check());
  fakes::on_ranks(3, [&](CheckedGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    outcomes[rank] = checkpoint::work_in_rounds(group, at::kCPU, [&]() -> bool {
      if (rank == 1) throw DamagedCheckpoint("shard 1 is cut");
      if (rank == 2) throw EnvironmentError("the disk is full");
      return true;
    });
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.failure == Failure::Damaged);
    CHECK_THROWS_WITH(outcome.check(), "shard 1 is cut");
  }
}
