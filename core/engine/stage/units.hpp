// Units: neighbouring elements of a parameter that the optimizer updates together (Optimizer::unit), and their places
// in the parts of tensor-parallel ranks.
#pragma once
#include <strata/model.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "stage/setup.hpp"

namespace strata::stage {

// Returns the unit of a parameter within each tensor-parallel rank's part. Throws Bug for an illegal unit of the
// optimizer. [any rank]
std::int64_t unit_in_part(const Setup& setup, const ParameterInfo& parameter);

// Returns the first unit of a trained parameter that tensor-parallel ranks would have parts of: "updates 6 neighbouring
// elements of w together"; empty: none. Throws as unit_in_part(). [any rank]
std::string split_unit(const NamedPlugin<Optimizer>& optimizer, const RankPlace& place,
                       const std::vector<LayerInfo>& layers);

}  // namespace strata::stage
