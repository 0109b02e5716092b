#include "runner/case.hpp"

namespace strata::conformance {

std::vector<Case> optimizer_cases() {
  return {};
}

}  // namespace strata::conformance
