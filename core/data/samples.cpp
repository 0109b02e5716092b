#include "data/samples.hpp"

#include <strata/error.hpp>

#include <algorithm>

namespace strata::data {
namespace {

const MegatronIndex& index_of(const TokenSource& source) {
  strata_check(source.index() != nullptr, "MegatronSamples: a source with an index");
  return *source.index();
}

}  // namespace

RowSamples::RowSamples(TokenSource source, std::int64_t seq_len, SampleOrder order)
    : Samples(std::move(source), seq_len), order_(order) {
  strata_check(order_.samples() == this->source().sample_count(seq_len),
               "RowSamples: the order is of another number of samples");
}

void RowSamples::read(std::int64_t position, std::int64_t* destination) const {
  source().copy(order_.sample(position) * seq_len(), seq_len() + 1, destination);
}

MegatronSamples::MegatronSamples(TokenSource source, std::int64_t seq_len, std::int64_t wanted, std::uint64_t seed)
    : Samples(std::move(source), seq_len), order_(index_of(this->source()), seq_len, wanted, seed) {}

std::int64_t MegatronSamples::sample(std::int64_t position) const {
  strata_check(position >= 0 && position < order_.samples(), "MegatronSamples: a position outside the order");
  return order_.shuffle_index()[static_cast<std::size_t>(position)];
}

void MegatronSamples::read(std::int64_t position, std::int64_t* destination) const {
  const MegatronIndex& index = *source().index();
  index.check_not_cut();
  auto [entry, offset] = order_.sample_index()[static_cast<std::size_t>(sample(position))];
  for (std::int64_t left = seq_len() + 1; left > 0; ++entry) {
    const std::int64_t sequence = order_.document_index()[static_cast<std::size_t>(entry)];
    const std::int64_t count = std::min(left, index.length(sequence) - offset);
    source().copy(index.first_token(sequence) + offset, count, destination);
    destination += count;
    left -= count;
    offset = 0;
  }
}

}  // namespace strata::data
