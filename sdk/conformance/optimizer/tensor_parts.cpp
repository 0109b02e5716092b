#include <ATen/ops/zeros.h>
#include <strata/format.hpp>
#include <strata/parameter_cut.hpp>

#include "conformance/optimizer/checks.hpp"
#include "conformance/optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

constexpr int ranks = 2;

// Copies the elements of a rank's part out of the whole, or into it.
void copy_part(const ParameterCut& cut, int part, const at::Tensor& whole, const at::Tensor& of_part, bool out) {
  cut.for_each_run(part, 0, cut.elements(), [&](const ParameterCut::Run& run) {
    const at::Tensor here = whole.narrow(0, run.whole, run.elements);
    const at::Tensor there = of_part.narrow(0, run.in_part, run.elements);
    if (out)
      there.copy_(here);
    else
      here.copy_(there);
  });
}

// Three steps of a parameter split over two tensor-parallel ranks, compared with those of the whole.
void check_parts(Subject& subject, const fakes::OptionTexts& options, const ParameterInfo& info,
                 std::mt19937_64& random) {
  const ParameterCut cut(info, ranks);
  std::vector<fakes::LoadedPlugin<Optimizer>> loaded;
  for (int rank = 0; rank <= ranks; ++rank) loaded.push_back(subject.make<Optimizer>(options));
  Optimizer& first = *loaded[0];
  if (!cut.keeps_together(first.unit(PieceInfo::whole(info)))) return;  // refused in a run
  const ParameterTensors whole = make_parameter(first, info.name, info.shape, {}, random);
  std::vector<Optimizer*> instances;
  std::vector<Piece> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    instances.push_back(&*loaded[static_cast<std::size_t>(rank) + 1]);
    Piece& part = parts.emplace_back(whole.whole());
    part.info.end = cut.elements();
    part.info.places = cut.places(rank);
    for (at::Tensor* const tensor : {&part.master, &part.gradient, &part.parameter}) {
      if (!tensor->defined()) continue;
      const at::Tensor all = *tensor;
      *tensor = at::zeros({cut.elements()}, all.options());
      copy_part(cut, rank, all, *tensor, true);
    }
    part.state.clear();
    for (const StateTensor& state : first.state(part.info))
      part.state.push_back(at::zeros({state.elements(part.info)}, at::TensorOptions().dtype(state.dtype)));
  }
  for (int t = 0; t < 3; ++t) {
    whole.gradient.copy_(draw_gradient(whole.elements(), random));
    for (int rank = 0; rank < ranks; ++rank)
      copy_part(cut, rank, whole.gradient, parts[static_cast<std::size_t>(rank)].gradient, true);
    Piece all = whole.whole();
    fakes::update(first, all, scalars_of(0.01, t));
    fakes::update(instances, parts, scalars_of(0.01, t));
    ParameterTensors together = whole.clone();
    for (int rank = 0; rank < ranks; ++rank)
      copy_part(cut, rank, together.master, parts[static_cast<std::size_t>(rank)].master, false);
    for (std::size_t i = 0; i < together.state.size(); ++i)
      if (together.states[i].whole > 0) together.state[i].copy_(parts.back().state[i]);
    together.copy = whole.copy;
    const auto found = together.written(), wanted = whole.written();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::string differs = difference(found[i].second, wanted[i].second, true);
      require(differs.empty(), format("step {} of a parameter that two ranks share, cut along dimension {}: of the {} "
                                      "{}, which it is where one has all{}; a part's piece counts elements in the "
                                      "part, and PieceInfo::places says where they lie in the parameter",
                                      t + 1, info.split.dimension, wanted[i].first, differs, with_options(options)));
    }
  }
}

}  // namespace

void tensor_parts(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.tensor_parts");
  for (const fakes::OptionTexts& options : settings_of(subject))
    with_optimizer(subject, options, [&](Optimizer& /*optimizer*/) {
      for (const Split& split : {Split{.dimension = 0}, Split{.dimension = 0, .blocks = 3}, Split{.dimension = 1}}) {
        ParameterInfo info;
        info.name = "layer.weight";
        info.shape = {36, 38};
        info.linear_only = true;
        info.split = split;
        check_parts(subject, options, info, random);
      }
    });
}

}  // namespace strata::conformance::optimizer_checks
