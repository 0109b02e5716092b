#include "conformance/general/general_cases.hpp"

namespace strata::conformance {

std::vector<Case> general_cases() {
  std::vector<Case> cases;
  for (std::vector<Case> (*some)() : {file_cases, creation_cases, resource_cases, state_cases})
    for (Case& one : some()) cases.push_back(std::move(one));
  return cases;
}

}  // namespace strata::conformance
