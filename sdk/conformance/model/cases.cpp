#include "runner/case.hpp"

namespace strata::conformance {

std::vector<Case> model_cases() {
  return {};
}

}  // namespace strata::conformance
