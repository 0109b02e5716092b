#include "conformance/offload/checks.hpp"

namespace strata::conformance {

using namespace offload_checks;

std::vector<Case> offload_cases() {
  return {
      {"offload.drawn",
       "In any order of reserve(), free(), transfers, waits and drops, on one thread after another, new regions hold "
       "zeros, reads give what was written, map() shows it, and what cannot be is refused and changes nothing.",
       drawn, std::chrono::seconds(300), true},
      {"offload.three_gibibytes",
       "A region of 3 GiB and a transfer of more than 2^31 bytes work, if that much space is available.",
       three_gibibytes, std::chrono::seconds(300)},
  };
}

}  // namespace strata::conformance
