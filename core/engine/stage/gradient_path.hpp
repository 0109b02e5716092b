// Where the gradients of a step end, and what the optimizer makes of them there.
#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/own_exchange.hpp>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "stage/optimizer_calls.hpp"
#include "state/host_copies.hpp"
#include "state/layout.hpp"
#include "state/optimizer_state.hpp"

namespace strata::stage {

// A final gradient: elements [begin, ...) of this rank's part of a parameter.
struct FinalGradient {
  const ParameterSpan* span;
  std::int64_t begin;
  BufferRange all;
  BufferRange counted;  // subrange that this rank counts in the norm of its replica group
};

class GradientPath {
 public:
  virtual ~GradientPath() = default;
  // Takes the buffer that the partitioner lent for the next backwards of a flat parameter.
  virtual void lent(const FlatParameter& parameter, const at::Tensor& buffer) = 0;
  // Returns what this rank has of a flat parameter's final gradient. `kept`: of the gradient that the step keeps for
  // the next step's update, if it keeps one.
  virtual std::vector<FinalGradient> final_gradients(const FlatParameter& parameter, bool kept = false) const = 0;
  // Has the optimizer update these pieces of a flat parameter. Adds the name of its call to errors.
  virtual void update(const FlatParameter& parameter, std::span<Piece* const> pieces, int round,
                      const StepScalars& scalars) = 0;
};

// Gradients are summed over the ranks, and each rank has the slices that it owns.
class SummedGradients final : public GradientPath {
 public:
  // `copies`: null if the optimizer updates on the device.
  SummedGradients(state::OptimizerState& state, state::HostCopies* copies, OptimizerCalls& calls)
      : state_(state), copies_(copies), calls_(calls) {}
  void lent(const FlatParameter&, const at::Tensor&) override {}
  std::vector<FinalGradient> final_gradients(const FlatParameter& parameter, bool kept) const override;
  void update(const FlatParameter& parameter, std::span<Piece* const> pieces, int round,
              const StepScalars& scalars) override;

 private:
  state::OptimizerState& state_;
  state::HostCopies* copies_;
  OptimizerCalls& calls_;
};

// Each rank has its own gradient of whole parameters, and the optimizer exchanges something else.
class OwnGradients final : public GradientPath {
 public:
  // `holders`: groups of the stages that hold a flat parameter too, by its id.
  OwnGradients(const state::Layout& layout, const std::map<int, Group*>& holders, ExchangingOptimizer& optimizer,
               OptimizerCalls& calls);
  // Returns the parameters of each trainable flat parameter, whole: see ExchangingOptimizer::connect().
  std::vector<std::vector<PieceInfo>> parameters() const;
  void lent(const FlatParameter& parameter, const at::Tensor& buffer) override;
  std::vector<FinalGradient> final_gradients(const FlatParameter& parameter, bool kept) const override;
  void update(const FlatParameter& parameter, std::span<Piece* const> pieces, int round,
              const StepScalars& scalars) override;

 private:
  // Gradient of one flat parameter.
  struct Own {
    Buffer lent{"a rank's own gradient"};  // buffer that the partitioner lent last
    std::vector<Piece> pieces;             // whole parameters: only info and gradient, a view of `lent`, are set
  };
  const std::map<int, Group*>& holders_;
  ExchangingOptimizer& optimizer_;
  OptimizerCalls& calls_;
  mutable std::map<int, Own> own_;  // by flat parameter
};

}  // namespace strata::stage
