// Between 16-bit formats and fp32, in vector code.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace strata {

void widen(const at::Half* from, float* to, std::int64_t count);
void widen(const at::BFloat16* from, float* to, std::int64_t count);
// To the nearest, ties to even; NaN stays NaN.
void narrow(const float* from, at::Half* to, std::int64_t count);
void narrow(const float* from, at::BFloat16* to, std::int64_t count);
// The same, stored past the caches, which spares a read of what is only written. Other threads see it after this one
// has called fence_stores().
void narrow_past_caches(const float* from, at::BFloat16* to, std::int64_t count);
void fence_stores();

}  // namespace strata
