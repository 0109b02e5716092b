#include <strata/optimizer.hpp>

namespace strata {

Optimizer::~Optimizer() = default;
Granularity Optimizer::granularity() const {
  return Granularity::Element;
}

}  // namespace strata
