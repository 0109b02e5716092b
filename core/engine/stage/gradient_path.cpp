#include "stage/gradient_path.hpp"

namespace strata::stage {

std::vector<FinalGradient> SummedGradients::final_gradients(const FlatParameter& parameter, bool kept) const {
  std::vector<FinalGradient> found;
  for (const state::OptimizerState::Entry* const entry : state_.entries_of(parameter.info().id)) {
    const BufferRange& all = kept && entry->kept.buffer != nullptr ? entry->kept : entry->gradient;
    found.push_back({entry->span, entry->piece.info.begin, all, entry->of_group(all)});
  }
  return found;
}

void SummedGradients::update(const FlatParameter& parameter, std::span<Piece* const> pieces, int round,
                             const StepScalars& scalars) {
  if (pieces.empty()) return;
  const auto step = [&] { calls_.step(parameter.info().name, pieces, round, scalars); };
  if (copies_ == nullptr) return step();
  // With apply 0 the optimizer writes nothing, and the host's copies would be another flat parameter's.
  if (scalars.apply.const_data_ptr<float>()[0] != 0.0F) copies_->step(pieces, step);
}

OwnGradients::OwnGradients(const state::Layout& layout, const std::map<int, Group*>& holders,
                           ExchangingOptimizer& optimizer, OptimizerCalls& calls)
    : holders_(holders), optimizer_(optimizer), calls_(calls) {
  for (const auto& flat : layout.flat) {
    if (!flat->info().trainable) continue;
    std::vector<Piece>& pieces = own_[flat->info().id].pieces;
    for (const ParameterSpan& span : flat->info().parameters)
      pieces.emplace_back().info = state::piece_info(span, 0, span.elements());
  }
}

std::vector<std::vector<PieceInfo>> OwnGradients::parameters() const {
  std::vector<std::vector<PieceInfo>> whole;
  for (const auto& [flat, own] : own_) {
    std::vector<PieceInfo>& call = whole.emplace_back();
    for (const Piece& piece : own.pieces) call.push_back(piece.info);
  }
  return whole;
}

void OwnGradients::lent(const FlatParameter& parameter, const at::Tensor& buffer) {
  Own& own = own_.at(parameter.info().id);
  own.lent.bring(buffer);
  const std::vector<ParameterSpan>& spans = parameter.info().parameters;
  for (std::size_t i = 0; i < spans.size(); ++i)
    own.pieces[i].gradient = buffer.narrow(0, spans[i].offset, spans[i].elements());
}

// Every data-parallel rank counts all of its own gradient, a term of the sum: of one that is not finite all must know.
// What several tensor-parallel ranks or stages hold alike is one's to count.
std::vector<FinalGradient> OwnGradients::final_gradients(const FlatParameter& parameter, bool) const {
  const int id = parameter.info().id;
  const auto holders = holders_.find(id);
  const bool is_first_holder = holders == holders_.end() || holders->second->rank() == 0;
  std::vector<FinalGradient> found;
  Buffer& lent = own_.at(id).lent;
  for (const ParameterSpan& span : parameter.info().parameters) {
    const bool counts = is_first_holder && (span.cut().parts() > 1 || span.tensor_rank == 0);
    found.push_back(
        {&span, 0, {&lent, span.offset, span.elements()}, {&lent, span.offset, counts ? span.elements() : 0}});
  }
  return found;
}

void OwnGradients::update(const FlatParameter& parameter, std::span<Piece* const> pieces, int,
                          const StepScalars& scalars) {
  calls_.exchange(parameter.info().name, optimizer_, pieces, own_.at(parameter.info().id).pieces, scalars);
}

}  // namespace strata::stage
