#include "runner/case.hpp"

namespace strata::conformance {

std::vector<Case> device_cases() {
  return {};
}

}  // namespace strata::conformance
