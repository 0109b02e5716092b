#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "config/run_config.hpp"
#include "data/sample_order.hpp"
#include "data/token_source.hpp"

namespace strata::data {

// The samples of a data set in the order in which they are trained on. Sequential and shuffled: sample i is tokens
// [i * seq_len, (i + 1) * seq_len + 1) of the row, what is left at its end is not used, and positions behind count() go
// on with further epochs. Own: the plugin's, whose positions end with count(). [any rank]
class OrderedSamples {
 public:
  // Throws UserError when the source has no sample, or not this order.
  OrderedSamples(TokenSource source, config::DataOrder order, const SampleRequest& request);

  const TokenSource& source() const { return source_; }
  std::int64_t seq_len() const { return seq_len_; }
  std::int64_t count() const;
  // The number of the sample at `position` = 0, 1, 2, ... of the order.
  std::int64_t sample(std::int64_t position) const;
  // Writes that sample's seq_len + 1 tokens: the first seq_len are inputs, the last seq_len targets. Throws
  // EnvironmentError when a file was cut after it was opened, UserError behind the last position of an own order.
  void read(std::int64_t position, std::int64_t* destination) const;

 private:
  TokenSource source_;
  std::int64_t seq_len_;
  std::unique_ptr<const Samples> own_;  // null for the general orders
  std::optional<SampleOrder> general_;
};

}  // namespace strata::data
