// Shards of a training checkpoint hold tensors named PARAMETER|STATE|BEGIN:END, one-dimensional, elements [BEGIN, END)
// of the flattened parameter, row-major: "gpt.layers.0.weight|master|0:4096". STATE is "master" for the weight as the
// optimizer updates it, "kept_gradient" for a gradient whose update is pending, or the name that the optimizer gives to
// one of its tensors. A state of the whole parameter (StateTensor::whole) is one range of its own length, and
// one of blocks counts blocks (StateTensor::block); checkpoint.json says which they are. Where tensor-parallel ranks
// share a parameter the name ends with |PART/PARTS, and elements are the part's (<strata/parameter_cut.hpp>).
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/parameter_cut.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.hpp"
#include "checkpoint/training_checkpoint.hpp"

namespace strata::checkpoint {

inline constexpr const char* master_state = "master";

struct RangeName {
  std::string parameter;
  std::string state;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int part = 0;
  int parts = 1;
  bool operator==(const RangeName&) const = default;
};

// Throws Bug for a state whose name holds '|'; a parameter's may.
std::string format_range_name(const RangeName& name);
// Nothing for a text that format_range_name does not give.
std::optional<RangeName> parse_range_name(const std::string& text);

// Gives any range of any parameter's weight or state from whatever shards hold it. One shard is open at a time: a run
// of thousands of ranks has more of them than a process may have files open. [one thread]
class RangeSource {
 public:
  // Reads the headers of the shards among `files` of the folder. Throws DamagedCheckpoint when one is missing or not
  // what Strata writes, or elements of one of `parameters` stand nowhere or twice.
  RangeSource(const std::filesystem::path& folder, const std::vector<SavedFile>& files,
              const std::vector<SavedParameter>& parameters);

  // The names of a parameter's states, sorted; empty for one that is unknown.
  std::vector<std::string> states(const std::string& parameter) const;
  // Throw UserError for one that is unknown.
  at::ScalarType dtype(const std::string& parameter, const std::string& state) const;
  std::int64_t elements(const std::string& parameter, const std::string& state) const;
  // Fills the contiguous `destination` of end - begin elements, on any device, converting to its dtype. Blocks. Throws
  // UserError for what is unknown or outside, EnvironmentError when the disk fails.
  void read(const std::string& parameter, const std::string& state, std::int64_t begin, std::int64_t end,
            const at::Tensor& destination) const;

 private:
  struct Range {
    std::int64_t end = 0;
    const SafetensorsFile* file = nullptr;
    at::ScalarType dtype = at::kFloat;
  };
  using Ranges = std::map<std::int64_t, Range>;  // by begin
  struct State {
    std::map<int, Ranges> parts;  // by number; one where the parameter is not cut
    int count = 1;                // of parts
    std::int64_t whole = 0;       // elements, without padding of parts
    std::int64_t block = 1;       // elements of the parameter for each, if it is cut
    std::optional<ParameterCut> cut;
  };

  void add(const SafetensorsFile& file);
  void check(const std::filesystem::path& folder, const std::vector<SavedParameter>& parameters);
  const State& state_of(const std::string& parameter, const std::string& state) const;
  void read_part(const RangeName& name, const Ranges& known, const at::Tensor& destination) const;
  const data::InputFile& opened(const SafetensorsFile& file) const;

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::map<std::string, State>> parameters_;  // by parameter, by state
  mutable const SafetensorsFile* read_last_ = nullptr;
  mutable std::optional<data::InputFile> open_;  // its
};

}  // namespace strata::checkpoint
