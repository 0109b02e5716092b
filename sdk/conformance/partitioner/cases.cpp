#include <strata/error.hpp>

#include "conformance/drawn/search.hpp"
#include "conformance/partitioner/carried_out.hpp"

namespace strata::conformance {

namespace {

constexpr int drawn_runs = 300;

void drawn_runs_are_right(Subject& subject) {
  tolerance_of(subject, {});  // throws Skip
  search(subject, "partitioner.drawn", drawn_runs, [&](Subject& of, Draws& draws, const Tell& tell) {
    PartitionWorld world = draw_partition(draws, of.manifest().options);
    tell(to_string(world));
    try {
      const fakes::PartitionGroups groups(of.library(), world.options, world.ranks);
    } catch (const UserError&) {
      return false;  // it takes other settings or numbers of ranks
    }
    const Lookahead lookahead = check_layout(of, world);
    draw_course(draws, lookahead, world);
    tell(to_string(world));
    carry_out(of, world, tolerance_of(of, world.options));
    return true;
  });
}

}  // namespace

std::vector<Case> partitioner_cases() {
  return {
      {"partitioner.drawn",
       "In every drawn run gathered values are the published ones, slices hold the sums over ranks and micro-batches, "
       "memory and bytes sent are those of the dry run, prefetch() does not wait, and calls out of order throw Bug.",
       drawn_runs_are_right, std::chrono::seconds(300), true},
  };
}

}  // namespace strata::conformance
