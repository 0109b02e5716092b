// Units: neighbouring elements of a parameter that the optimizer updates together (Optimizer::unit), and their places
// in the parts of tensor-parallel ranks.
#pragma once
#include <strata/model.hpp>

#include <cstdint>
#include <vector>

#include "stage/setup.hpp"

namespace strata::stage {

// Returns the unit of a parameter within each tensor-parallel rank's part. Throws Bug for an illegal unit of the
// optimizer. [any rank]
std::int64_t unit_in_part(const Setup& setup, const ParameterInfo& parameter);

// Throws UserError, on all ranks alike, if tensor-parallel ranks would have parts of a unit. [any rank]
void check_units(const Setup& setup, const std::vector<LayerInfo>& layers);

}  // namespace strata::stage
