// The keys of data and validation.
#include <utility>

#include "config/keys.hpp"
#include "config/run_config.hpp"

namespace strata::config {

std::vector<Key> data_keys() {
  return {
      plugin_key("data", "data", Affects::Samples, "what turns the files into tokens",
                 [](RunConfig& run, PluginChoice choice) { run.data.plugin = std::move(choice); }),
      make_key("data.path", "text", required, "", "", per_host(Affects::Numbers),
               "the token file; a pattern of several; or what else the plugin takes, as megatron's PREFIX",
               STRATA_KEY_SETTER(text, data.path)),
      make_key("data.order", "text", "sequential", "one_of=sequential|shuffled|own", "", Affects::Samples,
               "the order of the samples; shuffled: by train.seed; own: the plugin's, if it has one",
               [](RunConfig& run, const OptionValue& value) {
                 const auto& order = std::get<std::string>(value);
                 run.data.order = order == "own"        ? DataOrder::Own
                                  : order == "shuffled" ? DataOrder::Shuffled
                                                        : DataOrder::Sequential;
               }),
      make_key("validation.path", "text", "", "", "", per_host(Affects::Files),
               "a token file whose loss is measured during training and at its end; empty: none",
               STRATA_KEY_SETTER(text, validation.data.path)),
      plugin_key("validation", "data", Affects::Nothing, "what reads that file; if omitted, as data.plugin",
                 [](RunConfig& run, PluginChoice choice) { run.validation.data.plugin = std::move(choice); }),
      make_key("validation.every", "integer", "0", "min=0,max=1e12", "steps", Affects::Nothing,
               "steps from one validation to the next; 0: at the end only",
               STRATA_KEY_SETTER(integer, validation.every)),
      make_key("validation.samples", "integer", automatic("all"), "min=1,max=1e15", "samples", Affects::Nothing,
               "the most samples that are taken, from the first on", STRATA_KEY_SETTER(integer, validation.samples)),
  };
}

}  // namespace strata::config
