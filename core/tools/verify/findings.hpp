// What `strata verify` says.
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
  // The two plain runs differ by more than rounding: what is wrong is not the mesh's.
  bool plain_runs_differ = false;
  std::vector<SimplerRun> tried = {}, right_without = {};  // of a run that is wrong
  std::vector<SimplerRun> did_not_run = {};
  std::vector<PlacedParameter> parameters = {};  // of the model, in the order of its layers
  std::vector<std::string> commands = {};        // for a shell: the wrong run and the plain one
  std::map<std::string, double> rounding = {};   // by precision: Agreement::furthest
  std::int64_t near = 0;                         // runs near the config's that were tried
  std::vector<std::string> changes = {};         // of a wrong one of those: what the config has not
};

// The wrong gradient that backward computes first, nearest to the loss: those of the layers before may be wrong because
// of it. Null where none is wrong.
const WrongGradient* first_in_backward(const Findings& findings);

// The run in one line: model, mesh, plugins.
std::string described(const CheckedRun& small);
std::string to_text(const Findings& findings);
nlohmann::json to_json(const Findings& findings);

}  // namespace strata::verify
