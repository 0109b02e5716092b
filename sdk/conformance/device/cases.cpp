#include "device/checks.hpp"

namespace strata::conformance {

using namespace device_checks;

std::vector<Case> device_cases() {
  return {
      {"device.usable_or_says_why",
       "count() is above 0, or why() gives the reason in one sentence and select() throws.", usable_or_says_why},
      {"device.select_gives_its_type", "select(0) gives a device of type() on which tensors can be used.",
       select_gives_its_type},
      {"device.streams_run_work", "on() runs its work once on every kind of stream, and rethrows its exceptions.",
       streams_run_work},
      {"device.events_order_work", "Work after an event's block() sees the results of work before its record().",
       events_order_work},
      {"device.event_without_record", "Waiting for an event that was never recorded returns at once.",
       event_without_record},
      {"device.memory_is_sane", "memory() gives the total and the available memory in bytes.", memory_is_sane},
      {"device.host_buffers", "host_buffer() gives host memory of any size, including 0 and odd sizes.", host_buffers},
      {"device.sum_of_squares", "sum_of_squares accumulates in fp64 and does not depend on memory addresses.",
       sum_of_squares},
      {"device.adamw_step", "adamw_step gives the same bits as the formula in <strata/operators.hpp>.", adamw_step},
  };
}

}  // namespace strata::conformance
