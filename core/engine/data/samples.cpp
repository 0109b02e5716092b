#include "data/samples.hpp"

#include <strata/error.hpp>
#include <strata/split_mix.hpp>

#include <algorithm>
#include <bit>

#include "plugins/plugin_call.hpp"

namespace strata::data {
namespace {

constexpr int rounds = 6;

std::uint64_t feistel(std::uint64_t value, std::uint64_t key, int half_bits) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t round_key = key + golden_ratio * static_cast<std::uint64_t>(i + 1);
    const std::uint64_t next = left ^ (mix_bits(round_key ^ right) >> (64 - half_bits));
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

SampleOrder::SampleOrder(std::int64_t samples, std::optional<std::uint64_t> seed)
    : samples_(samples), seed_(seed), half_bits_(4) {
  strata_check(samples >= 1, "SampleOrder: a data set has at least one sample");
  const int bits = std::bit_width(static_cast<std::uint64_t>(samples - 1));
  half_bits_ = std::max(4, (bits + 1) / 2);
}

std::int64_t SampleOrder::sample(std::int64_t position) const {
  strata_check(position >= 0, "SampleOrder: positions count from 0");
  const std::int64_t index = position % samples_;
  if (!seed_) return index;
  const auto epoch = static_cast<std::uint64_t>(position / samples_);
  const std::uint64_t key = mix_bits(mix_bits(*seed_) + golden_ratio * epoch);
  // A permutation's cycle through `index` returns to it, so the walk ends at the latest there.
  auto value = static_cast<std::uint64_t>(index);
  do {
    value = feistel(value, key, half_bits_);
  } while (value >= static_cast<std::uint64_t>(samples_));
  return static_cast<std::int64_t>(value);
}

OrderedSamples::OrderedSamples(TokenSource source, config::DataOrder order, const SampleRequest& request,
                               std::optional<std::int64_t> document_end)
    : source_(std::move(source)), seq_len_(request.seq_len) {
  if (order == config::DataOrder::Own) {
    strata_check(!document_end, "OrderedSamples: an own order defines its samples");
    own_ = source_.own_order(request);
    return;
  }
  if (document_end) documents_.emplace(source_, seq_len_, *document_end);
  const std::int64_t samples = documents_ ? documents_->count() : source_.sample_count(seq_len_);
  general_.emplace(samples, order == config::DataOrder::Shuffled ? std::optional(request.seed) : std::nullopt);
}

std::int64_t OrderedSamples::count() const {
  return own_ == nullptr ? general_->samples() : own_->count();
}

std::int64_t OrderedSamples::sample(std::int64_t position) const {
  return own_ == nullptr ? general_->sample(position) : own_->sample(position);
}

void OrderedSamples::read(std::int64_t position, std::int64_t* tokens, std::uint8_t* is_target) const {
  if (documents_) return documents_->read(source_, general_->sample(position), tokens, is_target);
  if (own_ == nullptr) {
    const std::int64_t first = general_->sample(position) * seq_len_;
    source_.copy(first, seq_len_ + 1, tokens);
    return source_.copy_mask(first, seq_len_ + 1, is_target);
  }
  if (position >= own_->count())
    throw UserError(Place{source_.path()},
                    "the order of the plugin {} has {} samples, enough for train.steps, and the run continues after "
                    "them; raise train.steps",
                    source_.plugin_name(), own_->count());
  std::fill_n(is_target, seq_len_ + 1, std::uint8_t{1});
  plugins::plugin_call(source_.plugin_name(), "read()", [&] { own_->read(position, tokens, is_target); });
}

}  // namespace strata::data
