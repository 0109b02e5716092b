#include <strata/weight_code.hpp>

namespace strata {

WeightCode::~WeightCode() = default;

}  // namespace strata
