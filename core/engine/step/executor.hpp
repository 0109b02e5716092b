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
#include <vector>

#include "program/instruction.hpp"
#include "step/activations.hpp"
#include "step/loss_sums.hpp"
#include "step/stage.hpp"

namespace strata::runtime {

struct StepInput {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  std::vector<MicroBatch> batches;  // this rank's, by micro-batch
  std::int64_t tokens = 0;          // of the global batch, those with ignored targets too
  std::int64_t valid_tokens = 0;    // this rank's share of those that count; over the run's sum the loss is a mean
  double learning_rate = 0.0;
  std::optional<double> momentum;       // of this update, where the schedule gives one
  double clip = 0.0;                    // largest norm; 0: no clipping
  std::int64_t updates = 0;             // optimizer updates made before this step
  std::function<int()> stop_requested;  // asked at the norm: the signal by which this rank is to stop, or 0; or empty
};

// Where a step's time went, in seconds on the host's clock; what is not listed is bookkeeping.
struct StepTimes {
  double forward = 0.0;
  double backward = 0.0;
  double gather = 0.0;     // waiting for parameters
  double reduce = 0.0;     // starting and waiting for gradient sums
  double pipeline = 0.0;   // sends and receives between stages
  double optimizer = 0.0;  // norm, update, publish
  double offload = 0.0;    // waiting for buffers that come from another memory tier or go there
  TensorTimes tensor;      // of forward and backward
};

struct StepOutcome : MeanLosses {
  // Of the mean loss's gradient, before clipping. Where stages update within the step, the root mean square over the
  // step's updates; where replica groups train by themselves, over these.
  double gradient_norm = 0.0;
  double clip_factor = 1.0;  // mean over replica groups
  bool finite = true;        // of the gradient; when false it updates nothing
  bool made_again = false;   // a speculative update and what followed it, because the norm clipped or skipped
  int stopped_by = 0;        // the signal by which any rank was asked to stop, or 0
  StepTimes times;
};

// Nanoseconds of std::chrono::steady_clock. An instruction ends when its call returns, which on a GPU is before its
// kernels do.
struct InstructionTimes {
  std::int64_t step = 0;  // StepInput::step of the step that the instruction belongs to
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t waited = 0;             // of that, first of all, for what another stage sends
  std::int64_t waited_for_tensor = 0;  // of the rest, for collectives of the tensor group
};

// A gradient that is final: elements [begin, ...) of what this rank has of a parameter.
struct FinalGradient {
  const ParameterSpan* span;
  std::int64_t begin;
  BufferRange all;
  BufferRange counted;  // of these, what this rank counts in the norm of its replica group
};

class Executor {
 public:
  explicit Executor(StageState& stage) : stage_(stage) {}

  // One training step. [collective] over the run. On the CPU blocks until done; elsewhere synchronises the host once,
  // at the end. Throws UserError where no target of the global batch counts; its gradient updates nothing. `next`: the
  // step that follows, of which a speculative program's first forwards may be made too; null: they are not. Not all of
  // its scalars need be known.
  StepOutcome run(const Program& program, const StepInput& input, const StepInput* next = nullptr);
  // Forgets what was made of the next step; it is made again then. [collective] over the run.
  void forget_ahead();

  // Where updates are deferred: whether the last step's is to be made yet; makes it, by this program. [collective] over
  // the run
  bool has_pending_update() const { return pending_; }
  void make_pending_updates(const Program& updates);

  // Waits for what publish() began. Where the values of a flat parameter stay gathered, that may still send them and
  // hold memory; so it must have ended before they are written anew. [collective] over the stage
  void finish_publish(int flat_parameter);

  // After a step whose gradient was not finite: the parameters of the whole model whose gradients were not, by name, in
  // the order in which backward reaches them, the last layer's first. Equal on all ranks. [collective] over the run.
  std::vector<std::string> non_finite_parameters();

  // In every later step `see` is shown the gradient, before clipping: elements [begin, ...) of a
  // parameter's, over the ranks every element once; of replica groups that train by themselves the first one's. When
  // the step has ended, loss_scale() is what it was of the mean loss's gradient.
  using SeeGradient = std::function<void(const std::string& parameter, std::int64_t begin, const at::Tensor& gradient)>;
  void show_gradients(SeeGradient see) { see_gradient_ = std::move(see); }
  double loss_scale() const { return loss_scale_; }

  // In every later run(), `see` is shown each instruction that was carried out; empty: no longer. What was made of the
  // next step and forgotten is shown again when it is made again.
  using SeeInstruction = std::function<void(const Instruction& instruction, const InstructionTimes& times)>;
  void show_instructions(SeeInstruction see) { see_instruction_ = std::move(see); }

  // Runs a program of forwards, without gradients; an input is freed as soon as its layer has read it. Adds the losses
  // of this rank's micro-batches to `sums`, which are LossSums. [collective] over the run.
  void evaluate(const Program& forwards, const StepInput& input, const at::Tensor& sums);

  // A training step in parts, so that the caller can act between instructions: begin, every instruction in order,
  // finish.
  void begin(const StepInput& input);
  void carry_out(const Instruction& instruction, const StepInput& input);
  StepOutcome finish(const StepInput& input);
  // The loss sum of the last forward through the last layer; undefined on stages without that layer.
  const at::Tensor& micro_batch_loss() const { return micro_batch_loss_; }
  // What the last layer gave for the rows that the last micro-batch asked for; undefined where it gave nothing, and on
  // stages without that layer. Once.
  at::Tensor take_logits() { return std::exchange(logits_, at::Tensor()); }

 private:
  using Instructions = std::span<const Instruction>;
  void carry_out_all(Instructions instructions, const StepInput& input);
  void carry_out_and_show(const Instruction& instruction, const StepInput& input);
  bool take_ahead(const StepInput& input);
  void run_ahead(Instructions instructions, const StepInput& next);
  void move(const Instruction& instruction);
  void forward(const Instruction& instruction, const StepInput& input);
  void backward(const Instruction& instruction, const StepInput& input);
  void backward_of_weights(const Instruction& instruction);
  void send(const Instruction& instruction);
  void receive(const Instruction& instruction);
  void borrow_gradient(const Instruction& instruction);
  void reduce(const Instruction& instruction);
  void finish_gradient(int flat_parameter);
  bool leaves_gradients() const;
  std::vector<FinalGradient> final_gradients(int flat_parameter, bool kept = false);
  void sum_replicas(int flat_parameter);
  void square_gradient(int flat_parameter);
  void start_norm(const StepInput& input, bool assumes);
  void norm(const StepInput& input);
  void save_or_restore(const Instruction& instruction);
  void measure(const Instruction& instruction);
  void sum_statistics(int round);
  void update(const Instruction& instruction);
  void synchronize(const Instruction& instruction, const StepInput& input);
  int groups_of_norm() const { return stage_.local ? stage_.local->groups() : 1; }
  void tell_of_groups(const StepInput& input, const double* totals, StepOutcome& outcome) const;
  void keep(int flat_parameter);
  void stash(const Instruction& instruction);
  void bind(const Instruction& instruction);
  void drop(const Instruction& instruction);
  StepScalars scalars_of(const Instruction& instruction) const;

  void keep_inputs(const Instruction& forward, Passage& passage);
  void bring_inputs(const Instruction& backward, Passage& passage);
  void check_linear_only(const StageLayer& layer, bool splits) const;
  void keep_for_weights(ActivationStore::Key key, LeftGradients left);
  LayerOutput compute(StageLayer& layer, const Tensors& input, int micro_batch, const StepInput& input_of_step);
  const Buffer& input_buffer(const Instruction& compute) const {
    return *stage_.input_buffers.at({compute.layer, compute.input_buffer});
  }
  FlatParameter& flat(int id) { return *stage_.layout.flat[static_cast<std::size_t>(id)]; }
  // Has the partitioner do something with a flat parameter; errors name `function`.
  template <typename Work>
  void partition(const char* function, const FlatParameter& parameter, Work&& work);

  // What was made of the next step, whose activations are in activations_.
  struct Ahead {
    std::int64_t step = 0;
    double loss_scale = 1.0;
    at::Tensor loss_sums;
  };

  StageState& stage_;
  ActivationStore activations_;
  std::optional<Ahead> ahead_;
  bool evaluating_ = false;  // no gradients; nothing waits for a backward
  double loss_scale_ = 1.0;  // what gradients are of the mean loss's, once the step has ended
  at::Tensor loss_seed_;     // undefined when evaluating
  at::Tensor loss_sums_;     // LossSums of this rank's micro-batches
  at::Tensor micro_batch_loss_;
  at::Tensor logits_;
  at::Tensor squares_;  // fp64 by flat parameter: what this rank adds to the squared norm
  at::Tensor totals_;   // fp64 over the run: squared norms of the replica groups, LossSums, stop_counts; where there
                        // are several groups, how many tokens count in each
  Pending norm_;        // their sum over the run, between StartNorm and Norm
  at::Tensor maxima_;   // the precision policy's; undefined: it has none
  Pending maxima_over_ranks_;
  bool pending_ = false;  // an update by the last Norm, until it is made
  bool assumed_ = false;  // after StartNorm: the update assumed that the norm neither clips nor skips
  bool assumed_wrongly_ = false;
  SeeGradient see_gradient_;  // empty: nobody looks
  SeeInstruction see_instruction_;
  std::map<std::pair<int, int>, Slot*> copies_;  // by flat parameter and version
  std::map<int, at::Tensor> newest_;             // by flat parameter to which a copy is bound: its own memory
  int measured_round_ = -1;
  StepTimes times_;
};

}  // namespace strata::runtime
