#include "partitioner/partitioner_cases.hpp"

namespace strata::conformance {

std::vector<Case> partitioner_cases() {
  std::vector<Case> cases;
  for (std::vector<Case> (*some)() : {layout_cases, value_cases, course_cases})
    for (Case& one : some()) cases.push_back(std::move(one));
  return cases;
}

}  // namespace strata::conformance
