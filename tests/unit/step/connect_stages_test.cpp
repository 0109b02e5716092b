#include "stage/connect_stages.hpp"

#include <strata/fakes/local_group.hpp>

#include <set>

#include "catch.hpp"
#include "ranks_in_threads.hpp"

using namespace strata;

TEST_CASE("stages of successive chunks exchange a message once, in any placement") {
  for (const std::vector<int>& stages : std::vector<std::vector<int>>{{0},
                                                                      {0, 0},
                                                                      {0, 1},
                                                                      {0, 1, 1, 0},
                                                                      {0, 1, 0, 1},
                                                                      {0, 1, 2, 0, 1, 2},
                                                                      {0, 1, 2, 3, 3, 2, 1, 0},
                                                                      {3, 1, 2, 0}}) {
    CAPTURE(stages);
    std::vector<std::set<int>> peers(4);
    for (std::size_t chunk = 1; chunk < stages.size(); ++chunk) {
      if (stages[chunk - 1] == stages[chunk]) continue;
      peers[static_cast<std::size_t>(stages[chunk - 1])].insert(stages[chunk]);
      peers[static_cast<std::size_t>(stages[chunk])].insert(stages[chunk - 1]);
    }
    const int ranks = 1 + *std::max_element(stages.begin(), stages.end());
    LocalGroups groups;
    std::vector<Traffic> traffic(4);
    in_threads(ranks, [&](int rank) {
      group::GroupRequest request{"pipeline", {}};
      for (int member = 0; member < ranks; ++member) request.members.push_back(member);
      const std::unique_ptr<CheckedGroup> pipeline = groups.take(request, rank);
      stage::connect_stages(*pipeline, {stages, {}}, at::kCPU);
      traffic[static_cast<std::size_t>(rank)] = pipeline->traffic();
    });
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
      for (const Collective way : {Collective::Send, Collective::Receive})
        CHECK(traffic[rank].calls_of(way) == static_cast<std::int64_t>(peers[rank].size()));
  }
}
