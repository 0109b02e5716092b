#include <strata/toolbox/shard_layout.hpp>

#include <functional>
#include <numeric>

namespace strata::toolbox {

ShardLayout::ShardLayout(std::int64_t elements, int rank, int ranks, std::int64_t piece_elements)
    : elements_(elements), rank_(rank), ranks_(ranks) {
  cut_in_parts(0, elements, alignment, piece_elements, true);
  settle();
}

std::vector<ShardLayout> ShardLayout::of(const std::vector<FlatParameter*>& flat, int rank, int ranks,
                                         std::int64_t piece_elements) {
  std::vector<ShardLayout> layouts(flat.size());
  const auto choose_owners = [&](std::vector<Piece*> owned) {
    std::ranges::stable_sort(owned, std::greater(), &Piece::elements);
    std::vector<std::int64_t> load(static_cast<std::size_t>(ranks), 0);
    for (Piece* const piece : owned) {
      const auto least = std::ranges::min_element(load);
      piece->owner = static_cast<int>(least - load.begin());
      *least += piece->elements;
    }
    // The first rank has the most, as it has of equal parts: a plan of many ranks looks at the first and the last.
    std::vector<int> order(load.size()), place(load.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(), [&](int owner) { return load[static_cast<std::size_t>(owner)]; });
    for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    for (Piece* const piece : owned) piece->owner = place[static_cast<std::size_t>(piece->owner)];
  };
  std::vector<Piece*> of_all;
  for (std::size_t i = 0; i < flat.size(); ++i) {
    ShardLayout& layout = layouts[i];
    layout.elements_ = flat[i]->elements();
    layout.rank_ = rank;
    layout.ranks_ = ranks;
    layout.cut(flat[i]->info().parameters, piece_elements);
    std::vector<Piece*> owned;
    for (Piece& piece : layout.pieces_)
      if (!piece.in_parts) owned.push_back(&piece);
    if (!flat[i]->info().parameters.front().info.tie.empty())
      choose_owners(owned);
    else
      of_all.insert(of_all.end(), owned.begin(), owned.end());
  }
  choose_owners(of_all);
  for (ShardLayout& layout : layouts) layout.settle();
  return layouts;
}

void ShardLayout::cut(const std::vector<ParameterSpan>& spans, std::int64_t piece_elements) {
  for (std::size_t i = 0; i < spans.size();) {
    const ParameterSpan& first = spans[i];
    const std::int64_t begin = first.offset;
    std::int64_t end = begin + first.elements();
    ++i;
    if (first.unit > largest_block) {
      cut_in_parts(begin, end, first.unit, piece_elements, false);
      continue;
    }
    const std::int64_t unit = std::lcm(first.unit, alignment);
    for (; i < spans.size() && unit % spans[i].unit == 0 && (spans[i].offset - begin) % spans[i].unit == 0; ++i)
      end = spans[i].offset + spans[i].elements();
    cut_in_parts(begin, end, unit, piece_elements, end == elements_);
  }
}

// A remainder without padding is owned in pieces of whole units that are worth a collective.
void ShardLayout::cut_in_parts(std::int64_t begin, std::int64_t end, std::int64_t unit, std::int64_t piece_elements,
                               bool pad) {
  const std::int64_t granule = unit * ranks_;
  const std::int64_t longest = std::max(granule, piece_elements / granule * granule);
  while (end - begin >= granule || (pad && begin < end)) {
    const std::int64_t length = std::min(longest, end - begin), over = length % granule;
    std::int64_t elements = length - over;
    if (pad && over > 0) elements = ranks_ == 1 ? length : elements + granule;
    pieces_.push_back({.begin = begin, .elements = elements, .part = elements / ranks_});
    begin += elements;
  }
  const std::int64_t some = (largest_block + unit - 1) / unit * unit;
  for (; begin < end; begin += some)
    pieces_.push_back({.begin = begin, .elements = std::min(some, end - begin), .in_parts = false});
}

void ShardLayout::settle() {
  std::int64_t stored = 0;
  for (Piece& piece : pieces_) {
    if (!piece.in_parts) piece.part = piece.owner == rank_ ? piece.elements : 0;
    piece.stored = stored;
    stored += piece.part;
  }
}

}  // namespace strata::toolbox
