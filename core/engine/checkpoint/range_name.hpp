// Shards of a training checkpoint hold tensors named PARAMETER|STATE|BEGIN:END, one-dimensional, elements [BEGIN, END)
// of the flattened parameter, row-major: "gpt.layers.0.weight|master|0:4096". STATE is "master" for the weight that the
// optimizer updates, "kept_gradient" for a gradient whose update is pending, or the optimizer's name of a state tensor.
// A state of the whole parameter (StateTensor::whole) is one range of its own length, and one of blocks counts blocks
// (StateTensor::block); checkpoint.json lists these states. If tensor-parallel ranks share a parameter the name ends
// with |PART/PARTS, and elements are the part's (<strata/parameter_cut.hpp>).
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace strata::checkpoint {

inline constexpr const char* master_state = "master";
inline constexpr std::int64_t most_parts = std::int64_t{1} << 20;  // most tensor-parallel ranks in a name

struct RangeName {
  std::string parameter;
  std::string state;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int part = 0;
  int parts = 1;
  bool operator==(const RangeName&) const = default;
};

// Formats a name. Throws Bug for a state whose name contains '|'; a parameter's may.
std::string format_range_name(const RangeName& name);
// Parses a name; empty for a text that format_range_name cannot return.
std::optional<RangeName> parse_range_name(const std::string& text);

}  // namespace strata::checkpoint
