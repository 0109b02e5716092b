#include "offload/checks.hpp"

namespace strata::conformance {

using namespace offload_checks;

std::vector<Case> offload_cases() {
  return {
      {"offload.limits_are_sane",
       "tier() is Host or Disk, the alignment is a power of two, and at least one transfer can be in flight.",
       limits_are_sane},
      {"offload.any_size", "Regions of 1 byte to 64 MiB can be reserved, written and read in full.", any_size},
      {"offload.reads_what_was_written", "A read of any range gives the last bytes written there.",
       reads_what_was_written},
      {"offload.starts_with_zeros", "A new region holds zeros, even if it reuses the memory of a freed one.",
       starts_with_zeros},
      {"offload.regions_do_not_mix", "Regions keep their own bytes while others are reserved and freed.",
       regions_do_not_mix},
      {"offload.map_is_the_region", "The memory that map() returns is the memory that transfers use.",
       map_is_the_region},
      {"offload.wait_means_done",
       "When wait() returns, a write no longer needs its source, and a read's target is filled.", wait_means_done},
      {"offload.many_in_flight", "More transfers than limits() allows in flight can be started before the first wait.",
       many_in_flight},
      {"offload.dropped_transfer", "A transfer dropped without wait() no longer touches its span or the region.",
       dropped_transfer},
      {"offload.one_thread_after_another", "Several threads can use the device one after another.",
       one_thread_after_another},
      {"offload.unaligned", "A misaligned span, offset or size is refused or works exactly; it is never rounded.",
       unaligned},
      {"offload.zero_bytes", "A transfer of no bytes does nothing.", zero_bytes},
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
