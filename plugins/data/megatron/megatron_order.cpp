#include "megatron_order.hpp"

#include <strata/error.hpp>

#include <bit>
#include <numeric>
#include <random>
#include <utility>

namespace strata::megatron {
namespace {

// The part of NumPy's legacy generator that a shuffle uses: Mersenne twister, integers by masking and rejection.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed) : twister_(seed) {}

  template <typename Iterator>
  void shuffle(Iterator begin, Iterator end) {
    for (std::int64_t i = end - begin - 1; i >= 1; --i)
      std::swap(begin[i], begin[up_to(static_cast<std::uint32_t>(i))]);
  }

 private:
  std::uint32_t up_to(std::uint32_t largest) {
    const std::uint32_t mask = ~std::uint32_t{0} >> std::countl_zero(largest);
    std::uint32_t value = 0;
    do {
      value = static_cast<std::uint32_t>(twister_()) & mask;
    } while (value > largest);
    return value;
  }

  std::mt19937 twister_;
};

struct Epochs {
  std::int64_t count = 1;
  std::int64_t samples = 0;         // of all epochs
  std::int64_t samples_before = 0;  // of all but the last, when that one is shuffled apart; else `samples`
  bool last_apart() const { return samples_before != samples; }
};

Epochs plan_epochs(std::int64_t tokens, std::int64_t seq_len, std::int64_t wanted) {
  Epochs epochs;
  if (wanted > 0) epochs.count = (wanted * seq_len) / tokens + 1;  // ceil((wanted * seq_len + 1) / tokens)
  epochs.samples = epochs.samples_before = (epochs.count * tokens - 1) / seq_len;
  if (epochs.count == 1) return epochs;
  const std::int64_t before = ((epochs.count - 1) * tokens - 1) / seq_len;
  const std::int64_t per_epoch = (tokens - 1) / seq_len;
  if (wanted - before < static_cast<std::int64_t>(0.80 * static_cast<double>(per_epoch)))
    epochs.samples_before = before;
  return epochs;
}

constexpr std::int64_t most_entries = (std::int64_t{1} << 32) - 2;

void check(const MegatronIndex& index, std::int64_t seq_len, std::int64_t wanted, std::uint64_t seed) {
  strata_check(seq_len >= 1 && wanted >= 0, "MegatronOrder: seq_len is positive, wanted not negative");
  if (seed > 0xFFFFFFFF) {
    throw UserError("the seed is {}; Megatron's order needs a train.seed from 0 to 4294967295", seed);
  }
  const std::int64_t tokens = index.token_count();
  if (tokens - 1 < seq_len && wanted == 0) {
    throw UserError(Place{index.path()}, "holds {} tokens, but one sample of seq_len {} needs {}", tokens, seq_len,
                    seq_len + 1);
  }
  if (index.sequences() > INT32_MAX) {
    throw UserError(Place{index.path()}, "holds {} sequences; Megatron's order supports at most 2147483647",
                    index.sequences());
  }
  // In floating point, which does not overflow; it is inexact only far beyond the bound.
  const double epochs = static_cast<double>(wanted) * static_cast<double>(seq_len) / static_cast<double>(tokens) + 1;
  const double entries = static_cast<double>(index.sequences()) * epochs;
  const double samples = static_cast<double>(tokens) * epochs / static_cast<double>(seq_len);
  if (entries <= static_cast<double>(most_entries) && samples <= static_cast<double>(most_entries)) return;
  throw UserError(Place{index.path()},
                  "{} samples of seq_len {} are too many for Megatron's order, which keeps an index of all samples and "
                  "sequences in memory; use fewer steps, or data.order: shuffled, which needs no index",
                  wanted, seq_len);
}

}  // namespace

MegatronOrder::MegatronOrder(const MegatronIndex& index, std::int64_t seq_len, std::int64_t wanted,
                             std::uint64_t seed) {
  check(index, seq_len, wanted, seed);
  index.check_not_cut();
  const Epochs epochs = plan_epochs(index.token_count(), seq_len, wanted);
  NumpyRandom random(static_cast<std::uint32_t>(seed));

  const std::int64_t sequences = index.sequences();
  document_index_.resize(static_cast<std::size_t>(sequences * epochs.count));
  for (std::int64_t epoch = 0; epoch < epochs.count; ++epoch) {
    std::iota(document_index_.begin() + epoch * sequences, document_index_.begin() + (epoch + 1) * sequences, 0);
  }
  const auto last_epoch = document_index_.end() - (epochs.last_apart() ? sequences : 0);
  random.shuffle(document_index_.begin(), last_epoch);
  random.shuffle(last_epoch, document_index_.end());

  sample_index_.reserve(static_cast<std::size_t>(epochs.samples + 1));
  sample_index_.push_back({});  // even where the first sequence is empty
  std::int64_t row = 0;         // tokens in the sequences before `entry`
  for (std::int64_t entry = 0; std::ssize(sample_index_) <= epochs.samples; ++entry) {
    const std::int64_t end = row + index.length(document_index_[static_cast<std::size_t>(entry)]);
    for (std::int64_t start = std::ssize(sample_index_) * seq_len;
         start < end && std::ssize(sample_index_) <= epochs.samples; start += seq_len) {
      sample_index_.push_back({entry, static_cast<std::int32_t>(start - row)});
    }
    row = end;
  }

  shuffle_index_.resize(static_cast<std::size_t>(epochs.samples));
  std::iota(shuffle_index_.begin(), shuffle_index_.end(), 0U);
  random.shuffle(shuffle_index_.begin(), shuffle_index_.begin() + epochs.samples_before);
  random.shuffle(shuffle_index_.begin() + epochs.samples_before, shuffle_index_.end());
}

}  // namespace strata::megatron
