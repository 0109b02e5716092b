// Training from a C++ program, on one rank or on many: every rank runs the same program, started by `strata launch
// --nproc N PROGRAM`, torchrun, mpirun or srun. The program defines the model, and optionally the data; the config sets
// the rest.
//
//   strata::Engine engine = strata::initialize(std::move(model), "train.yaml");
//   while (engine.steps_done() < engine.steps()) {
//     for (const strata::Batch& batch : engine.batches()) engine.backward(engine.forward(batch));
//     engine.step();
//     if (engine.validation_due()) engine.evaluate();
//     if (engine.checkpoint_due()) engine.save_checkpoint();
//   }
//
// Rank 0 prints a progress line every train.log_every steps to the log, the program's default spdlog logger, and writes
// the CSV files of metrics.csv. The step that reaches train.steps writes the `export`. Observers receive the figures of
// each step too: Engine::observe.
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
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata {

// One micro-batch of one rank.
struct Batch {
  at::Tensor tokens;   // int64 [train.micro_batch, model.seq_len], on the CPU or on the engine's device
  at::Tensor targets;  // same shape; -100 is ignored
};

// Result of engine.forward: the loss of one micro-batch. Pass it to engine.backward once.
class STRATA_EXPORT Loss {
 public:
  // Returns the mean over the micro-batch's valid tokens on this rank; 0 without any. Waits for the device.
  double value() const;

 private:
  friend class Engine;
  Loss(std::uint64_t engine, std::int64_t number, at::Tensor sum, std::int64_t valid_tokens)
      : engine_(engine), number_(number), sum_(std::move(sum)), valid_tokens_(valid_tokens) {}
  std::uint64_t engine_;  // id of the engine that made the loss
  std::int64_t number_;   // number of its forward, from 1
  at::Tensor sum_;
  std::int64_t valid_tokens_;
};

// Result of a step; equal on all ranks.
struct StepResult {
  std::int64_t step = 0;       // number from 1
  double loss = 0.0;           // mean over the valid tokens of the global batch
  double gradient_norm = 0.0;  // norm before clipping; the root mean square if stages update several times a step
  double learning_rate = 0.0;
  bool applied = true;        // false if the gradient was not finite and no weight was updated
  double seconds = 0.0;       // duration, from the start of the first forward
  double clip_factor = 1.0;   // factor by which clipping scaled the gradient
  double tokens_per_s = 0.0;  // tokens per second of the whole run
  // Mean of the auxiliary losses (LayerOutput::auxiliary_loss) over the same tokens; empty if no layer has one.
  std::optional<double> auxiliary_loss;
  std::map<std::string, double> statistics;  // statistics of the layers (LayerOutput::statistics), by name
};

// Receiver of the figures of a run, on the ranks that pass one to Engine::observe. An error that it throws, such as a
// write error, is thrown by the engine's call, after the step is complete.
//
//   struct Losses final : strata::Observer {
//     void step(const strata::StepResult& result) override { std::printf("%.17g\n", result.loss); }
//   };
//   if (engine.rank() == 0) engine.observe(std::make_unique<Losses>());
class STRATA_EXPORT Observer {
 public:
  virtual ~Observer();
  // Called before the first step. `steps_done`: number of steps before, not 0 in a resumed run; figures of later steps
  // that an earlier run recorded are passed again.
  virtual void begin(std::int64_t steps_done);
  // Called after each step.
  virtual void step(const StepResult& result) = 0;
  // Called after an evaluate() over the config's `validation` file that follows a step; `step`: number of the last
  // step.
  virtual void validation(std::int64_t step, double loss);
};

// Plugin that is a class of the program. Configs name it like any other, `partitioner: {plugin: NAME}`; it takes
// precedence over plugin files of the same name.
struct ProgramPlugin {
  PluginKind kind = PluginKind::Model;
  std::string name;
  std::function<std::unique_ptr<Plugin>(PluginContext& context)> make;
  std::vector<OptionSpec> options;
  std::vector<Capability> capabilities;
};

// Makes a ProgramPlugin, e.g. program_plugin<Partitioner, MyPartitioner, MyOptions>("mine"); see STRATA_PLUGIN.
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
  using Where = SourcePlace;  // place of the call, for errors
  Engine(Engine&& other) noexcept;
  Engine& operator=(Engine&& other) noexcept;
  ~Engine();

  // Runs the forward of one micro-batch. A step made of single calls alternates forward and backward accumulation()
  // times, then calls step. With pipeline stages, or a scheduler with another order, throws a UserError that names
  // train_batch. After an error in the middle of a step the engine accepts no further calls. [collective]
  Loss forward(const Batch& batch, Where where = Where::current());
  // Runs the backward of the last forward's loss, once. [collective]
  void backward(const Loss& loss, Where where = Where::current());
  // Sums gradients over ranks, clips, updates. [collective]
  StepResult step(Where where = Where::current());

  // Runs one whole step in the scheduler's order, over this rank's accumulation() micro-batches. The ranks of one
  // pipeline or tensor group must pass the same micro-batches. `step_policy: speculative` acts like `plain` here,
  // because the next batches are unknown. [collective]
  StepResult train_batch(const std::vector<Batch>& micro_batches, Where where = Where::current());

  // Returns this rank's micro-batches of the current or next step, from the config's `data` section. [any rank]
  std::vector<Batch> batches(Where where = Where::current()) const;

  // Adds an observer of this rank, before the first step. [any rank]
  void observe(std::unique_ptr<Observer> observer, Where where = Where::current());

  // True if evaluate() or save_checkpoint() is due after the last step: by validation.every and checkpoint.every, and
  // after train.steps steps; never without a path. [any rank]
  bool validation_due() const;
  bool checkpoint_due() const;

  // Functions to call between steps; all are [collective].
  //
  // Returns the mean loss over the valid tokens of the config's `validation` file. Progress lines, metrics.csv and
  // observers include it after the first step.
  double evaluate(Where where = Where::current());
  // Returns the mean loss over the given micro-batches, 1 to accumulation() of them, equally many on each rank.
  double evaluate(const std::vector<Batch>& micro_batches, Where where = Where::current());
  // Returns the logits of the token that follows `tokens` (1 to seq_len(), the same on every rank): fp32 [vocabulary]
  // on the CPU, bit-equal on all ranks. Their softmax is the distribution of the next token. Requires a model that
  // returns LayerOutput::logits.
  at::Tensor next_token_logits(const std::vector<std::int64_t>& tokens, Where where = Where::current());
  // Saves the whole state of the run to a new folder in the config's checkpoint.path, and returns that folder. Deletes
  // old checkpoints according to checkpoint.keep.
  std::string save_checkpoint(Where where = Where::current());
  // Resumes, before the first step, from a checkpoint, or from the latest one in a folder; "latest" means the latest in
  // checkpoint.path. Returns false and changes nothing if "latest" finds none. A run that does not resume refuses a
  // checkpoint.path that holds checkpoints and a metrics.csv that holds figures; a resumed run drops the figures of the
  // steps that it repeats. Writes the `export` if no step is left.
  bool resume(const std::string& from = "latest", Where where = Where::current());
  // Writes the weights to a new folder in Hugging Face format. If rank 0 cannot write them, all ranks throw the same
  // error and may continue training.
  void export_weights(const std::string& folder, Where where = Where::current());

  int rank() const;
  int ranks() const;
  // Returns the position on the data-parallel axis, from 0, or that axis's size. Micro-batch k of data rank d begins
  // with sample (k x data_ranks + d) x train.micro_batch of the global batch.
  int data_rank() const;
  int data_ranks() const;
  std::int64_t accumulation() const;  // micro-batches per step
  std::int64_t micro_batch() const;   // samples
  std::int64_t seq_len() const;       // tokens per sample
  std::int64_t steps() const;         // train.steps, covered by the learning-rate schedule; a program may run more
  std::int64_t steps_done() const;    // number of steps, including those before a resume
  at::Device device() const;

  class Implementation;  // internal: initialize creates engines
  explicit Engine(std::unique_ptr<Implementation> implementation);

 private:
  std::unique_ptr<Implementation> implementation_;
};

// Creates the engine of this rank: reads the config, loads the plugins, connects the ranks, sets the initial values of
// the parameters. `settings` change values as --set does ("train.steps=10"). `plugins` are classes of the program. The
// config needs no data.path if the program provides the batches. Throws UserError and EnvironmentError; a program
// should end with their exit_status(). [collective]
//
// This overload trains `model`; the config's model section must not set `plugin`.
STRATA_EXPORT Engine initialize(std::unique_ptr<Model> model, const std::string& config_file,
                                const std::vector<std::string>& settings = {}, std::vector<ProgramPlugin> plugins = {});
// Creates the engine that trains the model named in the config.
STRATA_EXPORT Engine initialize(const std::string& config_file, const std::vector<std::string>& settings = {},
                                std::vector<ProgramPlugin> plugins = {});

}  // namespace strata
