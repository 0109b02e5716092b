// A model that leaves a file when its library is loaded: what must not happen because a checkpoint names it.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/embedding.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>
#include <strata/toolbox/sequential_model.hpp>

#include <cstdlib>
#include <fstream>

namespace {

using namespace strata;

[[maybe_unused]] const bool marked = [] {
  if (const char* const file = std::getenv("STRATA_TEST_MARK")) std::ofstream(file) << "loaded";
  return true;
}();

STRATA_NO_OPTIONS(NoOptions)

class Marks final : public SequentialModel {
 public:
  Marks(PluginContext& /*context*/, const NoOptions& /*options*/) : SequentialModel(256) {}
};

}  // namespace

STRATA_PLUGIN(Marks, NoOptions)
