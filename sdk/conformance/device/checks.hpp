#pragma once
#include "runner/case.hpp"

namespace strata::conformance::device_checks {

// selection.cpp: whether and which.
void usable_or_says_why(Subject& subject);
void select_gives_its_type(Subject& subject);
// streams.cpp: the order of work.
void streams_run_work(Subject& subject);
void events_order_work(Subject& subject);
void event_without_record(Subject& subject);
// memory.cpp
void memory_is_sane(Subject& subject);
void host_buffers(Subject& subject);
// operators.cpp: what the device's library may bring.
void sum_of_squares(Subject& subject);
void adamw_step(Subject& subject);

}  // namespace strata::conformance::device_checks
