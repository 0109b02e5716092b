// For programs whose config says `offload: auto`: link strata::auto_offload and call this first.
#pragma once
#include <strata/export.hpp>

namespace strata {

// From now on strata::initialize makes a few steps with the program's model and random tokens before the run, and
// chooses what leaves the device by them, as `strata train` does. Rank 0 logs what it chose.
STRATA_EXPORT void accept_automatic_offload();

}  // namespace strata
