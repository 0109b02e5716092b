#include "device/checks.hpp"

namespace strata::conformance {

using namespace device_checks;

std::vector<Case> device_cases() {
  return {
      {"device.usable_or_says_why",
       "count() is above 0, or why() says the reason in one sentence and select() refuses.", usable_or_says_why},
      {"device.select_gives_its_type", "select(0) gives a device of type() on which tensors can be used.",
       select_gives_its_type},
      {"device.streams_run_work", "on() runs its work once for every kind of stream, and passes its exceptions on.",
       streams_run_work},
      {"device.events_order_work", "Work behind an event's block sees what was done before its record.",
       events_order_work},
      {"device.event_without_record", "An event that was not recorded makes nobody wait.", event_without_record},
      {"device.memory_is_sane", "memory() says how much there is and how much is left, in bytes.", memory_is_sane},
      {"device.host_buffers", "host_buffer() gives host memory of any size, 0 and odd ones too.", host_buffers},
      {"device.sum_of_squares", "Its sum_of_squares adds in fp64 and gives equal bits wherever tensors lie.",
       sum_of_squares},
      {"device.adamw_step", "Its adamw_step gives the bits of the formula in <strata/operators.hpp>.", adamw_step},
  };
}

}  // namespace strata::conformance
