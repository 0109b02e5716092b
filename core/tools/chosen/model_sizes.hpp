// Sizes of a model, by the usual names of their options.
#pragma once
#include <strata/options.hpp>

#include <optional>

namespace strata::cli {

enum class ModelSize { Width, Layers, Heads, KeyValueHeads, HeadSize, InnerWidth, Vocabulary };

// Returns the size that an option sets; empty for other options and those that are not integers.
std::optional<ModelSize> model_size(const OptionSpec& option);

}  // namespace strata::cli
