#pragma once
#include <cstdint>
#include <functional>

#include "tools/data/pack.hpp"
#include "tools/data/text_files.hpp"

namespace strata::cli {

// Does the work of pack_text with a tokenizer, except for finish().
PackResult pack_tokens(const TextFiles& files, data::OutputFile& output, const PackOptions& options,
                       const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace strata::cli
