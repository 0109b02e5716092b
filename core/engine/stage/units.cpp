#include "stage/units.hpp"

#include <strata/error.hpp>
#include <strata/parameter_cut.hpp>
#include <strata/tensor_units.hpp>

#include "plugins/plugin_call.hpp"

namespace strata::stage {

namespace {

std::int64_t unit_of(const NamedPlugin<Optimizer>& optimizer, const RankPlace& place, const ParameterInfo& parameter) {
  if (!parameter.trainable) return 1;
  const std::int64_t unit = plugins::plugin_call(optimizer.name, "unit()", place.rank,
                                                 [&] { return optimizer->unit(PieceInfo::whole(parameter)); });
  if (unit < 1)
    throw Bug("{} updates {} in units of {} elements; a unit has at least one", optimizer.name, parameter.name, unit);
  return unit;
}

// Returns the unit within each tensor-parallel rank's part; 0 if a unit would straddle parts. `of_parts`: the optimizer
// can update a unit whose parts are on several ranks.
std::int64_t unit_in_part(const ParameterCut& cut, std::int64_t unit, bool of_parts) {
  if (unit == 1 || cut.keeps_together(unit)) return unit;
  const PartPlaces places = cut.places(0);  // a unit is made of whole rounds over the ranks, and there is no padding
  const bool equal = places.length * cut.parts() == places.distance && unit % places.distance == 0;
  return of_parts && equal ? unit / cut.parts() : 0;
}

}  // namespace

std::int64_t unit_in_part(const Setup& setup, const ParameterInfo& parameter) {
  return unit_in_part({parameter, setup.place.tensor_ranks()}, unit_of(setup.plugins.optimizer, setup.place, parameter),
                      true);
}

std::string split_unit(const NamedPlugin<Optimizer>& optimizer, const RankPlace& place,
                       const std::vector<LayerInfo>& layers) {
  const int ranks = place.tensor_ranks();
  if (ranks == 1) return "";
  const bool of_parts = dynamic_cast<TensorUnits*>(optimizer.plugin) != nullptr;
  for (const LayerInfo& layer : layers)
    for (const ParameterInfo& parameter : layer.parameters) {
      const std::int64_t unit = unit_of(optimizer, place, parameter);
      if (unit_in_part({parameter, ranks}, unit, of_parts) == 0)
        return format("updates {} neighbouring elements of {} together", unit, parameter.name);
    }
  return "";
}

}  // namespace strata::stage
