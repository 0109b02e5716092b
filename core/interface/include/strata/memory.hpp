// Categories and tiers of memory, as plain enums that the step's program can use too.
#pragma once
#include <strata/export.hpp>

namespace strata {

// Gathered: full values of sharded parameters. Bucket: messages and sums of collectives. Staging: copies on their way
// between tiers, and small helper buffers.
enum class Category { Parameter, Gathered, Gradient, Optimizer, Activation, Bucket, Staging };
enum class Tier { Device, Host, Disk };
inline constexpr int category_count = 7;
inline constexpr int tier_count = 3;
STRATA_EXPORT const char* to_string(Category category);
STRATA_EXPORT const char* to_string(Tier tier);

}  // namespace strata
