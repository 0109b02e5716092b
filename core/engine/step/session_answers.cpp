// What plugins and model answer about the features of a training, for the table of conflicts (config/conflicts.hpp).
#include <algorithm>
#include <cstdint>
#include <limits>

#include "plugins/plugin_call.hpp"
#include "step/session.hpp"

namespace strata::runtime {
namespace {

bool releases(const Lookahead& lookahead) {
  constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
  return !lookahead.resident && (lookahead.reuse_distance < all || lookahead.live_parameters < all);
}

}  // namespace

// Every rank asks about the config, the plugins and the whole model, so that all get the same answers.
config::Answers Session::answers() const {
  const auto ask = [&](const auto& plugin, const char* call, const auto& function) {
    return plugin_call(plugin.name, call, stage_.rank, function);
  };
  config::Answers answers;
  answers.updates_within_step = stage_.updates_within_step > 0;
  answers.searches_scale =
      ask(stage_.precision, "searches_scale()", [&] { return stage_.precision->searches_scale(); });
  answers.measures = ask(stage_.precision, "maxima()", [&] { return stage_.precision->maxima(); }).defined();
  answers.releases_parameters =
      releases(ask(stage_.partitioner, "lookahead()", [&] { return stage_.partitioner->lookahead(); }));
  if (policy_ == config::StepPolicy::Local) {
    const Group* const ranks = replicas();
    answers.replica_groups = ranks == nullptr ? 0 : ranks->size();
  }
  answers.needs_sums = std::ranges::find(sums_of_round_, true) != sums_of_round_.end();
  answers.trains_elsewhere =
      ask(stage_.optimizer, "trains_elsewhere()", [&] { return stage_.optimizer->trains_elsewhere(); });
  answers.exchanges = plugins_.own_exchange.optimizer() != nullptr;
  answers.leaves_gradients = plugins_.own_exchange.partitioner_can();
  answers.owns_all = answers.leaves_gradients && plugins_.own_exchange.owns_all();
  for (const auto& [name, tie] : ties_)
    if (tie.chunks.size() > 1 && tie.first_use.trainable && answers.shared_over_chunks.empty())
      answers.shared_over_chunks = tie.first_use.name;
  return answers;
}

}  // namespace strata::runtime
