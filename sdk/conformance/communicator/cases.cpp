#include "runner/case.hpp"

namespace strata::conformance {

std::vector<Case> communicator_cases() {
  return {};
}

}  // namespace strata::conformance
