// Results of `strata verify`.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/verify/gradients.hpp"
#include "tools/verify/simpler_runs.hpp"

namespace strata::verify {

struct PlacedParameter {
  std::string name;
  std::string layer;  // "layer 3 (block 2)"
};

struct Findings {
  CheckedRun small;
  Agreement agreement = {};
  // True if the two reference runs differ by more than rounding: the error is then not in the mesh.
  bool plain_runs_differ = false;
  std::vector<SimplerRun> tried = {}, right_without = {};  // all tried; those without a difference
  std::vector<SimplerRun> did_not_run = {};
  std::vector<PlacedParameter> parameters = {};  // of the model, in the order of its layers
  std::vector<std::string> commands = {};        // for a shell: the wrong run and the reference run
  std::map<std::string, double> rounding = {};   // by precision: Agreement::furthest
  std::int64_t near = 0;                         // number of similar runs tried
  std::vector<std::string> changes = {};         // settings of a wrong similar run that the config lacks
};

// Returns the wrong gradient that backward computes first, nearest to the loss: earlier layers may be wrong because of
// it. Null if none is wrong.
const WrongGradient* first_in_backward(const Findings& findings);

// Returns the run in one line: model, mesh, plugins.
std::string described(const CheckedRun& small);
std::string to_text(const Findings& findings);
nlohmann::json to_json(const Findings& findings);

}  // namespace strata::verify
