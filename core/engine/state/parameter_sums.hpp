#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/optimizer.hpp>
#include <strata/state_store.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace strata::state {

// Sums of an optimizer over whole parameters (Optimizer::sums). The sums of all parameters of a stage lie in one
// buffer, in the same order on every data-parallel rank, so that one all-reduce carries them. Rounds share the
// buffer.
class ParameterSums {
 public:
  // Allocates the buffer from the store; none if no round has sums.
  ParameterSums(const std::vector<std::unique_ptr<FlatParameter>>& flat, const Optimizer& optimizer, StateStore& store);

  int rounds() const { return static_cast<int>(rounds_.size()); }
  // Returns the sums of one round, fp64; undefined if this stage has none.
  at::Tensor of_round(int round) const;
  // Returns a parameter's sums of one round; undefined if it has none.
  at::Tensor of(const std::string& parameter, int round) const;

 private:
  struct Part {
    std::int64_t begin = 0;
    std::int64_t count = 0;
  };
  struct Round {
    std::map<std::string, Part> parts;  // parts by parameter
    std::int64_t count = 0;
  };
  std::vector<Round> rounds_;
  at::Tensor buffer_;
};

// Returns, for each round of the optimizer's update, true if it begins with sums for these parameters.
std::vector<bool> sums_of_round(const std::vector<ParameterInfo>& parameters, const Optimizer& optimizer);

}  // namespace strata::state
