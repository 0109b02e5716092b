// What the reader and the writer of safetensors share.
#pragma once
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace strata::checkpoint {

struct FormatDtype {
  std::string_view name;
  at::ScalarType dtype;
};

// In the order in which the format's own library lays tensors out. Its types of less than a byte are unknown here.
inline constexpr std::array<FormatDtype, 17> format_dtypes{{{"U64", at::kUInt64},
                                                            {"I64", at::kLong},
                                                            {"F64", at::kDouble},
                                                            {"C64", at::kComplexFloat},
                                                            {"F32", at::kFloat},
                                                            {"U32", at::kUInt32},
                                                            {"I32", at::kInt},
                                                            {"BF16", at::kBFloat16},
                                                            {"F16", at::kHalf},
                                                            {"U16", at::kUInt16},
                                                            {"I16", at::kShort},
                                                            {"F8_E8M0", at::kFloat8_e8m0fnu},
                                                            {"F8_E4M3", at::kFloat8_e4m3fn},
                                                            {"F8_E5M2", at::kFloat8_e5m2},
                                                            {"I8", at::kChar},
                                                            {"U8", at::kByte},
                                                            {"BOOL", at::kBool}}};

// An entry of the table above, or null.
template <typename Matches>
const FormatDtype* find_dtype(Matches matches) {
  const auto found = std::find_if(format_dtypes.begin(), format_dtypes.end(), matches);
  return found == format_dtypes.end() ? nullptr : &*found;
}

// Conversions go through a buffer of this size.
inline constexpr std::int64_t staging_bytes = std::int64_t{4} << 20;

}  // namespace strata::checkpoint
