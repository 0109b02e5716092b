#include "tools/chosen/model_sizes.hpp"

#include <map>
#include <string>

namespace strata::cli {

std::optional<ModelSize> model_size(const OptionSpec& option) {
  using enum ModelSize;
  static const std::map<std::string, ModelSize> usual{{"hidden_size", Width},
                                                      {"hidden", Width},
                                                      {"width", Width},
                                                      {"n_embd", Width},
                                                      {"d_model", Width},
                                                      {"embedding_size", Width},
                                                      {"layers", Layers},
                                                      {"n_layer", Layers},
                                                      {"num_layers", Layers},
                                                      {"num_hidden_layers", Layers},
                                                      {"depth", Layers},
                                                      {"blocks", Layers},
                                                      {"heads", Heads},
                                                      {"n_head", Heads},
                                                      {"num_heads", Heads},
                                                      {"num_attention_heads", Heads},
                                                      {"kv_heads", KeyValueHeads},
                                                      {"key_value_heads", KeyValueHeads},
                                                      {"num_key_value_heads", KeyValueHeads},
                                                      {"head_size", HeadSize},
                                                      {"head_dim", HeadSize},
                                                      {"intermediate_size", InnerWidth},
                                                      {"n_inner", InnerWidth},
                                                      {"ffn_size", InnerWidth},
                                                      {"vocabulary", Vocabulary},
                                                      {"vocab_size", Vocabulary}};
  const auto found = usual.find(option.name);
  if (option.type != "integer" || found == usual.end()) return std::nullopt;
  return found->second;
}

}  // namespace strata::cli
