#include "runner/case.hpp"

namespace strata::conformance {

std::vector<Case> offload_cases() {
  return {};
}

}  // namespace strata::conformance
