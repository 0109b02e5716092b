#include "plugins/floating_point.hpp"

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace strata::plugins {

namespace {

#if defined(__x86_64__)
constexpr std::uint64_t flags = 0x3f, rounding = 0x6000;  // of MXCSR
std::uint64_t read_register() {
  return _mm_getcsr();
}
void write_register(std::uint64_t value) {
  std::fesetround(static_cast<int>((value & rounding) >> 3));  // of the x87, too
  _mm_setcsr(static_cast<unsigned>(value));
}
#elif defined(__aarch64__)
constexpr std::uint64_t flags = 0, rounding = 0xc00000;  // of FPCR; what happened is in another register
std::uint64_t read_register() {
  std::uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void write_register(std::uint64_t value) {
  asm volatile("msr fpcr, %0" : : "r"(value));
}
#else
constexpr std::uint64_t flags = 0, rounding = 0;
std::uint64_t read_register() {
  return 0;
}
void write_register(std::uint64_t /*value*/) {}
#endif

}  // namespace

std::uint64_t floating_point_control() {
  return read_register() & ~flags;
}

std::string changed_floating_point(std::uint64_t before) {
  const std::uint64_t now = floating_point_control();
  if (now == before) return "";
  write_register(before);
  if (((now ^ before) & rounding) != 0)
    return "changed this thread's rounding mode, which affects all later results; a plugin must restore the rounding "
           "mode (fesetround) before it returns";
  return "changed this thread's treatment of denormal numbers or floating-point exceptions (flush to zero), which "
         "affects all later results; compile and link the plugin without -ffast-math and -Ofast, and restore such a "
         "mode before it returns";
}

}  // namespace strata::plugins
