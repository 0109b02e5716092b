#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/model.hpp>

#include <cstdint>
#include <vector>

namespace strata::stage {

// Returns the fragment of each flat parameter, by its place among the whole model's elements, so that stages that share
// a tied parameter agree. [any rank]
std::vector<int> fragments_of_flats(const std::vector<LayerInfo>& model, const std::vector<FlatParameter*>& flat,
                                    std::int64_t fragments);

}  // namespace strata::stage
