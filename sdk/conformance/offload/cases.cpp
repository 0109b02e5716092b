#include "offload/checks.hpp"

namespace strata::conformance {

using namespace offload_checks;

std::vector<Case> offload_cases() {
  return {
      {"offload.limits_are_sane",
       "tier() is host or disk, the alignment a power of two, and a transfer can be in flight.", limits_are_sane},
      {"offload.any_size", "Regions of 1 byte to 64 MiB are reserved as asked, written and read whole.", any_size},
      {"offload.reads_what_was_written", "Any range that is read holds what was last written there.",
       reads_what_was_written},
      {"offload.starts_with_zeros", "A region is zeros when it is reserved, also where another one was.",
       starts_with_zeros},
      {"offload.regions_do_not_mix", "Regions that come and go keep their own bytes.", regions_do_not_mix},
      {"offload.map_is_the_region", "What map() gives is the memory that transfers see, where it gives any.",
       map_is_the_region},
      {"offload.wait_means_done", "When wait() returns a write needs its source no more and a read's target is filled.",
       wait_means_done},
      {"offload.many_in_flight", "More transfers than limits() says may be started before one is waited for.",
       many_in_flight},
      {"offload.dropped_transfer",
       "A transfer dropped without wait() touches neither its span nor the region afterwards.", dropped_transfer},
      {"offload.one_thread_after_another", "Threads may use the device one after another.", one_thread_after_another},
      {"offload.unaligned", "A span, offset or size that breaks the alignment is refused or honoured, never rounded.",
       unaligned},
      {"offload.zero_bytes", "A transfer of no bytes does nothing.", zero_bytes},
      {"offload.out_of_range_refused", "Ranges beyond a region's end and regions that are not reserved are a Bug.",
       out_of_range_refused},
      {"offload.out_of_space",
       "More than there is is an EnvironmentError with both figures, and the device stays usable.", out_of_space},
      {"offload.free_gives_back", "Reserving and freeing in a loop takes no more memory, files or space.",
       free_gives_back},
      {"offload.leaks_nothing", "Transfers in a loop take no memory, descriptors or threads.", leaks_nothing},
      {"offload.three_gibibytes", "3 GiB are held, with a transfer of more than 2^31 bytes, where there is that much.",
       three_gibibytes, std::chrono::seconds(300)},
  };
}

}  // namespace strata::conformance
