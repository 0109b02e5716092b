#include "shared_matrices.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

namespace strata::muon {

namespace {

// Operations of a step, but for a factor.
double work_of(const SharedMatrix& matrix, int ranks) {
  const auto rows = static_cast<double>(matrix.part.size(0)), columns = static_cast<double>(matrix.part.size(1));
  const double longer = matrix.by_columns ? columns * ranks : rows * ranks, other = matrix.by_columns ? rows : columns;
  return longer * other * std::min(longer, other);
}

// Where the part of a matrix lies in what goes to the rank that computes it.
struct Place {
  std::int64_t rank = 0;
  std::int64_t offset = 0;
};

// The largest first, each to the rank that has the least to do so far.
std::vector<Place> places_of(const std::vector<SharedMatrix>& matrices, int ranks, std::int64_t& longest) {
  std::vector<std::size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return work_of(matrices[i], ranks); });
  std::vector<double> work(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> elements(work.size());
  std::vector<Place> places(matrices.size());
  for (const std::size_t i : order) {
    const auto rank = static_cast<std::size_t>(std::ranges::min_element(work) - work.begin());
    places[i] = {static_cast<std::int64_t>(rank), elements[rank]};
    work[rank] += work_of(matrices[i], ranks);
    elements[rank] += matrices[i].part.numel();
  }
  longest = *std::ranges::max_element(elements);
  return places;
}

}  // namespace

void orthogonalize_shared(Group& group, const std::vector<SharedMatrix>& matrices,
                          const std::function<at::Tensor(const at::Tensor& whole)>& orthogonal) {
  if (matrices.empty()) return;
  const std::int64_t ranks = group.size();
  std::int64_t longest = 0;
  const std::vector<Place> places = places_of(matrices, group.size(), longest);
  const at::Tensor mine = at::zeros({ranks, longest}, matrices.front().part.options()), theirs = at::empty_like(mine);
  const auto part_in = [&](std::size_t i) {
    const at::Tensor& part = matrices[i].part;
    return mine[places[i].rank].narrow(0, places[i].offset, part.numel()).view_as(part);
  };
  for (std::size_t i = 0; i < matrices.size(); ++i) part_in(i).copy_(matrices[i].part);
  group.all_to_all(theirs.view({-1}), mine.view({-1})).wait();
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const auto& [part, by_columns] = matrices[i];
    if (places[i].rank != group.rank() || part.is_meta()) continue;
    at::Tensor parts =
        theirs.narrow(1, places[i].offset, part.numel()).unflatten(1, {part.size(0), part.size(1)});  // [ranks, ...]
    if (by_columns) parts = parts.transpose(0, 1);
    const at::Tensor whole = by_columns ? parts.reshape({part.size(0), -1}) : parts.reshape({-1, part.size(1)});
    parts.copy_(orthogonal(whole).reshape(parts.sizes()));
  }
  group.all_to_all(mine.view({-1}), theirs.view({-1})).wait();
  for (std::size_t i = 0; i < matrices.size(); ++i) matrices[i].part.copy_(part_in(i));
}

}  // namespace strata::muon
