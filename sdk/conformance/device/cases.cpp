#include "conformance/device/checks.hpp"

namespace strata::conformance {

using namespace device_checks;

std::vector<Case> device_cases() {
  return {
      {"device.usable_or_says_why",
       "count() is above 0, or why() gives the reason in one sentence and select() throws.", usable_or_says_why},
      {"device.select_gives_its_type", "select(0) gives a device of type() on which tensors can be used.",
       select_gives_its_type},
      {"device.memory_is_sane", "memory() gives the total and the available memory in bytes.", memory_is_sane},
      {"device.drawn",
       "on() runs its work once, also within other work, and rethrows; events order work on any streams, host buffers "
       "hold what is copied to them, sum_of_squares accumulates in fp64 "
       "wherever tensors lie, and adamw_step gives the bits of the formula in <strata/operators.hpp>.",
       drawn, std::chrono::seconds(300), true},
  };
}

}  // namespace strata::conformance
