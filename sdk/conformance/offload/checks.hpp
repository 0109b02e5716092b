#pragma once
#include "runner/case.hpp"

namespace strata::conformance::offload_checks {

// contents.cpp: reads return what was written.
void limits_are_sane(Subject& subject);
void any_size(Subject& subject);
void reads_what_was_written(Subject& subject);
void starts_with_zeros(Subject& subject);
void regions_do_not_mix(Subject& subject);
void map_is_the_region(Subject& subject);
// transfers.cpp: waiting, and many transfers at once.
void wait_means_done(Subject& subject);
void many_in_flight(Subject& subject);
void dropped_transfer(Subject& subject);
void one_thread_after_another(Subject& subject);
// refusals.cpp: calls that must be refused.
void unaligned(Subject& subject);
void zero_bytes(Subject& subject);
void out_of_range_refused(Subject& subject);
void out_of_space(Subject& subject);
// resources.cpp: leaks.
void free_gives_back(Subject& subject);
void leaks_nothing(Subject& subject);
// large.cpp
void three_gibibytes(Subject& subject);

}  // namespace strata::conformance::offload_checks
