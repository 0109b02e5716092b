#pragma once
#include <cstdint>
#include <vector>

#include "megatron_index.hpp"

namespace strata::megatron {

// The order in which Megatron-LM's GPT data set (megatron/core/datasets/gpt_dataset.py) trains on a .bin/.idx pair
// whose sequences are all in the training split, from the same seed, sequence length and number of samples:
//  - epochs: the smallest number of whole epochs with enough samples. They are shuffled together, except that the last
//    one is shuffled separately, after the others, if the run needs less than 80 % of its samples.
//  - document index: the sequence numbers of all epochs, shuffled. (What Megatron calls a document here is a sequence.)
//  - sample index: where each sample begins, as an entry of the document index and a token in its sequence. With the
//    sequences concatenated in that order, sample i is tokens [i * seq_len, (i + 1) * seq_len + 1).
//  - shuffle index: the samples, shuffled.
// All three shuffles come from one Mersenne twister, seeded and used as NumPy's RandomState(seed).shuffle does. They
// are kept in memory: 4 bytes per sequence and epoch, 16 bytes per sample. [any rank]
class MegatronOrder {
 public:
  struct Start {
    std::int64_t entry = 0;   // of the document index
    std::int32_t offset = 0;  // tokens
    bool operator==(const Start&) const = default;
  };

  // `wanted`: samples in the whole run; 0 means one epoch. Throws UserError if the seed is above 2^32 - 1, if there is
  // not a single sample, or if an index would have more than 2^32 - 2 entries. `index` is used only here.
  MegatronOrder(const MegatronIndex& index, std::int64_t seq_len, std::int64_t wanted, std::uint64_t seed);

  const std::vector<std::int32_t>& document_index() const { return document_index_; }
  const std::vector<Start>& sample_index() const { return sample_index_; }  // one more entry than samples
  const std::vector<std::uint32_t>& shuffle_index() const { return shuffle_index_; }
  std::int64_t samples() const { return static_cast<std::int64_t>(shuffle_index_.size()); }

 private:
  std::vector<std::int32_t> document_index_;
  std::vector<Start> sample_index_;
  std::vector<std::uint32_t> shuffle_index_;
};

}  // namespace strata::megatron
