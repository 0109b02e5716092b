#include "stage/setup.hpp"

#include <exception>

namespace strata::stage {

RankPlace::RankPlace(const RankNumbers& numbers, const config::RunConfig& config, const PluginSet& plugins)
    : rank(numbers.rank),
      local_rank(numbers.local_rank),
      mesh(plugins.mesh()),
      coordinates(place_of(mesh, rank)),
      batch{config.train.micro_batch, config.model.seq_len, plugins.precision->activation(), tensor_ranks(),
            tensor_ranks() > 1 && config.sequence_parallel} {}

// An error can leave operations pending whose memory is about to be freed.
PluginsStop::~PluginsStop() {
  if (std::uncaught_exceptions() > 0) groups_.stop();
  plugins_.shutdown(first_);
}

}  // namespace strata::stage
