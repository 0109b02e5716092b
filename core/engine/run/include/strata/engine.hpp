// Training from a C++ program, on one rank or on many: every rank runs the same program, started by `strata launch
// --nproc N PROGRAM`, torchrun, mpirun or srun. The program defines the model, and the data if it wants to; the
// config says the rest.
//
//   strata::Engine engine = strata::initialize(std::move(model), "train.yaml");
//   while (engine.steps_done() < engine.steps()) {
//     for (const strata::Batch& batch : engine.batches()) engine.backward(engine.forward(batch));
//     const strata::StepResult result = engine.step();
//     if (engine.validation_due()) engine.evaluate();
//     if (engine.checkpoint_due()) engine.save_checkpoint();
//   }
//
// Mistakes of the program (a call at the wrong time, a batch of the wrong shape) throw UserErrors that name its file
// and line.
#pragma once
#include <strata/error.hpp>
#include <strata/export.hpp>
#include <strata/model.hpp>
#include <strata/plugin.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata {

// One micro-batch of one rank.
struct Batch {
  at::Tensor tokens;   // int64 [train.micro_batch, model.seq_len], on the CPU or on the engine's device
  at::Tensor targets;  // the same shape; -100 is ignored
};

// The result of engine.forward: the loss of one micro-batch. Pass it to engine.backward once.
class STRATA_EXPORT Loss {
 public:
  // The mean over the micro-batch's valid tokens on this rank; 0 if there are none. Waits for the device.
  double value() const;

 private:
  friend class Engine;
  Loss(std::uint64_t engine, std::int64_t number, at::Tensor sum, std::int64_t valid_tokens)
      : engine_(engine), number_(number), sum_(std::move(sum)), valid_tokens_(valid_tokens) {}
  std::uint64_t engine_;  // the engine that made it
  std::int64_t number_;   // its forward, from 1
  at::Tensor sum_;
  std::int64_t valid_tokens_;
};

// The result of a step; equal on all ranks.
struct StepResult {
  std::int64_t step = 0;       // from 1
  double loss = 0.0;           // mean over the valid tokens of the global batch
  double gradient_norm = 0.0;  // before clipping; the root mean square, where stages make several updates a step
  double learning_rate = 0.0;
  bool applied = true;        // false: the gradient was not finite and updates nothing
  double seconds = 0.0;       // duration, from the start of the first forward
  double clip_factor = 1.0;   // what clipping multiplied the gradient by
  double tokens_per_s = 0.0;  // of the whole run
  // The mean over the same tokens of what layers add to the loss (LayerOutput::auxiliary_loss); nothing if none does.
  std::optional<double> auxiliary_loss;
};

// A plugin that is a class of the program. Configs name it like any other, `partitioner: {plugin: NAME}`; it takes
// precedence over plugin files of the same name.
struct ProgramPlugin {
  PluginKind kind = PluginKind::Model;
  std::string name;
  std::function<std::unique_ptr<Plugin>(PluginContext& context)> make;
  std::vector<OptionSpec> options;
  std::vector<Capability> capabilities;
};

// program_plugin<Partitioner, MyPartitioner, MyOptions>("mine"): class and options as for STRATA_PLUGIN.
template <class Interface, class Class, class Options>
ProgramPlugin program_plugin(const std::string& name, std::vector<Capability> declared = {}) {
  const auto make = [](PluginContext& context) -> std::unique_ptr<Plugin> {
    std::unique_ptr<Interface> made = std::make_unique<Class>(context, Options::read(context.options()));
    return made;
  };
  return {kind_of<Interface>, name, make, Options::specs(), std::move(declared)};
}

// One rank of a training run. All ranks of the run make the [collective] calls in the same order. Calls block the host
// until their results are complete, except forward and backward on a GPU. Not thread-safe.
class STRATA_EXPORT Engine {
 public:
  using Where = SourcePlace;  // the place of the call, for errors
  Engine(Engine&& other) noexcept;
  Engine& operator=(Engine&& other) noexcept;
  ~Engine();

  // One step by single calls: forward and backward alternate `accumulation()` times, then step. With pipeline stages,
  // or a scheduler with another order, this throws a UserError that names train_batch. After an error in the middle of
  // a step the engine accepts no further calls. [collective]
  Loss forward(const Batch& batch, Where where = Where::current());
  // Takes the loss of the last forward, once. [collective]
  void backward(const Loss& loss, Where where = Where::current());
  // Sums gradients over ranks, clips, updates. [collective]
  StepResult step(Where where = Where::current());

  // One whole step in the scheduler's order, over this rank's `accumulation()` micro-batches. The ranks of one pipeline
  // pass the same ones. With `step_policy: speculative` it is as with `plain`: the next batches are not known.
  // [collective]
  StepResult train_batch(const std::vector<Batch>& micro_batches, Where where = Where::current());

  // This rank's micro-batches of the current or next step, from the config's `data` section. [any rank]
  std::vector<Batch> batches(Where where = Where::current()) const;

  // Whether a line of log, evaluate() or save_checkpoint() is due after the last step: by train.log_every,
  // validation.every and checkpoint.every, and after train.steps steps; the last two never without a path. [any rank]
  bool log_due() const;
  bool validation_due() const;
  bool checkpoint_due() const;

  // Call the following functions between steps; all are [collective].
  //
  // The mean loss over the config's `validation` file.
  double evaluate(Where where = Where::current());
  // The mean loss over the given micro-batches, 1 to accumulation() of them, the same number on each rank.
  double evaluate(const std::vector<Batch>& micro_batches, Where where = Where::current());
  // What the model says of the token that follows `tokens`, 1 to seq_len() of them, the same on every rank: its logits,
  // fp32 [vocabulary] on the CPU, of the same bits on every rank. A softmax gives probabilities. The model must give
  // LayerOutput::logits.
  at::Tensor next_token_logits(const std::vector<std::int64_t>& tokens, Where where = Where::current());
  // Saves the whole state of the run to a new folder in the config's checkpoint.path, and returns that folder. Deletes
  // old checkpoints as checkpoint.keep says.
  std::string save_checkpoint(Where where = Where::current());
  // Before the first step: resumes from a checkpoint, or from the latest one in a folder; "latest" means the latest in
  // checkpoint.path. Returns false and changes nothing if "latest" finds none. A run that does not resume refuses a
  // checkpoint.path that holds checkpoints.
  bool resume(const std::string& from = "latest", Where where = Where::current());
  // Writes the weights to a new folder in Hugging Face format. Where rank 0 cannot write them, all ranks throw the same
  // error and may go on training.
  void export_weights(const std::string& folder, Where where = Where::current());

  int rank() const;
  int ranks() const;
  // Position on the data-parallel axis, from 0, and that axis's size. Micro-batch k of data rank d begins with sample
  // (k x data_ranks + d) x train.micro_batch of the global batch.
  int data_rank() const;
  int data_ranks() const;
  std::int64_t accumulation() const;  // micro-batches per step
  std::int64_t micro_batch() const;   // samples
  std::int64_t seq_len() const;       // tokens per sample
  std::int64_t steps() const;         // train.steps, which the learning-rate schedule covers; a program may make more
  std::int64_t steps_done() const;    // including those before a resume
  at::Device device() const;

  class Implementation;  // not installed: initialize creates engines
  explicit Engine(std::unique_ptr<Implementation> implementation);

 private:
  std::unique_ptr<Implementation> implementation_;
};

// An engine for this rank: reads the config, loads the plugins, connects the ranks, gives the parameters their initial
// values. `settings` change values as --set does ("train.steps=10"). `plugins` are classes of the program. The config
// needs no data.path if the program provides the batches. Throws UserError and EnvironmentError, whose
// exit_status() a program should end with. [collective]
//
// Trains `model`; the config's model section must not set `plugin`.
STRATA_EXPORT Engine initialize(std::unique_ptr<Model> model, const std::string& config_file,
                                const std::vector<std::string>& settings = {}, std::vector<ProgramPlugin> plugins = {});
// Trains the model that the config names.
STRATA_EXPORT Engine initialize(const std::string& config_file, const std::vector<std::string>& settings = {},
                                std::vector<ProgramPlugin> plugins = {});

}  // namespace strata
