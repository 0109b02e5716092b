// Carries out a program, one instruction after the other. Makes no scheduling decisions: the program fixes the order.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "program/instruction.hpp"
#include "stage/stage.hpp"
#include "step/activations.hpp"

namespace strata::step {

struct StepInput {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  std::vector<MicroBatch> batches;  // this rank's micro-batches
  std::int64_t tokens = 0;          // tokens of the global batch, including ignored targets
  std::int64_t valid_tokens = 0;    // this rank's tokens that count; the loss is a mean over the run's sum of them
  double learning_rate = 0.0;
  std::optional<double> momentum;       // momentum of this update, if the schedule has one
  double clip = 0.0;                    // maximum norm; 0: no clipping
  std::int64_t updates = 0;             // number of optimizer updates before this step
  std::function<int()> stop_requested;  // called at the norm: the signal that stops this rank, or 0; or empty
};

// Times of a step's parts, in seconds on the host's clock; the rest is bookkeeping.
struct StepTimes {
  double forward = 0.0;
  double backward = 0.0;
  double gather = 0.0;        // waits for parameters
  double reduce = 0.0;        // starts of and waits for gradient sums
  double pipeline = 0.0;      // sends and receives between stages
  double optimizer = 0.0;     // norm, update, publish
  double offload = 0.0;       // waits for buffers that move between memory tiers
  stage::TensorTimes tensor;  // collectives within forward and backward
};

struct StepOutcome : stage::ForwardFigures {
  // Norm of the mean loss's gradient, before clipping. The root mean square over the step's updates if stages update
  // within the step, over the replica groups with local training.
  double gradient_norm = 0.0;
  double clip_factor = 1.0;  // mean over replica groups
  bool finite = true;        // false: the gradient is not finite and updates nothing
  bool made_again = false;   // a speculative update and its look-ahead ran again: the norm clipped or skipped
  int stopped_by = 0;        // signal that stops any rank, or 0
  StepTimes times;
};

// Times of an instruction in nanoseconds of std::chrono::steady_clock. It ends when its call returns, on a GPU before
// its kernels end.
struct InstructionTimes {
  std::int64_t step = 0;  // StepInput::step of the step that the instruction belongs to
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t waited = 0;             // time waited for data of another stage
  std::int64_t waited_for_tensor = 0;  // time waited for collectives of the tensor group, without `waited`
};

class Executor {
 public:
  explicit Executor(stage::Stage& stage) : stage_(stage) {}

  // Runs one training step. [collective] over the run. On the CPU blocks until done; elsewhere synchronises the host
  // once, at the end. Throws UserError if no target of the global batch counts; the gradient then updates nothing.
  // `next`: the following step, whose first forwards a speculative program may run ahead; null: it does not. Its
  // scalars may be incomplete.
  StepOutcome run(const program::Program& program, const StepInput& input, const StepInput* next = nullptr);
  // Discards look-ahead forwards of the next step, which then run again. [collective] over the run.
  void forget_ahead();

  // True if the last step's deferred update is pending; make_pending_updates() makes it. [collective] over the
  // run
  bool has_pending_update() const { return std::holds_alternative<PendingUpdates>(left_); }
  void make_pending_updates(const program::Program& updates);

  // Waits for the end of a publish(). If the values of a flat parameter stay gathered, publish() may still be sending
  // them and hold memory, so it must end before they are written again. [collective] over the stage
  void finish_publish(int flat_parameter);

  // Returns, after a step whose gradient was not finite, the names of all parameters of the model with such gradients,
  // in the order of backward, the last layer's first. Equal on all ranks. [collective] over the run.
  std::vector<std::string> non_finite_parameters();

  // Calls `see` in every later step with the gradient before clipping: elements [begin, ...) of a parameter, disjoint
  // and complete over the ranks; with local training, of the first replica group. After the step, loss_scale() is its
  // factor relative to the mean loss's gradient.
  using SeeGradient = std::function<void(const std::string& parameter, std::int64_t begin, const at::Tensor& gradient)>;
  void show_gradients(SeeGradient see) { see_gradient_ = std::move(see); }
  double loss_scale() const { return loss_scale_; }

  // Calls `see` for each instruction in every later run(); empty: stops. Discarded look-ahead instructions are reported
  // again when they are re-run.
  using SeeInstruction = std::function<void(const program::Instruction& instruction, const InstructionTimes& times)>;
  void show_instructions(SeeInstruction see) { see_instruction_ = std::move(see); }

  // Runs a program of forwards, without gradients; an input is freed as soon as its layer has read it. Adds the figures
  // of this rank's micro-batches to `sums`. [collective] over the run.
  void evaluate(const program::Program& forwards, const StepInput& input, const stage::ForwardSums& sums);

  // Runs a training step in parts, so that the caller can act between instructions: begin, every instruction in order,
  // finish.
  void begin(const StepInput& input);
  void carry_out(const program::Instruction& instruction, const StepInput& input);
  StepOutcome finish(const StepInput& input);
  // Returns the loss sum of the last forward through the last layer; undefined on stages without that layer.
  const at::Tensor& micro_batch_loss() const { return micro_batch_loss_; }
  // Takes the last layer's logits for the asked_rows of the last micro-batch; undefined if it returned none, on stages
  // without that layer, and in a second call.
  at::Tensor take_logits() { return std::exchange(logits_, at::Tensor()); }

 private:
  using Instructions = std::span<const program::Instruction>;
  void carry_out_all(Instructions instructions, const StepInput& input);
  void carry_out_and_show(const program::Instruction& instruction, const StepInput& input);
  bool take_ahead(const StepInput& input);
  void run_ahead(Instructions instructions, const StepInput& next);
  void move(const program::Instruction& instruction);
  void forward(const program::Instruction& instruction, const StepInput& input);
  void backward(const program::Instruction& instruction, const StepInput& input);
  void backward_of_weights(const program::Instruction& instruction);
  void send(const program::Instruction& instruction);
  void receive(const program::Instruction& instruction);
  void borrow_gradient(const program::Instruction& instruction);
  void reduce(const program::Instruction& instruction);
  void finish_gradient(int flat_parameter);
  void sum_replicas(int flat_parameter);
  void square_gradient(int flat_parameter);
  void start_norm(const StepInput& input, bool assumes);
  void start_maxima();
  void finish_maxima();
  void norm(const StepInput& input);
  void save_or_restore(const program::Instruction& instruction);
  void measure(const program::Instruction& instruction);
  void sum_statistics(int round);
  void update(const program::Instruction& instruction);
  void synchronize(const program::Instruction& instruction, const StepInput& input);
  int groups_of_norm() const { return stage_.updates.local() ? stage_.updates.local()->groups() : 1; }
  void tell_of_groups(const StepInput& input, const double* totals, StepOutcome& outcome) const;
  void keep(int flat_parameter);
  void stash(const program::Instruction& instruction);
  void bind(const program::Instruction& instruction);
  void drop(const program::Instruction& instruction);
  StepScalars scalars_of(const program::Instruction& instruction) const;

  void keep_inputs(const program::Instruction& forward, Passage& passage);
  void bring_inputs(const program::Instruction& backward, Passage& passage);
  void check_linear_only(const stage::StageLayer& layer, bool splits) const;
  void keep_for_weights(ActivationStore::Key key, LeftGradients left);
  void check_figures(const stage::StageLayer& layer, const LayerOutput& output) const;
  void count(const stage::StageLayer& layer, const LayerOutput& output) const;
  LayerOutput compute(stage::StageLayer& layer, const Tensors& input, int micro_batch, const StepInput& input_of_step);
  FlatParameter& flat(int id) { return stage_.values.flat(id); }
  // Calls the partitioner for a flat parameter; errors name `function`.
  template <typename Work>
  void partition(const char* function, const FlatParameter& parameter, Work&& work);

  // Updates by the last Norm, for a program that makes them in the next step.
  struct PendingUpdates {};
  // Look-ahead forwards of the next step, whose activations are in activations_.
  struct Ahead {
    std::int64_t step = 0;
    double loss_scale = 1.0;
    stage::ForwardSums sums;
  };
  // What the norm is: not known; assumed neither to clip nor to skip, until Norm; known; known, and not as assumed.
  enum class NormState { Unknown, Assumed, Known, AssumedWrongly };

  stage::Stage& stage_;
  ActivationStore activations_;
  std::variant<std::monostate, PendingUpdates, Ahead> left_;  // left by the last step for the next one
  stage::GradientPath* gradients_ = nullptr;                  // path of this step's gradients
  double loss_scale_ = 1.0;  // after the step: factor of gradients relative to the mean loss's
  at::Tensor loss_seed_;     // undefined when evaluating
  stage::ForwardSums sums_;  // of this rank's forwards

  at::Tensor micro_batch_loss_;
  at::Tensor logits_;
  at::Tensor squares_;       // fp64 by flat parameter: this rank's parts of the squared norm
  at::Tensor totals_;        // fp64 over the run: squared norms of the replica groups, ForwardSums::sums, stop_counts;
                             // with several groups, the number of tokens that count in each
  Pending norm_;             // pending sum of the totals, between StartNorm and Norm
  at::Tensor measurements_;  // PrecisionPolicy::maxima; undefined: none
  at::Tensor maxima_;        // fp32 over the run: ForwardSums::maxima, measurements_
  Pending maxima_over_ranks_;
  NormState norm_state_ = NormState::Unknown;
  SeeGradient see_gradient_;  // empty: not observed
  SeeInstruction see_instruction_;
  std::map<std::pair<int, int>, Slot*> copies_;  // copies by flat parameter and version
  std::map<int, at::Tensor> newest_;             // own memory of flat parameters to which a copy is bound
  int measured_round_ = -1;
  StepTimes times_;
};

}  // namespace strata::step
