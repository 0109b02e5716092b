// What the operating system says of this process's memory.
#pragma once
#include <cstdint>

namespace strata::report {

std::int64_t resident_bytes();       // VmRSS
std::int64_t peak_resident_bytes();  // VmHWM: the highest since the start or the last reset
// Gives freed heap pages back and lets the peak start again from now. Does nothing where the kernel does not allow it.
void reset_peak_resident();

}  // namespace strata::report
