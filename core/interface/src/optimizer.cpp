#include <strata/optimizer.hpp>

namespace strata {

Optimizer::~Optimizer() = default;
Granularity Optimizer::granularity() const {
  return Granularity::Element;
}
bool Optimizer::takes_momentum() const {
  return false;
}

}  // namespace strata
