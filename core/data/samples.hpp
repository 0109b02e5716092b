#pragma once
#include <cstdint>
#include <utility>

#include "data/megatron_order.hpp"
#include "data/sample_order.hpp"
#include "data/token_source.hpp"

namespace strata::data {

// The samples of a data set in the order in which they are trained on. A sample is seq_len + 1 tokens: the first
// seq_len are inputs, the last seq_len targets. [any rank]
class Samples {
 public:
  Samples(TokenSource source, std::int64_t seq_len) : source_(std::move(source)), seq_len_(seq_len) {}
  virtual ~Samples() = default;
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;

  const TokenSource& source() const { return source_; }
  std::int64_t seq_len() const { return seq_len_; }

  // How many there are. Positions go on behind them where the order has further epochs.
  virtual std::int64_t count() const = 0;
  // The number of the sample at `position` = 0, 1, 2, ... of the order.
  virtual std::int64_t sample(std::int64_t position) const = 0;
  // Writes that sample's seq_len + 1 tokens. Throws EnvironmentError when a file was cut after it was opened.
  virtual void read(std::int64_t position, std::int64_t* destination) const = 0;

 private:
  TokenSource source_;
  std::int64_t seq_len_;
};

// Sample i is tokens [i * seq_len, (i + 1) * seq_len + 1) of the source's row; what is left at its end is not used.
class RowSamples final : public Samples {
 public:
  // The order's samples must be source.sample_count(seq_len); throws Bug otherwise.
  RowSamples(TokenSource source, std::int64_t seq_len, SampleOrder order);

  std::int64_t count() const override { return order_.samples(); }
  std::int64_t sample(std::int64_t position) const override { return order_.sample(position); }
  void read(std::int64_t position, std::int64_t* destination) const override;

 private:
  SampleOrder order_;
};

// The samples as Megatron-LM cuts and orders them: see MegatronOrder. Positions end with count(), which the samples
// wanted are within.
class MegatronSamples final : public Samples {
 public:
  // The source must have an index; throws Bug otherwise, and UserError as MegatronOrder does.
  MegatronSamples(TokenSource source, std::int64_t seq_len, std::int64_t wanted, std::uint64_t seed);

  std::int64_t count() const override { return order_.samples(); }
  std::int64_t sample(std::int64_t position) const override;
  void read(std::int64_t position, std::int64_t* destination) const override;

 private:
  MegatronOrder order_;
};

}  // namespace strata::data
