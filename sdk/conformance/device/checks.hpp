#pragma once
#include "conformance/device/usable_device.hpp"
#include "conformance/drawn/draws.hpp"

namespace strata::conformance::device_checks {

// selection.cpp: choice of the device.
void usable_or_says_why(Subject& subject);
void select_gives_its_type(Subject& subject);
// streams.cpp: order of work.
void events_order_work(const UsableDevice& device, Draws& draws);
void drawn(Subject& subject);
// memory.cpp
void memory_is_sane(Subject& subject);
void host_buffers(const UsableDevice& device, Draws& draws);
// operators.cpp: optional operators of the device's library.
void sum_of_squares(const UsableDevice& device, Draws& draws);
void adamw_step(const UsableDevice& device, Draws& draws);

}  // namespace strata::conformance::device_checks
