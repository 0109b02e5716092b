// The sizes of a model, by the names that options usually have for them.
#pragma once
#include <strata/options.hpp>

#include <optional>

namespace strata::cli {

enum class ModelSize { Width, Layers, Heads, KeyValueHeads, HeadSize, InnerWidth, Vocabulary };

// Which one an option is; nothing where it is none, or not an integer.
std::optional<ModelSize> model_size(const OptionSpec& option);

}  // namespace strata::cli
