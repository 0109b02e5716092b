#include "data/token_source.hpp"

#include <strata/error.hpp>
#include <strata/input_file.hpp>

#include <algorithm>

#include "plugins/plugin_call.hpp"

namespace strata::data {

using plugins::plugin_call;

TokenSource::TokenSource(const DataSource& plugin, std::string plugin_name, std::string path)
    : plugin_name_(std::move(plugin_name)), path_(std::move(path)), first_{0} {
  plugins::plugin_call(plugin_name_, "open()", [&] {
    try {
      set_ = plugin.open(path_);
    } catch (const MissingFile& error) {
      throw UserError("{}; correct the path, or create a token file from text with `strata data pack`", error.what());
    }
    strata_check(set_ != nullptr, "open() returned no data set");
    files_ = set_->files();
    has_mask_ = set_->has_mask();
  });
  for (const TokenFileInfo& file : files_) first_.push_back(first_.back() + file.tokens);
  if (token_count() < 1) throw Bug("{}: files() names no file with a token", plugin_name_);
}

std::vector<std::pair<std::string, std::int64_t>> TokenSource::facts() const {
  return plugins::plugin_call(plugin_name_, "facts()", [&] { return set_->facts(); });
}

std::int64_t TokenSource::sample_count(std::int64_t seq_len) const {
  strata_check(seq_len >= 1, "TokenSource::sample_count: seq_len is at least 1");
  const std::int64_t samples = (token_count() - 1) / seq_len;
  if (samples >= 1) return samples;
  throw UserError(
      Place{path()},
      "holds {} tokens, and one sample of seq_len {} needs seq_len + 1 = {}; use a longer file or a smaller seq_len",
      token_count(), seq_len, seq_len + 1);
}

std::unique_ptr<const Samples> TokenSource::own_order(const SampleRequest& request) const {
  std::unique_ptr<const Samples> order =
      plugins::plugin_call(plugin_name_, "own_order()", [&] { return set_->own_order(request); });
  if (order != nullptr) {
    if (order->count() < std::max<std::int64_t>(request.samples, 1))
      throw Bug("{}: its own order has {} samples, and {} were requested", plugin_name_, order->count(),
                request.samples);
    return order;
  }
  throw UserError(Place{path_}, "the plugin {} has no order of its own; choose the order sequential or shuffled",
                  plugin_name_);
}

void TokenSource::copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const {
  strata_check(first >= 0 && count >= 0 && first <= token_count() - count,
               "TokenSource::copy: a range outside the row");
  plugins::plugin_call(plugin_name_, "copy()", [&] { set_->copy(first, count, destination); });
}

void TokenSource::copy_mask(std::int64_t first, std::int64_t count, std::uint8_t* is_target) const {
  strata_check(first >= 0 && count >= 0 && first <= token_count() - count,
               "TokenSource::copy_mask: a range outside the row");
  if (has_mask_)
    plugins::plugin_call(plugin_name_, "copy_mask()", [&] { set_->copy_mask(first, count, is_target); });
  else
    std::fill_n(is_target, count, std::uint8_t{1});
}

void TokenSource::check_vocabulary(std::int64_t vocabulary, std::int64_t first, std::int64_t end) const {
  strata_check(first >= 0 && end <= token_count(), "TokenSource::check_vocabulary: a range outside the row");
  constexpr std::int64_t block_tokens = std::int64_t{1} << 16;
  std::vector<std::int64_t> block(static_cast<std::size_t>(std::clamp<std::int64_t>(end - first, 0, block_tokens)));
  for (; first < end; first += std::ssize(block)) {
    const std::int64_t count = std::min(std::ssize(block), end - first);
    copy(first, count, block.data());
    // Negative when any id is outside: a loop the compiler vectorises. The search for the culprit runs once, if at all.
    std::int64_t outside = 0;
    for (std::int64_t i = 0; i < count; ++i)
      outside |= block[static_cast<std::size_t>(i)] | (vocabulary - 1 - block[static_cast<std::size_t>(i)]);
    if (outside >= 0) continue;
    const auto wrong = std::ranges::find_if(block, [&](std::int64_t id) { return id < 0 || id >= vocabulary; });
    refuse_token(first + (wrong - block.begin()), *wrong, vocabulary);
  }
}

void TokenSource::refuse_token(std::int64_t token, std::int64_t id, std::int64_t vocabulary) const {
  const auto file = static_cast<std::size_t>(std::ranges::upper_bound(first_, token) - first_.begin()) - 1;
  throw UserError(Place{files_[file].path},
                  "token {} has id {}, and the model's vocabulary is 0 to {}; the file may be of another tokenizer, or "
                  "of another token type than {}",
                  token - first_[file], id, vocabulary - 1, files_[file].type);
}

}  // namespace strata::data
