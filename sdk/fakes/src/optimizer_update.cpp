#include <ATen/ops/zeros.h>
#include <strata/fakes/optimizer_update.hpp>

#include <map>
#include <string>

namespace strata::fakes {

void update(std::span<Optimizer* const> instances, std::span<Piece> pieces, const StepScalars& scalars) {
  for (int round = 0; round < instances.front()->rounds(); ++round) {
    std::map<std::string, at::Tensor> sums;  // by parameter
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      Optimizer& optimizer = *instances[i % instances.size()];
      const std::int64_t count = optimizer.sums(pieces[i].info, round);
      if (count == 0) continue;
      at::Tensor& sum = sums[pieces[i].info.parameter];
      if (!sum.defined())
        sum = at::zeros({count}, at::TensorOptions().dtype(at::kDouble).device(pieces[i].gradient.device()));
      pieces[i].sums = sum;
      optimizer.measure(pieces[i], round, scalars);
    }
    for (std::size_t rank = 0; rank < instances.size(); ++rank) {
      std::vector<Piece*> own;
      for (std::size_t i = rank; i < pieces.size(); i += instances.size()) own.push_back(&pieces[i]);
      if (!own.empty()) instances[rank]->step(own, round, scalars);
    }
    for (Piece& piece : pieces) piece.sums = at::Tensor();
  }
}

void update(Optimizer& optimizer, Piece& piece, const StepScalars& scalars) {
  Optimizer* const instance = &optimizer;
  update({&instance, 1}, {&piece, 1}, scalars);
}

}  // namespace strata::fakes
