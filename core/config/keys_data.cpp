// The keys of data and validation; resolve.cpp reads those without a setter.
#include "config/keys.hpp"
#include "config/run_config.hpp"
#include "data/token_format.hpp"

namespace strata::config {

std::vector<Key> data_keys() {
  std::string formats = "one_of=";
  for (const std::string& format : data::token_formats()) formats += (formats.ends_with('=') ? "" : "|") + format;
  return {
      make_key("data.format", "text", "nanogpt", formats, "", Affects::Samples,
               "how tokens lie in their files; nanogpt: raw token numbers, no header",
               STRATA_KEY_SETTER(text, data.format)),
      make_key("data.path", "text", required, "", "", per_host(Affects::Numbers),
               "the token file; a pattern of several; or megatron's PREFIX of .bin and .idx",
               STRATA_KEY_SETTER(text, data.path)),
      make_key("data.token_type", "text", automatic("u32 for NAME.u32 and NAME.u32.bin, else u16"), "one_of=u16|u32",
               "", Affects::Numbers, "nanogpt: the type of one token in the file"),
      make_key("data.order", "text", "sequential", "one_of=sequential|shuffled|megatron", "", Affects::Samples,
               "the order of the samples; shuffled: by train.seed; megatron: as Megatron-LM shuffles them with "
               "train.seed",
               [](RunConfig& run, const OptionValue& value) {
                 const auto& order = std::get<std::string>(value);
                 run.data.order = order == "megatron"   ? DataOrder::Megatron
                                  : order == "shuffled" ? DataOrder::Shuffled
                                                        : DataOrder::Sequential;
               }),
      make_key("validation.path", "text", "", "", "", per_host(Affects::Files),
               "a token file whose loss is measured during training and at its end; empty: none",
               STRATA_KEY_SETTER(text, validation.data.path)),
      make_key("validation.format", "text", automatic("data.format"), formats, "", Affects::Nothing,
               "how that file is laid out", STRATA_KEY_SETTER(text, validation.data.format)),
      make_key("validation.token_type", "text", automatic("as its name says, see data.token_type"), "one_of=u16|u32",
               "", Affects::Nothing, "nanogpt: the type of one token in it"),
      make_key("validation.every", "integer", "0", "min=0,max=1e12", "steps", Affects::Nothing,
               "steps from one validation to the next; 0: at the end only",
               STRATA_KEY_SETTER(integer, validation.every)),
      make_key("validation.samples", "integer", automatic("all"), "min=1,max=1e15", "samples", Affects::Nothing,
               "the most samples that are taken, from the first on", STRATA_KEY_SETTER(integer, validation.samples)),
  };
}

}  // namespace strata::config
