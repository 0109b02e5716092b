#include <strata/tensor_units.hpp>

namespace strata {

TensorUnits::~TensorUnits() = default;

}  // namespace strata
