#include "program/passes.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

namespace strata::program {
namespace {

// Positions count the compute instructions of the program.
struct Gap {
  std::int64_t distance = 0;  // elements used strictly between the two uses
  std::size_t begin = 0;      // the previous use
  std::size_t end = 0;        // the next use
  int flat_parameter = 0;
};

struct Stay {
  std::size_t begin = 0;  // the first use
  std::size_t end = 0;    // the last use
  int flat_parameter = 0;
  std::size_t prefetch = 0;  // the position before which the prefetch starts; `begin`: no prefetch
};

// Elements by position, which ranges add to: a sum over a range's ancestors in a binary tree is at one position.
class Levels {
 public:
  explicit Levels(const std::vector<std::int64_t>& levels) {
    while (size_ < levels.size()) size_ *= 2;
    added_.assign(2 * size_, 0);
    highest_.assign(2 * size_, 0);
    std::ranges::copy(levels, highest_.begin() + static_cast<std::ptrdiff_t>(size_));
    for (std::size_t node = size_; --node > 0;) settle(node);
  }

  void add(std::size_t begin, std::size_t end, std::int64_t elements) { add(1, 0, size_, begin, end, elements); }
  // Whether no position of the range has more.
  bool within(std::size_t begin, std::size_t end, std::int64_t most) const {
    return within(1, 0, size_, begin, end, most);
  }

 private:
  void settle(std::size_t node) {
    highest_[node] = added_[node] + std::max(highest_[2 * node], highest_[2 * node + 1]);
  }

  // `node` stands for the positions [from, to).
  void add(std::size_t node, std::size_t from, std::size_t to, std::size_t begin, std::size_t end,
           std::int64_t elements) {
    if (end <= from || to <= begin) return;
    if (begin <= from && to <= end) {
      added_[node] += elements;
      highest_[node] += elements;
      return;
    }
    const std::size_t middle = (from + to) / 2;
    add(2 * node, from, middle, begin, end, elements);
    add(2 * node + 1, middle, to, begin, end, elements);
    settle(node);
  }

  bool within(std::size_t node, std::size_t from, std::size_t to, std::size_t begin, std::size_t end,
              std::int64_t most) const {
    if (end <= from || to <= begin || begin >= end || highest_[node] <= most) return true;
    if (begin <= from && to <= end) return false;
    const std::size_t middle = (from + to) / 2;
    return within(2 * node, from, middle, begin, end, most - added_[node]) &&
           within(2 * node + 1, middle, to, begin, end, most - added_[node]);
  }

  std::size_t size_ = 1;
  std::vector<std::int64_t> added_;    // by node: to all its positions
  std::vector<std::int64_t> highest_;  // by node: of its positions, without what its ancestors add
};

class Residency {
 public:
  Residency(const Program& computes, const ParameterUse& use, const Lookahead& lookahead)
      : computes_(computes), use_(use), lookahead_(lookahead), uses_of_(use.flat_parameters.size()) {
    for (std::size_t position = 0; position < computes.size(); ++position) {
      std::int64_t elements = 0;
      for (const int index : values_used(computes[position], use)) {
        uses_of_.at(static_cast<std::size_t>(index)).push_back(position);
        elements += elements_of(index);
      }
      used_.push_back(elements);
    }
    live_.emplace(used_);
    ahead_.emplace(std::vector<std::int64_t>(used_.size(), 0));
  }

  // Sorted by first use; within a layer, in the layer's order.
  std::vector<Stay> plan() {
    keep_near_gaps();
    std::vector<Stay> stays = join_kept();
    place_prefetches(stays);
    return stays;
  }

 private:
  std::int64_t elements_of(int index) const { return use_.flat_parameter(index).elements; }

  // True if the flat parameter can also be live over positions [begin, end).
  bool fits(int index, std::size_t begin, std::size_t end) const {
    return live_->within(begin, end, lookahead_.live_parameters - elements_of(index));
  }

  bool near(const Gap& gap) const {
    if (lookahead_.reuse_distance < 0) return false;
    if (gap.distance <= lookahead_.reuse_distance) return true;
    const bool few_layers = gap.end - gap.begin - 1 <= static_cast<std::size_t>(std::max(lookahead_.layers, 0));
    return few_layers && gap.distance <= lookahead_.elements - elements_of(gap.flat_parameter);
  }

  std::vector<Gap> near_gaps() const {
    std::vector<std::int64_t> before(used_.size() + 1, 0);  // elements used at the positions before this one
    for (std::size_t i = 0; i < used_.size(); ++i) before[i + 1] = before[i] + used_[i];
    std::vector<Gap> gaps;
    for (std::size_t index = 0; index < uses_of_.size(); ++index) {
      const auto& uses = uses_of_[index];
      for (std::size_t i = 0; i + 1 < uses.size(); ++i) {
        const Gap gap{before[uses[i + 1]] - before[uses[i] + 1], uses[i], uses[i + 1], static_cast<int>(index)};
        if (near(gap)) gaps.push_back(gap);
      }
    }
    std::sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) {
      return std::tie(a.distance, a.begin, a.flat_parameter) < std::tie(b.distance, b.begin, b.flat_parameter);
    });
    return gaps;
  }

  void keep_near_gaps() {
    kept_after_.assign(uses_of_.size(), {});
    for (const Gap& gap : near_gaps()) {
      if (!fits(gap.flat_parameter, gap.begin + 1, gap.end)) continue;
      live_->add(gap.begin + 1, gap.end, elements_of(gap.flat_parameter));
      kept_after_[static_cast<std::size_t>(gap.flat_parameter)].push_back(gap.begin);
    }
  }

  std::vector<Stay> join_kept() {
    std::vector<std::vector<Stay>> starting(computes_.size());
    for (std::size_t index = 0; index < uses_of_.size(); ++index) {
      auto& kept = kept_after_[index];
      std::sort(kept.begin(), kept.end());
      const auto& uses = uses_of_[index];
      for (std::size_t i = 0; i < uses.size(); ++i) {
        Stay stay{uses[i], uses[i], static_cast<int>(index), uses[i]};
        while (i + 1 < uses.size() && std::binary_search(kept.begin(), kept.end(), uses[i])) stay.end = uses[++i];
        starting[stay.begin].push_back(stay);
      }
    }
    std::vector<Stay> stays;
    for (std::size_t position = 0; position < starting.size(); ++position) {
      for (const int index : values_used(computes_[position], use_)) {  // the layer's own order
        for (const Stay& stay : starting[position]) {
          if (stay.flat_parameter == index) stays.push_back(stay);
        }
      }
    }
    return stays;
  }

  void place_prefetches(std::vector<Stay>& stays) {
    std::vector<std::size_t> free_from(uses_of_.size(), 0);  // per flat parameter, the position after its last release
    std::size_t earliest = 0;                                // prefetches start in the order of the uses
    for (Stay& stay : stays) {
      const auto index = static_cast<std::size_t>(stay.flat_parameter);
      const auto layers = static_cast<std::size_t>(std::max(lookahead_.layers, 0));
      std::size_t begin = std::max({stay.begin - std::min(layers, stay.begin), free_from[index], earliest});
      // Everything used earlier is already gathered or prefetched at `begin`, so what fits there fits until the use.
      const std::int64_t room = lookahead_.elements - elements_of(stay.flat_parameter);
      while (begin < stay.begin &&
             (!ahead_->within(begin, begin + 1, room) || !fits(stay.flat_parameter, begin, begin + 1)))
        ++begin;
      stay.prefetch = begin;
      ahead_->add(stay.prefetch, stay.begin, elements_of(stay.flat_parameter));
      live_->add(stay.prefetch, stay.begin, elements_of(stay.flat_parameter));
      earliest = stay.prefetch;
      free_from[index] = stay.end + 1;
    }
  }

  const Program& computes_;
  const ParameterUse& use_;
  const Lookahead& lookahead_;
  std::vector<std::vector<std::size_t>> uses_of_;     // per flat parameter, the positions that use it
  std::vector<std::vector<std::size_t>> kept_after_;  // per flat parameter, the uses after which it stays
  std::vector<std::int64_t> used_;                    // per position, the elements that it uses
  std::optional<Levels> live_;                        // per position, the elements that are live while it computes
  std::optional<Levels> ahead_;                       // per position, the elements prefetched and not yet used
};

Instruction about(Op op, int flat_parameter, const Instruction& user) {
  return {.op = op, .flat_parameter = flat_parameter, .phase = phase_of(user)};
}

}  // namespace

std::int64_t peak_live_elements(const Program& program, const ParameterUse& use) {
  std::vector<bool> live(use.flat_parameters.size(), false);
  std::int64_t elements = 0;
  std::int64_t peak = 0;
  for (const Instruction& instruction : program) {
    const bool taken = instruction.op == Op::Prefetch || instruction.op == Op::Gather;
    if (!taken && instruction.op != Op::Release) continue;
    if (live.at(static_cast<std::size_t>(instruction.flat_parameter)) == taken) continue;
    live[static_cast<std::size_t>(instruction.flat_parameter)] = taken;
    elements += (taken ? 1 : -1) * use.flat_parameter(instruction.flat_parameter).elements;
    peak = std::max(peak, elements);
  }
  return peak;
}

Phase phase_of(const Instruction& compute) {
  if (compute.op == Op::Forward) return Phase::Forward;
  return compute.recompute ? Phase::Recompute : Phase::Backward;
}

const std::vector<int>& values_used(const Instruction& compute, const ParameterUse& use) {
  static const std::vector<int> none;
  if (compute.op == Op::BackwardWeight) return none;
  const bool runs_forward = compute.op == Op::Forward || compute.recompute;
  return runs_forward || use.backward_reads_values(compute.layer) ? use.of_layer(compute.layer) : none;
}

Program add_residency(const Program& program, const ParameterUse& use, const Lookahead& lookahead) {
  if (lookahead.resident) return program;
  Program computes = program;
  std::erase_if(computes, [](const Instruction& instruction) { return !is_compute(instruction.op); });
  std::vector<Program> gathers(computes.size());
  std::vector<Program> prefetches(computes.size());
  std::vector<Program> releases(computes.size());
  for (const Stay& stay : Residency(computes, use, lookahead).plan()) {
    const Instruction& first_user = computes[stay.begin];
    if (stay.prefetch < stay.begin)
      prefetches[stay.prefetch].push_back(about(Op::Prefetch, stay.flat_parameter, first_user));
    gathers[stay.begin].push_back(about(Op::Gather, stay.flat_parameter, first_user));
    releases[stay.end].push_back(about(Op::Release, stay.flat_parameter, computes[stay.end]));
  }
  const auto append = [](const Program& from, Program& result) {
    result.insert(result.end(), from.begin(), from.end());
  };
  return weave(
      program,
      [&](std::size_t position, const Instruction&, Program& result) {
        append(gathers[position], result);
        append(prefetches[position], result);
      },
      [&](std::size_t position, const Instruction&, Program& result) { append(releases[position], result); });
}

}  // namespace strata::program
