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

// The numbers that an optimizer sums over whole parameters (Optimizer::sums). The sums of all of a stage's parameters
// lie in one buffer, in one order on every data-parallel rank, so that one all-reduce carries them. Rounds share the
// buffer.
class ParameterSums {
 public:
  // Takes the buffer from the store; none if no round has sums.
  ParameterSums(const std::vector<std::unique_ptr<FlatParameter>>& flat, const Optimizer& optimizer, StateStore& store);

  int rounds() const { return static_cast<int>(rounds_.size()); }
  // fp64, the sums of one round; undefined if it has none here.
  at::Tensor of_round(int round) const;
  // A parameter's part of it; undefined if the parameter has none.
  at::Tensor of(const std::string& parameter, int round) const;

 private:
  struct Part {
    std::int64_t begin = 0;
    std::int64_t count = 0;
  };
  struct Round {
    std::map<std::string, Part> parts;  // by parameter
    std::int64_t count = 0;
  };
  std::vector<Round> rounds_;
  at::Tensor buffer_;
};

// Whether each round of the optimizer's update begins with sums, for these parameters.
std::vector<bool> sums_of_round(const std::vector<ParameterInfo>& parameters, const Optimizer& optimizer);

}  // namespace strata::state
