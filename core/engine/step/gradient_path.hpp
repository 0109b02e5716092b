// Where the gradients of a step end, and what the optimizer makes of them there.
#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/own_exchange.hpp>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "step/stage.hpp"

namespace strata::runtime {

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
  explicit SummedGradients(const StageState& stage) : stage_(stage) {}
  void lent(const FlatParameter&, const at::Tensor&) override {}
  std::vector<FinalGradient> final_gradients(const FlatParameter& parameter, bool kept) const override;
  void update(const FlatParameter& parameter, std::span<Piece* const> pieces, int round,
              const StepScalars& scalars) override;

 private:
  const StageState& stage_;
};

// Each rank has its own gradient of whole parameters, and the optimizer exchanges something else.
class OwnGradients final : public GradientPath {
 public:
  OwnGradients(const StageState& stage, ExchangingOptimizer& optimizer);
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
  const StageState& stage_;
  ExchangingOptimizer& optimizer_;
  mutable std::map<int, Own> own_;  // by flat parameter
};

}  // namespace strata::runtime
