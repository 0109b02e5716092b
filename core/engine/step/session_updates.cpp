// What cannot be where stages update within the step, each by itself: all that needs the whole gradient before an
// update, and all that moves the weights of which copies are kept.
#include <fmt/format.h>
#include <strata/error.hpp>

#include <cstdint>
#include <limits>

#include "plugins/plugin_call.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// Every rank looks at the config, the plugins and the whole model, so that all come to the same refusal.
void Session::check_updates_within_step(const config::RunConfig& config) const {
  if (stage_.updates_within_step == 0) return;
  const std::string& scheduler = plugins_.scheduler.name;
  const auto refuse = [&](const std::string& found, const std::string& rule, const std::string& remedy) {
    throw UserError("{}, and {} updates within the step: {}; {}, or choose another scheduler", found, scheduler, rule,
                    remedy);
  };
  if (config.step_policy != config::StepPolicy::Plain)
    refuse("step_policy is not plain", "it leaves no update for the end of the step or the next one",
           "set step_policy: plain");
  if (config.train.clip > 0.0)
    refuse(fmt::format("train.clip is {:g}", config.train.clip),
           "no stage knows the norm of the whole gradient before its update", "set train.clip: 0");
  const auto searches = [&] { return stage_.precision->searches_scale(); };
  if (plugin_call(stage_.precision.name, "searches_scale()", stage_.rank, searches))
    refuse(stage_.precision.name + " finds its loss scale by steps that overflow and are then skipped",
           "an update is made before any stage knows of an overflow on another",
           "give it a fixed loss scale or use a precision that needs none");
  constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
  const auto ask = [&] { return stage_.partitioner->lookahead(); };
  const Lookahead lookahead = plugin_call(stage_.partitioner.name, "lookahead()", stage_.rank, ask);
  if (!lookahead.resident && (lookahead.reuse_distance < all || lookahead.live_parameters < all))
    refuse(stage_.partitioner.name + " releases parameters between two uses",
           "copies of whole parameters are kept for what is under way",
           "use a partitioner that keeps parameters whole (ZeRO stage 1 or 2, or plain data parallelism)");
  for (const auto& [key, choice] : {std::pair{"offload.parameters", &config.offload.parameters},
                                    std::pair{"offload.optimizer", &config.offload.optimizer}})
    if (*choice)
      refuse(std::string(key) + " is set", "gradients and state would travel for every update",
             std::string("leave ") + key + " out");
  if (config.data.document_end)
    refuse("data.documents is separate", "each update takes the mean over its tokens, of which all must count",
           "set data.documents: packed");
  for (const auto& [name, tie] : ties_)
    if (tie.chunks.size() > 1 && tie.first_use.trainable)
      refuse("the parameter " + tie.first_use.name + " is used by layers of several chunks",
             "its gradient would have to be summed over stages that do not wait for each other",
             "freeze it or untie it, or set parallel.pipeline: 1");
}

}  // namespace strata::runtime
