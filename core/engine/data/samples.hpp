#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "config/run_config.hpp"
#include "data/documents.hpp"
#include "data/token_source.hpp"

namespace strata::data {

// Maps a global sample counter 0, 1, 2, ... to a sample of a data set of `samples`; each run of `samples` positions is
// an epoch and holds every sample once. [any rank]
//
// Sequential: sample = position mod samples.
// Shuffled: in each epoch a permutation of [0, samples), computed and not stored, so that any position costs the same
// and a data set of any size no memory. It is a balanced Feistel network of 6 rounds over the smallest domain of 4^k >=
// max(samples, 256) values, applied again while its value is not a sample ("cycle walking", under 4 times on average,
// at most 128 for tiny sets). With mix(z) the SplitMix64 finalizer and g = 0x9E3779B97F4A7C15:
//     key = mix(mix(seed) + g * epoch)        round i: (left, right) = (right, left ^ (mix(key + g * (i + 1) ^ right)
//     >> (64 - k)))
// (arithmetic modulo 2^64, + before ^). The order is part of a run's identity: changing it changes results, and a test
// holds it.
class SampleOrder {
 public:
  // Makes an order, shuffled by `seed`; sequential without one.
  explicit SampleOrder(std::int64_t samples, std::optional<std::uint64_t> seed = {});

  std::int64_t samples() const { return samples_; }
  std::int64_t sample(std::int64_t position) const;

 private:
  std::int64_t samples_;
  std::optional<std::uint64_t> seed_;
  int half_bits_;  // k: half the bits of the domain
};

// The samples of a data set in the order in which they are trained on. Sequential and shuffled: sample i is tokens [i *
// seq_len, (i + 1) * seq_len + 1) of the row, the rest at its end is unused, and positions beyond count() continue with
// further epochs. With a document end token, sample i is that of DocumentSamples. Own: the plugin's order, whose
// positions end with count(). [any rank]
class OrderedSamples {
 public:
  // Orders the samples. With `document_end`, not for the own order, each sample holds tokens of one document. Throws
  // UserError when the source has no sample, or not this order, or no document end.
  OrderedSamples(TokenSource source, config::DataOrder order, const SampleRequest& request,
                 std::optional<std::int64_t> document_end = {});

  const TokenSource& source() const { return source_; }
  std::int64_t seq_len() const { return seq_len_; }
  std::int64_t count() const;
  // Returns the number of the sample at `position` = 0, 1, 2, ... of the order.
  std::int64_t sample(std::int64_t position) const;
  // Writes the seq_len + 1 tokens of the sample at `position`: the first seq_len are inputs, the last seq_len targets;
  // and for each token 1 if it is a target that counts in the loss, 0 for the padding of a document and for what the
  // data's mask leaves out. Throws EnvironmentError when a file was truncated after it was opened, UserError beyond the
  // last position of an own order.
  void read(std::int64_t position, std::int64_t* tokens, std::uint8_t* is_target) const;

 private:
  TokenSource source_;
  std::int64_t seq_len_;
  std::optional<DocumentSamples> documents_;
  std::unique_ptr<const Samples> own_;  // null for the general orders
  std::optional<SampleOrder> general_;
};

}  // namespace strata::data
