#include "partitioner/ranks.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <strata/error.hpp>

namespace strata::conformance {

using fakes::PartitionGroups;
using fakes::PartitionRank;

std::string to_string(const Layout& layout) {
  return std::to_string(layout.ranks) + (layout.ranks == 1 ? " rank" : " ranks") + " with " + to_string(layout.options);
}

namespace {

// Whether the plugin takes it: neither its constructor nor groups() throws UserError.
bool takes(Subject& subject, const Layout& layout) {
  try {
    const PartitionGroups groups(subject.library(), layout.options, layout.ranks);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

void for_each_layout(Subject& subject, const std::vector<int>& ranks, const std::function<void(const Layout&)>& work) {
  int taken = 0;
  for (const fakes::OptionTexts& options : subject.settings()) {
    for (const int count : ranks) {
      const Layout layout{options, count};
      try {
        if (!takes(subject, layout)) continue;
        ++taken;
        work(layout);
      } catch (const std::exception& error) {
        throw Failure("on " + to_string(layout) + ": " + error.what());
      }
    }
  }
  require(taken > 0, "the plugin refuses every setting on " + std::to_string(ranks.front()) + " to " +
                         std::to_string(ranks.back()) + " ranks");
}

void on_ranks_of(Subject& subject, const Layout& layout, const std::vector<FlatParameterInfo>& infos,
                 const std::function<void(PartitionRank&, int)>& body) {
  const PartitionGroups groups(subject.library(), layout.options, layout.ranks);
  const fakes::PluginLibrary& library = subject.library();
  fakes::on_ranks(layout.ranks, [&](CheckedGroup& world) {
    try {
      PartitionRank rank(library, layout.options, groups, world.rank(), infos);
      try {
        body(rank, world.rank());
      } catch (...) {
        groups.give_up();  // before this rank's own shutdown, which may wait
        throw;
      }
    } catch (...) {
      groups.give_up();
      throw;
    }
  });
}

namespace {

// Small whole numbers, exact in every format.
at::Tensor values_of(int id, double offset, std::int64_t begin, std::int64_t end) {
  return at::arange(begin, end, at::kDouble).remainder(101).add(offset + 3.0 * id);
}

}  // namespace

void write_values(PartitionRank& rank, double offset) {
  for (const Slice& slice : rank.owned())
    rank.parameter(slice).copy_(values_of(slice.flat->info().id, offset, slice.begin, slice.end));
}

void publish_values(PartitionRank& rank, double offset) {
  write_values(rank, offset);
  for (FlatParameter* flat : rank.flat_parameters()) rank.partitioner().publish(*flat);
}

void require_values(PartitionRank& rank, FlatParameter& flat, double offset, Phase phase, double tolerance) {
  Partitioner& partitioner = rank.partitioner();
  const bool resident = partitioner.lookahead().resident;
  if (!resident) partitioner.gather(flat, phase);
  const at::Tensor found = flat.parameters().front().detach().to(at::kDouble),
                   expected = values_of(flat.info().id, offset, 0, flat.elements());
  require(found.sub(expected).abs().le(tolerance * (101.0 + offset)).all().item<bool>(),
          flat.info().name + " does not have the published values after gather()");
  if (!resident) partitioner.release(flat, phase);
}

}  // namespace strata::conformance
