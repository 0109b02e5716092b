// Which samples a step trains on: integers only, the same on every rank, and a function of the step alone. A run that
// is resumed, or that has other ranks, sees the same samples in the same steps.
#pragma once
#include <cstdint>

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
  static SampleOrder sequential(std::int64_t samples);
  static SampleOrder shuffled(std::int64_t samples, std::uint64_t seed);

  std::int64_t samples() const { return samples_; }
  std::int64_t sample(std::int64_t position) const;

 private:
  SampleOrder(std::int64_t samples, bool shuffle, std::uint64_t seed);

  std::int64_t samples_;
  bool shuffle_;
  std::uint64_t seed_;
  int half_bits_;  // k: half the bits of the domain
};

// Cuts the global batch of each step among ranks and micro-batches: step s trains on positions [s * G, (s + 1) * G)
// with G = ranks * micro_batch * accumulation, and micro-batch a of data-parallel rank r is the (a * ranks + r)-th run
// of micro_batch positions in it. So one process with the same G sees the same samples in each step, whatever the
// ranks. [any rank]
struct BatchPlan {
  std::int64_t micro_batch = 1;   // samples a rank takes at once
  std::int64_t ranks = 1;         // data-parallel ranks
  std::int64_t accumulation = 1;  // micro-batches a rank takes in a step

  std::int64_t global_batch() const { return ranks * micro_batch * accumulation; }
  // Where the run of micro_batch positions of one micro-batch begins. Throws Bug when step, micro-batch or rank is out
  // of range.
  std::int64_t first_position(std::int64_t step, std::int64_t micro_batch_index, std::int64_t rank) const;
};

}  // namespace strata::data
