#include <strata/options.hpp>

#include "layers.hpp"

namespace {

STRATA_NO_OPTIONS(NoOptions)

class ThreeLayers final : public SequentialModel {
 public:
  ThreeLayers(PluginContext&, const NoOptions&) : SequentialModel(257) {
    add<Embedding>("embedding", 257, 32);
    add<Hidden>("hidden", 32, 32);
    add<Head>("head", 257, 32);
  }
};

}  // namespace

STRATA_PLUGIN(ThreeLayers, NoOptions)
