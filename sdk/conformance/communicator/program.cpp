#include "conformance/communicator/program.hpp"

#include <strata/format.hpp>

#include <algorithm>
#include <functional>
#include <numeric>

#include "conformance/runner/case.hpp"

namespace strata::conformance::communicator_checks {

namespace {

DrawnOperation draw_operation(Draws& draws, const Program& program, std::int64_t most) {
  static const std::vector<Collective> all{Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter,
                                           Collective::Broadcast, Collective::Reduce,    Collective::AllToAll,
                                           Collective::Send,      Collective::Send,      Collective::Barrier};
  DrawnOperation one;
  one.collective = draws.pick(all);
  one.group = static_cast<std::size_t>(draws.between(0, std::ssize(program.groups) - 1));
  const auto last = static_cast<std::int64_t>(program.groups[one.group].size()) - 1;
  const bool reduces = one.collective == Collective::AllReduce || one.collective == Collective::ReduceScatter ||
                       one.collective == Collective::Reduce;
  const std::vector<at::ScalarType> dtypes{at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kByte};
  one.dtype = dtypes[static_cast<std::size_t>(draws.between(0, reduces ? 4 : 5))];
  if (reduces && draws.chance(4)) one.reduction = ReduceOperation::Max;
  one.elements = draws.size(most);
  one.root = static_cast<int>(draws.between(0, last));
  one.to = static_cast<int>((one.root + draws.between(1, last)) % (last + 1));
  one.is_in_place =
      draws.chance(3) && (one.collective == Collective::AllGather || one.collective == Collective::ReduceScatter);
  return one;
}

}  // namespace

bool takes_whole(Collective collective) {
  return collective == Collective::ReduceScatter || collective == Collective::AllToAll;
}

std::string text_of(const DrawnOperation& operation, const std::vector<int>& members) {
  std::string text = to_string(operation.collective);
  if (operation.collective == Collective::Barrier) return text;
  text += " of " + std::to_string(operation.elements) + " " + c10::toString(operation.dtype) +
          (takes_whole(operation.collective) || operation.collective == Collective::AllGather ? " a rank" : "") +
          " on " + count(static_cast<int>(members.size()), "rank");
  if (operation.collective == Collective::Send) text += format(" from {} to {}", operation.root, operation.to);
  if (operation.collective == Collective::Broadcast || operation.collective == Collective::Reduce)
    text += format(", root {}", operation.root);
  if (operation.reduction == ReduceOperation::Max) text += ", maximum";
  return text + (operation.is_in_place ? ", in place" : "");
}

Program draw_program(Draws& draws, int ranks, std::string& said) {
  Program program;
  std::vector<int> world(static_cast<std::size_t>(ranks));
  std::iota(world.begin(), world.end(), 0);
  program.groups.push_back(world);
  for (auto more = draws.between(0, 3); more > 0; --more) {
    std::vector<int> members = world;
    for (std::size_t i = members.size(); i-- > 1;)
      std::swap(members[i], members[i - static_cast<std::size_t>(draws.between(0, static_cast<std::int64_t>(i)))]);
    members.resize(static_cast<std::size_t>(draws.between(2, ranks)));
    program.groups.push_back(members);
    said += ", a group of";
    for (const int rank : members) said += format(" {}", rank);
  }
  const std::int64_t most = draws.chance(6) ? (std::int64_t{1} << 18) / ranks : std::int64_t{1} << 12;
  for (auto rounds = draws.between(1, most > 4096 ? 2 : 4); rounds > 0; --rounds) {
    std::vector<DrawnOperation>& round = program.rounds.emplace_back();
    const std::int64_t longest = most > 4096 ? 3 : draws.chance(5) ? 60 : 8;
    for (auto operations = draws.between(1, longest); operations > 0; --operations) {
      DrawnOperation one = draw_operation(draws, program, most);
      if (one.collective == Collective::Barrier) one.group = 0;
      const bool ends_it = one.collective == Collective::Barrier;  // it blocks the host
      const bool repeats = one.collective == Collective::AllReduce && draws.chance(3);
      if (repeats) one.elements *= std::ssize(program.groups[one.group]);
      said += std::string(round.empty() ? program.rounds.size() == 1 ? ": " : "; then " : ", ") +
              text_of(one, program.groups[one.group]);
      round.push_back(std::move(one));
      if (repeats) {
        DrawnOperation& again = round.emplace_back(round.back());
        again.collective = Collective::ReduceScatter;
        again.elements /= std::ssize(program.groups[again.group]);
        again.is_again = true;
        said += ", its reduce_scatter";
      }
      if (ends_it) break;
    }
    // A rank starts the operations of each group in their order, those of several groups as it likes, and waits as it
    // likes.
    auto& started = program.started.emplace_back(static_cast<std::size_t>(ranks));
    auto& waited = program.waited.emplace_back(static_cast<std::size_t>(ranks));
    auto& late = program.late_ms.emplace_back();
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<std::size_t>& order = started[static_cast<std::size_t>(rank)];
      order.resize(round.size());
      std::iota(order.begin(), order.end(), 0);
      if (draws.chance(3) && round.back().collective != Collective::Barrier)
        std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return round[i].group; });
      waited[static_cast<std::size_t>(rank)] = order;
      if (draws.chance(2)) std::ranges::reverse(waited[static_cast<std::size_t>(rank)]);
      late.push_back(draws.chance(8) ? static_cast<int>(draws.between(1, 10)) : 0);
    }
  }
  return program;
}

void prepare(Program& program) {
  std::uint64_t seed = 0;
  for (std::vector<DrawnOperation>& round : program.rounds)
    for (DrawnOperation& one : round) {
      const auto size = static_cast<std::int64_t>(program.groups[one.group].size());
      const std::int64_t input = takes_whole(one.collective) ? one.elements * size : one.elements;
      const bool gets_whole = one.collective == Collective::AllGather || one.collective == Collective::AllToAll;
      if (!one.is_again) ++seed;
      for (int rank = 0; rank < size; ++rank) {
        one.inputs.push_back(drawn_values(seed, rank, input, one.dtype));
        const bool in_whole = gets_whole || (one.is_in_place && takes_whole(one.collective));
        const at::Tensor& output =
            one.outputs.emplace_back(in_whole ? one.elements * size : one.elements, one.dtype).tensor();
        const bool is_both = one.collective == Collective::AllReduce || one.collective == Collective::Reduce ||
                             (one.collective == Collective::Broadcast && rank == one.root) ||
                             (one.is_in_place && one.collective == Collective::ReduceScatter);
        if (is_both) output.copy_(one.inputs.back());
        if (one.is_in_place && gets_whole) output.narrow(0, rank * one.elements, one.elements).copy_(one.inputs.back());
        one.brought.push_back(one.inputs.back().clone());
      }
    }
}

}  // namespace strata::conformance::communicator_checks
