// Training from a C++ program, on one rank or on many: every rank runs the same program, started by `strata launch
// --nproc N PROGRAM`, torchrun, mpirun or srun. The config says everything but what the program brings itself: its
// model, and its data if it has some.
//
//   strata::Engine engine = strata::initialize(std::move(model), "train.yaml");
//   while (engine.steps_done() < engine.steps()) {
//     for (const strata::Batch& batch : engine.batches()) engine.backward(engine.forward(batch));
//     const strata::StepResult result = engine.step();
//     if (engine.validation_due()) engine.evaluate();
//     if (engine.checkpoint_due()) engine.save_checkpoint();
//   }
//
// Errors that are the program's own (a call at the wrong time, a batch of the wrong shape) are UserErrors that name its
// file and line.
#pragma once
#include <strata/error.hpp>
#include <strata/export.hpp>
#include <strata/model.hpp>
#include <strata/plugin.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata {

// One micro-batch of one rank.
struct Batch {
  at::Tensor tokens;   // int64 [train.micro_batch, model.seq_len], on the CPU or on the engine's device
  at::Tensor targets;  // the same shape; -100 counts for nothing
};

// What engine.forward gives: the loss of one micro-batch, to be passed to engine.backward once.
class STRATA_EXPORT Loss {
 public:
  // The mean over the micro-batch's valid tokens on this rank; 0 without any. Waits for the device.
  double value() const;

 private:
  friend class Engine;
  Loss(std::uint64_t engine, std::int64_t number, at::Tensor sum, std::int64_t valid_tokens)
      : engine_(engine), number_(number), sum_(std::move(sum)), valid_tokens_(valid_tokens) {}
  std::uint64_t engine_;  // which one it is of
  std::int64_t number_;   // of that engine's forwards, from 1
  at::Tensor sum_;
  std::int64_t valid_tokens_;
};

// What a step came to; equal on all ranks.
struct StepResult {
  std::int64_t step = 0;       // from 0
  double loss = 0.0;           // mean over the valid tokens of the global batch
  double gradient_norm = 0.0;  // before clipping
  double learning_rate = 0.0;
  bool applied = true;        // false: the gradient was not finite and nothing was updated
  double seconds = 0.0;       // from the first forward
  double clip_factor = 1.0;   // what clipping multiplied the gradient by
  double tokens_per_s = 0.0;  // of the whole run
};

// A plugin of the program's own: configs name it like any other, `partitioner: {plugin: NAME}`, and it comes before
// files of its name.
struct ProgramPlugin {
  PluginKind kind = PluginKind::Model;
  std::string name;
  std::function<std::unique_ptr<Plugin>(PluginContext& context)> make;
  std::vector<OptionSpec> options;
  std::vector<Capability> capabilities;
};

// program_plugin<Partitioner, MyPartitioner, MyOptions>("mine"): of the class and the options that STRATA_PLUGIN would
// take.
template <class Interface, class Class, class Options>
ProgramPlugin program_plugin(const std::string& name, std::vector<Capability> declared = {}) {
  const auto make = [](PluginContext& context) -> std::unique_ptr<Plugin> {
    std::unique_ptr<Interface> made = std::make_unique<Class>(context, Options::read(context.options()));
    return made;
  };
  return {kind_of<Interface>, name, make, Options::specs(), std::move(declared)};
}

// One rank of a training run. [collective] calls are made by all ranks of the run in the same order; all of them block
// the host until their results are there, but for forward and backward on a GPU. Not thread-safe.
class STRATA_EXPORT Engine {
 public:
  using Where = SourcePlace;  // of the call, for errors
  Engine(Engine&& other) noexcept;
  Engine& operator=(Engine&& other) noexcept;
  ~Engine();

  // One step, micro-batch by micro-batch: forward and backward `accumulation()` times, one after the other, then step.
  // Refused, by a UserError that names train_batch, where a step is not computed in that order: with pipeline stages,
  // whose ranks take turns, and under schedulers of another order. After an error in the middle of a step the engine
  // takes no further calls. [collective]
  Loss forward(const Batch& batch, Where where = Where::current());
  // Takes the loss of the last forward, once. [collective]
  void backward(const Loss& loss, Where where = Where::current());
  // Sums gradients over ranks, clips, updates. [collective]
  StepResult step(Where where = Where::current());

  // One whole step in the scheduler's order: this rank's `accumulation()` micro-batches. The ranks of one pipeline give
  // the same ones. [collective]
  StepResult train_batch(const std::vector<Batch>& micro_batches, Where where = Where::current());

  // This rank's micro-batches of the step that comes next or is under way, from the config's `data` section. [any rank]
  std::vector<Batch> batches(Where where = Where::current()) const;

  // Whether the config asks for evaluate(), or for save_checkpoint(), after the step made last: as validation.every and
  // checkpoint.every say, and after train.steps steps; never without a path. [any rank]
  bool validation_due() const;
  bool checkpoint_due() const;

  // What follows is between steps, all of it [collective].
  //
  // The mean loss over the config's `validation` file.
  double evaluate(Where where = Where::current());
  // The same over micro-batches of the caller's, 1 to accumulation() of them, on each rank the same number.
  double evaluate(const std::vector<Batch>& micro_batches, Where where = Where::current());
  // Saves all that a run needs to go on into a new folder in the config's checkpoint.path, and returns that folder.
  // checkpoint.keep counts.
  std::string save_checkpoint(Where where = Where::current());
  // Before the first step: goes on from a checkpoint, or from the latest of a folder of them; "latest" is that of
  // checkpoint.path. False, and nothing changes, when "latest" finds none. Without it a run does not start in a
  // checkpoint.path that holds checkpoints already.
  bool resume(const std::string& from = "latest", Where where = Where::current());
  // Writes the weights to a new folder, in Hugging Face form.
  void export_weights(const std::string& folder, Where where = Where::current());

  int rank() const;
  int ranks() const;
  // Position on the data-parallel axis, from 0, and that axis's size. Micro-batch k of data rank d begins with sample
  // (k x data_ranks + d) x train.micro_batch of the global batch.
  int data_rank() const;
  int data_ranks() const;
  std::int64_t accumulation() const;  // micro-batches a step
  std::int64_t micro_batch() const;   // samples
  std::int64_t seq_len() const;       // tokens a sample
  std::int64_t steps() const;         // train.steps, the learning rate's whole length; a program may make more
  std::int64_t steps_done() const;    // those before a resume included
  at::Device device() const;

  class Implementation;  // not installed: engines come from initialize
  explicit Engine(std::unique_ptr<Implementation> implementation);

 private:
  std::unique_ptr<Implementation> implementation_;
};

// An engine for this rank: reads the config, loads the plugins, connects the ranks, gives the parameters their initial
// values. `settings` change values as --set does ("train.steps=10"). `plugins` are the program's own. data.path may be
// left out of the config when the program brings its batches. Throws UserError and EnvironmentError, whose
// exit_status() a program should end with. [collective]
//
// This one trains `model`; the config's model section leaves out `plugin`.
STRATA_EXPORT Engine initialize(std::unique_ptr<Model> model, const std::string& config_file,
                                const std::vector<std::string>& settings = {}, std::vector<ProgramPlugin> plugins = {});
// This one trains the model that the config names.
STRATA_EXPORT Engine initialize(const std::string& config_file, const std::vector<std::string>& settings = {},
                                std::vector<ProgramPlugin> plugins = {});

}  // namespace strata
