#include "offload/checks.hpp"

namespace strata::conformance {

using namespace offload_checks;

std::vector<Case> offload_cases() {
  return {
      {"offload.limits_are_sane",
       "tier() is Host or Disk, the alignment is a power of two, and at least one transfer can be in flight.",
       limits_are_sane},
      {"offload.drawn",
       "In any order of reserve(), free(), transfers and waits, on one thread after another, new regions hold zeros, "
       "reads "
       "give what was written, and map() shows it.",
       drawn, std::chrono::seconds(300), true},
      {"offload.dropped_transfer", "A transfer dropped without wait() no longer touches its span or the region.",
       dropped_transfer},
      {"offload.unaligned", "A misaligned span, offset or size is refused or works exactly; it is never rounded.",
       unaligned},
      {"offload.out_of_range_refused", "Ranges outside a region and regions that are not reserved throw Bug.",
       out_of_range_refused},
      {"offload.out_of_space",
       "reserve() of more than is available throws an EnvironmentError with both sizes, and the device stays usable.",
       out_of_space},
      {"offload.free_gives_back", "Reserving and freeing in a loop does not grow memory, open files or disk use.",
       free_gives_back},
      {"offload.leaks_nothing", "Transfers in a loop leak no memory, file descriptors or threads.", leaks_nothing},
      {"offload.three_gibibytes",
       "A region of 3 GiB and a transfer of more than 2^31 bytes work, if that much space is available.",
       three_gibibytes, std::chrono::seconds(300)},
  };
}

}  // namespace strata::conformance
