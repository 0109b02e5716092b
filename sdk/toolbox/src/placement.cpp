#include <strata/error.hpp>
#include <strata/toolbox/placement.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

namespace strata::toolbox {
namespace {

void require_a_layer_for_each(std::size_t layers, int parts) {
  if (parts < 1) throw UserError("cannot split layers into {} parts: at least 1 is needed", parts);
  if (layers < static_cast<std::size_t>(parts)) {
    throw UserError(
        "the model has {} layers but the pipeline has {} chunks (stages x chunks per stage); every chunk needs a "
        "layer; use at most {} chunks",
        layers, parts, layers);
  }
}

// best[k][n]: the best value that the first n layers can have in k parts; `better(part, rest, best so far)` folds one
// choice.
struct Table {
  Table(int parts, std::size_t layers) : width(layers + 1), cells((static_cast<std::size_t>(parts) + 1) * width) {}
  std::int64_t& at(std::size_t k, std::size_t n) { return cells[k * width + n]; }
  std::size_t width;
  std::vector<std::int64_t> cells;
};

// The weight of the heaviest part in the cut that makes it lightest: linear partition by dynamic programming.
std::int64_t lightest_heaviest(const std::vector<std::int64_t>& prefix, int parts) {
  const std::size_t layers = prefix.size() - 1;
  Table best(parts, layers);
  for (std::size_t n = 1; n <= layers; ++n) best.at(1, n) = prefix[n];
  for (std::size_t k = 2; k <= static_cast<std::size_t>(parts); ++k) {
    for (std::size_t n = k; n <= layers; ++n) {
      std::int64_t value = std::numeric_limits<std::int64_t>::max();
      for (std::size_t cut = k - 1; cut < n; ++cut) {
        value = std::min(value, std::max(best.at(k - 1, cut), prefix[n] - prefix[cut]));
      }
      best.at(k, n) = value;
    }
  }
  return best.at(static_cast<std::size_t>(parts), layers);
}

// Among the cuts with no part above `heaviest`, the one whose lightest part is heaviest. -1 marks what cannot be
// reached.
std::vector<std::pair<int, int>> heaviest_lightest(const std::vector<std::int64_t>& prefix, int parts,
                                                   std::int64_t heaviest) {
  const std::size_t layers = prefix.size() - 1;
  Table best(parts, layers);
  Table last_cut(parts, layers);
  std::fill(best.cells.begin(), best.cells.end(), -1);
  best.at(0, 0) = std::numeric_limits<std::int64_t>::max();
  for (std::size_t k = 1; k <= static_cast<std::size_t>(parts); ++k) {
    for (std::size_t n = k; n <= layers; ++n) {
      for (std::size_t cut = k - 1; cut < n; ++cut) {  // the first of equals: the last part is the heaviest
        const std::int64_t part = prefix[n] - prefix[cut];
        const std::int64_t value = part > heaviest ? -1 : std::min(best.at(k - 1, cut), part);
        if (value <= best.at(k, n)) continue;
        best.at(k, n) = value;
        last_cut.at(k, n) = static_cast<std::int64_t>(cut);
      }
    }
  }
  std::vector<std::pair<int, int>> runs(static_cast<std::size_t>(parts));
  std::size_t end = layers;
  for (std::size_t k = static_cast<std::size_t>(parts); k > 0; --k) {
    const auto begin = static_cast<std::size_t>(last_cut.at(k, end));
    runs[k - 1] = {static_cast<int>(begin), static_cast<int>(end)};
    end = begin;
  }
  return runs;
}

// The weights of stages of some chunks, the heaviest first.
std::vector<std::int64_t> loads_of(const std::vector<std::pair<int, int>>& runs, const std::vector<int>& stage_of_chunk,
                                   const std::vector<std::int64_t>& weights) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(*std::ranges::max_element(stage_of_chunk)) + 1, 0);
  for (std::size_t chunk = 0; chunk < runs.size(); ++chunk)
    for (int layer = runs[chunk].first; layer < runs[chunk].second; ++layer)
      loads[static_cast<std::size_t>(stage_of_chunk[chunk])] += weights[static_cast<std::size_t>(layer)];
  std::ranges::sort(loads, std::greater<>());
  return loads;
}

// Makes one chunk shorter by a layer and another longer, those between them moving by one, the best such change first,
// as long as that makes the heaviest stage lighter, or the next one where that stays. Chunks may be equal and stages
// not: one layer may outweigh all others.
void even_out_stages(std::vector<std::pair<int, int>>& runs, const std::vector<int>& stage_of_chunk,
                     const std::vector<std::int64_t>& weights) {
  for (std::vector<std::int64_t> best = loads_of(runs, stage_of_chunk, weights);;) {
    std::vector<std::pair<int, int>> better;
    for (std::size_t from = 0; from < runs.size(); ++from)
      for (std::size_t to = 0; to < runs.size(); ++to) {
        if (from == to || runs[from].second - runs[from].first == 1) continue;
        std::vector<std::pair<int, int>> moved = runs;
        for (std::size_t chunk = std::min(from, to); chunk < std::max(from, to); ++chunk) {
          moved[chunk].second += from < to ? -1 : 1;
          moved[chunk + 1].first += from < to ? -1 : 1;
        }
        std::vector<std::int64_t> loads = loads_of(moved, stage_of_chunk, weights);
        if (loads >= best) continue;
        best = std::move(loads);
        better = std::move(moved);
      }
    if (better.empty()) return;
    runs = std::move(better);
  }
}

}  // namespace

std::vector<std::pair<int, int>> split_evenly(int layers, int parts) {
  require_a_layer_for_each(static_cast<std::size_t>(std::max(layers, 0)), parts);
  std::vector<std::pair<int, int>> runs;
  int begin = 0;
  for (int part = 0; part < parts; ++part) {
    const int end = begin + (layers - begin) / (parts - part);
    runs.emplace_back(begin, end);
    begin = end;
  }
  return runs;
}

std::vector<std::pair<int, int>> split_by_weight(const std::vector<std::int64_t>& weights, int parts) {
  require_a_layer_for_each(weights.size(), parts);
  std::vector<std::int64_t> prefix(weights.size() + 1, 0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    strata_check(weights[i] >= 0, "split_by_weight: a weight is negative");
    prefix[i + 1] = prefix[i] + weights[i];
  }
  return heaviest_lightest(prefix, parts, lightest_heaviest(prefix, parts));
}

void require_one_chunk(const PipelineShape& shape) {
  if (shape.chunks_per_stage != 1)
    throw UserError(
        "this schedule runs one chunk per stage, but there are {}; leave parallel.chunks out, or use scheduler "
        "interleaved_1f1b",
        shape.chunks_per_stage);
}

Placement place_on(std::vector<int> stage_of_chunk, const std::vector<LayerCost>& layers, const PipelineShape& shape) {
  Placement placement{std::move(stage_of_chunk), {}};
  if (shape.layers_per_chunk.empty()) {
    std::vector<std::int64_t> weights;
    for (const LayerCost& layer : layers) weights.push_back(layer.weight);
    placement.layers_of_chunk = split_by_weight(weights, shape.chunks());
    if (shape.chunks_per_stage > 1) even_out_stages(placement.layers_of_chunk, placement.stage_of_chunk, weights);
    return placement;
  }
  int begin = 0;
  for (const int count : shape.layers_per_chunk) {
    placement.layers_of_chunk.emplace_back(begin, begin + count);
    begin += count;
  }
  return placement;
}

Placement place_in_turn(const std::vector<LayerCost>& layers, const PipelineShape& shape) {
  std::vector<int> stages;
  for (int chunk = 0; chunk < shape.chunks(); ++chunk) stages.push_back(chunk % shape.stages);
  return place_on(std::move(stages), layers, shape);
}

void require_two_chunks(const PipelineShape& shape) {
  if (shape.chunks_per_stage != 2)
    throw UserError(
        "this schedule runs two chunks per stage, but parallel.chunks is {}; leave it out, or use scheduler "
        "zero_bubble_h1",
        shape.chunks_per_stage);
}

std::vector<int> stages_of_a_v(int stages) {
  std::vector<int> placed;
  for (int chunk = 0; chunk < 2 * stages; ++chunk) placed.push_back(std::min(chunk, 2 * stages - 1 - chunk));
  return placed;
}

Placement place_in_a_v(const std::vector<LayerCost>& layers, const PipelineShape& shape) {
  require_two_chunks(shape);
  return place_on(stages_of_a_v(shape.stages), layers, shape);
}

}  // namespace strata::toolbox
