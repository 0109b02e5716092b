#include "partitioner/ranks.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>

#include <cstdio>
#include <optional>

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

int run_layouts(Subject& subject, const std::vector<fakes::OptionTexts>& settings, const std::vector<int>& ranks,
                const std::function<void(const Layout&)>& work) {
  int taken = 0;
  for (const fakes::OptionTexts& options : settings) {
    for (const int count : ranks) {
      const Layout layout{options, count};
      try {
        if (!takes(subject, layout)) continue;
        ++taken;
        work(layout);
      } catch (const Skip&) {
        throw;
      } catch (const std::exception& error) {
        throw Failure("on " + to_string(layout) + ": " + error.what());
      }
    }
  }
  return taken;
}

void require_some(int taken, const std::vector<int>& ranks) {
  require(taken > 0, "the plugin refuses every setting on " + std::to_string(ranks.front()) + " to " +
                         std::to_string(ranks.back()) + " ranks");
}

}  // namespace

void for_each_layout(Subject& subject, const std::vector<int>& ranks, const std::function<void(const Layout&)>& work) {
  require_some(run_layouts(subject, subject.settings(), ranks, work), ranks);
}

int for_layouts_of(Subject& subject, const fakes::OptionTexts& setting, const std::vector<int>& ranks,
                   const std::function<void(const Layout&)>& work) {
  return run_layouts(subject, {setting}, ranks, work);
}

void for_default_layouts(Subject& subject, const std::vector<int>& ranks,
                         const std::function<void(const Layout&)>& work) {
  if (run_layouts(subject, {{}}, ranks, work) == 0) for_each_layout(subject, ranks, work);
}

void on_ranks_of(Subject& subject, const Layout& layout, const std::vector<FlatParameterInfo>& infos,
                 const std::function<void(PartitionRank&, int)>& body, fakes::Movement movement) {
  const PartitionGroups groups(subject.library(), layout.options, layout.ranks, movement);
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

FlatParameterInfo flat_parameter_of(int id, const std::vector<std::vector<std::int64_t>>& shapes, const DTypes& dtypes,
                                    bool trainable) {
  FlatParameterInfo info = fakes::flat_parameter_info(id, 1, dtypes, trainable);
  info.elements = 0;
  info.parameters.clear();
  for (const std::vector<std::int64_t>& shape : shapes) {
    const ParameterInfo parameter{
        info.name + " parameter " + std::to_string(info.parameters.size()), shape, {}, trainable, ""};
    info.parameters.push_back({parameter, info.elements});
    info.elements += parameter.elements();
  }
  return info;
}

std::vector<FlatParameterInfo> parameters_of_all_kinds(const DTypes& dtypes) {
  std::vector<FlatParameterInfo> infos = fakes::odd_flat_parameters(dtypes);
  infos.push_back(flat_parameter_of(static_cast<int>(infos.size()), {{3, 5}, {7}, {1}, {2, 2, 2}, {29}}, dtypes));
  return infos;
}

std::vector<DTypes> some_dtypes() {
  return {{},
          {at::kBFloat16, at::kFloat, at::kFloat, at::kFloat},
          {at::kHalf, at::kFloat, at::kHalf, at::kFloat},
          {at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat}};
}

at::Tensor parameter_values(int id, double offset, std::int64_t begin, std::int64_t end) {
  return at::arange(begin, end, at::kDouble).remainder(101).add(offset + 3.0 * id);
}

at::Tensor gradient_values(int rank, int micro_batch, std::int64_t begin, std::int64_t end) {
  return at::arange(begin, end, at::kDouble).remainder(7).add(1).mul(rank + 1).add(micro_batch);
}

double tolerance_of(Subject& subject, const fakes::OptionTexts& options) {
  const plugin_host::Equivalence equivalence =
      plugin_host::equivalence_of(subject.manifest(), subject.library().values(options));
  if (equivalence.kind == plugin_host::Equivalence::Kind::Simulated)
    throw Skip("the plugin promises the results of " + equivalence.reference + ", which the kit cannot run");
  return equivalence.kind == plugin_host::Equivalence::Kind::Tolerance ? equivalence.bound : 0.0;
}

void publish_values(PartitionRank& rank, double offset) {
  for (const Slice& slice : rank.owned())
    rank.parameter(slice).copy_(parameter_values(slice.flat->info().id, offset, slice.begin, slice.end));
  for (FlatParameter* flat : rank.flat_parameters()) rank.partitioner().publish(*flat);
}

namespace {

// Where the first element lies that differs by more than `tolerance` of the largest expected; nothing when all are near
// enough.
std::optional<std::int64_t> first_wrong(const at::Tensor& found, const at::Tensor& expected, double tolerance) {
  const at::Tensor f = found.detach().to(at::kDouble).reshape({-1}), e = expected.reshape({-1});
  const double allowed = tolerance == 0.0 ? 0.0 : tolerance * e.abs().max().item<double>();
  const at::Tensor wrong = (f - e).abs().le(allowed).logical_not();  // NaN is wrong
  if (wrong.any().item<bool>()) return wrong.to(at::kInt).argmax().item<std::int64_t>();
  return std::nullopt;
}

std::string number(const at::Tensor& tensor, std::int64_t index) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", tensor.detach().to(at::kDouble).reshape({-1})[index].item<double>());
  return text;
}

}  // namespace

void require_values(PartitionRank& rank, FlatParameter& flat, double offset, Phase phase, double tolerance) {
  Partitioner& partitioner = rank.partitioner();
  const bool resident = partitioner.lookahead().resident;
  const FlatParameterInfo& info = flat.info();
  if (!resident) partitioner.gather(flat, phase);
  require(flat.residence() == Residence::Gathered,
          info.name + " is " + to_string(flat.residence()) +
              (resident ? ", but lookahead() says that parameters are resident" : " after gather()"));
  for (std::size_t i = 0; i < info.parameters.size(); ++i) {
    const ParameterSpan& span = info.parameters[i];
    const at::Tensor expected = parameter_values(info.id, offset, span.offset, span.offset + span.info.elements())
                                    .to(info.dtypes.parameter)
                                    .to(at::kDouble);
    const auto wrong = first_wrong(flat.parameters()[i], expected, tolerance);
    if (!wrong) continue;
    const std::int64_t element = span.offset + *wrong;
    throw Failure("element " + std::to_string(element) + " of " + std::to_string(info.elements) + " of " + info.name +
                  " (" + span.info.name + ") reads " + number(flat.parameters()[i], *wrong) + " after gather(), but " +
                  number(expected, *wrong) + " was published");
  }
  if (!resident) partitioner.release(flat, phase);
}

void run_and_check_gradients(PartitionRank& rank, int own_rank, int ranks, int micro_batches, double tolerance) {
  fakes::run_step(rank, micro_batches, [&](FlatParameter& flat, const at::Tensor& buffer, int micro_batch) {
    buffer.add_(gradient_values(own_rank, micro_batch, 0, flat.elements()).to(buffer.scalar_type()));
  });
  for (const Slice& slice : rank.owned()) {
    if (!slice.flat->info().trainable) continue;
    at::Tensor expected = at::zeros({slice.end - slice.begin}, at::TensorOptions().dtype(at::kDouble));
    for (int other = 0; other < ranks; ++other)
      for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
        expected.add_(gradient_values(other, micro_batch, slice.begin, slice.end));
    const auto wrong = first_wrong(rank.gradient(slice), expected, tolerance);
    if (!wrong) continue;
    throw Failure("rank " + std::to_string(own_rank) + " has " + number(rank.gradient(slice), *wrong) +
                  " as the gradient of element " + std::to_string(slice.begin + *wrong) + " of " +
                  slice.flat->info().name + " after finish_gradient(); the sum over " + std::to_string(ranks) +
                  " ranks and " + std::to_string(micro_batches) + " micro-batches is " + number(expected, *wrong));
  }
}

}  // namespace strata::conformance
