#include <strata/error.hpp>

#include "run/implementation.hpp"
#include "run/saved_model.hpp"
#include "stage/seconds_since.hpp"

namespace strata {

namespace {

std::string of(std::int64_t number, std::int64_t count) {
  return format("{} of {}", number, count);
}

std::string shape_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string text = std::string(c10::toString(tensor.scalar_type())) + " [";
  for (const std::int64_t extent : tensor.sizes()) text += (text.back() == '[' ? "" : ", ") + std::to_string(extent);
  return text + "]";
}

}  // namespace

void refuse(const char* call, const Engine::Where& where, const std::string& text) {
  throw UserError(Place{where.file, where.line}, "engine.{}: {}", call, text);
}

double Loss::value() const {
  if (valid_tokens_ == 0) return 0.0;
  return sum_.item().toDouble() / static_cast<double>(valid_tokens_);
}

void Engine::Implementation::check_usable(const char* call, const Where& where) const {
  if (broken)
    refuse(call, where, "an earlier call failed within a step, which cannot be continued; create a new engine");
}

void Engine::Implementation::check_between_steps(const char* call, const Where& where) const {
  check_usable(call, where);
  if (parts && parts->forwards() > 0)
    refuse(call, where,
           "a step is in progress: " + of(parts->forwards(), config().train.accumulation) +
               " micro-batches were passed to forward(); finish the step with backward() and step() first");
}

data::TokenBatch Engine::Implementation::checked(const Batch& batch, const char* call, const Where& where) const {
  const std::int64_t rows = config().train.micro_batch;
  const std::int64_t columns = config().model.seq_len;
  const std::int64_t vocabulary = run.model().vocabulary();
  const auto check = [&](const at::Tensor& tensor, const char* name) {
    if (tensor.defined() && tensor.scalar_type() == at::kLong && tensor.sizes() == at::IntArrayRef{rows, columns})
      return tensor.cpu().contiguous();
    refuse(call, where,
           std::string("the batch's ") + name + " are " + shape_text(tensor) +
               "; int64 [train.micro_batch, model.seq_len] = [" + std::to_string(rows) + ", " +
               std::to_string(columns) + "] is expected");
  };
  const auto check_value = [&](std::int64_t value, const char* name) {
    if (value >= 0 && value < vocabulary) return;
    refuse(call, where,
           std::string("the batch's ") + name + " hold " + std::to_string(value) + "; the model's vocabulary is 0 to " +
               std::to_string(vocabulary - 1));
  };
  const at::Tensor tokens = check(batch.tokens, "tokens");
  const at::Tensor targets = check(batch.targets, "targets");
  data::TokenBatch result{batch.tokens.contiguous(), batch.targets.contiguous(), 0};
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    check_value(tokens.const_data_ptr<std::int64_t>()[i], "tokens");
    const std::int64_t target = targets.const_data_ptr<std::int64_t>()[i];
    if (target == data::ignored_target) continue;
    check_value(target, "targets");
    ++result.valid_tokens;
  }
  return result;
}

void Engine::Implementation::check_fresh(const char* call, const Where& where) const {
  if (started) return;
  const std::string earlier = checkpoint::earlier_checkpoints(config(), "engine.resume()");
  if (!earlier.empty()) refuse(call, where, earlier);
}

Engine::Engine(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
Engine::Engine(Engine&& other) noexcept = default;
Engine& Engine::operator=(Engine&& other) noexcept = default;
Engine::~Engine() = default;

Loss Engine::forward(const Batch& batch, Where where) {
  Implementation& engine = *implementation_;
  engine.check_usable("forward", where);
  if (engine.config().parallel.size(Axis::Pipeline) > 1)
    refuse("forward", where,
           "parallel.pipeline is " + std::to_string(engine.config().parallel.size(Axis::Pipeline)) +
               ", and stages alternate within a step; call engine.train_batch with the step's micro-batches");
  const std::int64_t accumulation = engine.config().train.accumulation;
  if (!engine.parts)
    refuse("forward", where,
           engine.config().scheduler.kind + "/" + engine.config().scheduler.name +
               " does not compute the micro-batches one after the other; call " +
               "engine.train_batch with the step's micro-batches, or set scheduler.plugin to another");
  if (engine.parts->forwards() > engine.parts->backwards())
    refuse("forward", where,
           "the previous loss was not passed to engine.backward; call forward() and backward() for one micro-batch at "
           "a time");
  if (engine.parts->forwards() == accumulation)
    refuse("forward", where,
           "all " + std::to_string(accumulation) +
               " micro-batches of this step (train.accumulation) are computed; call engine.step() first");
  engine.check_fresh("forward", where);
  const data::TokenBatch checked_batch = engine.checked(batch, "forward", where);
  engine.begin_report("forward", where);
  return engine.part([&] {
    engine.started = true;
    if (engine.parts->forwards() == 0) {
      engine.begin = std::chrono::steady_clock::now();
      engine.valid_tokens = 0;
      engine.run.session().compute_with(step::Session::Weights::Trained);
      engine.parts->begin(engine.run.scalars(engine.run.steps_done()));
    }
    engine.valid_tokens += checked_batch.valid_tokens;
    const at::Tensor sum =
        engine.parts->forward(engine.run.on_device(engine.run.steps_done(), engine.parts->forwards(), checked_batch));
    return Loss(engine.identity, ++engine.forwards, sum, checked_batch.valid_tokens);
  });
}

void Engine::backward(const Loss& loss, Where where) {
  Implementation& engine = *implementation_;
  engine.check_usable("backward", where);
  if (loss.engine_ != engine.identity)
    refuse("backward", where,
           "this loss belongs to another engine; pass the loss that this engine's forward() returned");
  const bool waiting = engine.parts->forwards() > engine.parts->backwards();
  if (loss.number_ != engine.forwards || !waiting)
    refuse("backward", where,
           "backward() was already called with this loss; call it once for each loss, right after its forward()");
  engine.part([&] { engine.parts->backward(); });
}

StepResult Engine::step(Where where) {
  Implementation& engine = *implementation_;
  engine.check_usable("step", where);
  const std::int64_t accumulation = engine.config().train.accumulation;
  if (!engine.parts) refuse("step", where, "no step is in progress; engine.train_batch runs a whole one");
  if (engine.parts->forwards() > engine.parts->backwards())
    refuse("step", where, "the last loss was not passed to engine.backward");
  if (engine.parts->backwards() < accumulation)
    refuse("step", where,
           of(engine.parts->backwards(), accumulation) +
               " micro-batches are computed; a step needs train.accumulation of them");
  return engine.conclude(engine.part([&] {
    const step::StepOutcome outcome = engine.parts->finish(engine.run.session().counted(engine.valid_tokens));
    return engine.run.conclude(engine.parts->input(), outcome, stage::seconds_since(engine.begin));
  }));
}

StepResult Engine::train_batch(const std::vector<Batch>& micro_batches, Where where) {
  Implementation& engine = *implementation_;
  engine.check_between_steps("train_batch", where);
  const auto given = static_cast<std::int64_t>(micro_batches.size());
  if (given != engine.config().train.accumulation)
    refuse("train_batch", where,
           std::to_string(given) + " micro-batches were given; a step needs train.accumulation = " +
               std::to_string(engine.config().train.accumulation) + " of them on each rank");
  engine.check_fresh("train_batch", where);
  std::vector<data::TokenBatch> batches;
  for (const Batch& batch : micro_batches) batches.push_back(engine.checked(batch, "train_batch", where));
  engine.begin_report("train_batch", where);
  engine.started = true;
  return engine.conclude(engine.part([&] { return engine.run.step(batches); }));
}

std::vector<Batch> Engine::batches(Where where) const {
  Implementation& engine = *implementation_;
  if (!engine.run.has_data())
    refuse("batches", where,
           "data.path is not set, and batches are read from that file; set it, or pass batches of your own");
  std::vector<Batch> result;
  for (data::TokenBatch& batch : engine.run.read(engine.run.steps_done()))
    result.push_back({std::move(batch.tokens), std::move(batch.targets)});
  return result;
}

std::string Engine::save_checkpoint(Where where) {
  Implementation& engine = *implementation_;
  engine.check_between_steps("save_checkpoint", where);
  if (engine.config().checkpoint.path.empty())
    refuse("save_checkpoint", where, "checkpoint.path is not set, and checkpoints are saved in that folder; set it");
  engine.check_fresh("save_checkpoint", where);
  engine.started = true;
  return plugins::for_program([&] { return engine.run.save_checkpoint(); });
}

bool Engine::resume(const std::string& from, Where where) {
  Implementation& engine = *implementation_;
  engine.check_usable("resume", where);
  if (engine.started)
    refuse("resume", where, "a step or an earlier resume() came before; call resume() once, before the first step");
  if (from == "latest" && engine.config().checkpoint.path.empty())
    refuse("resume", where, "checkpoint.path is not set, so there is no latest checkpoint; set it, or pass a folder");
  run::check_resume(engine.resolved, from);
  engine.resumes = true;
  engine.started = engine.part([&] { return run::resume(engine.run, engine.resolved, from); }).has_value();
  if (engine.started && steps_done() == steps()) plugins::for_program([&] { engine.write_export(); });
  return engine.started;
}

void Engine::export_weights(const std::string& folder, Where where) {
  Implementation& engine = *implementation_;
  engine.check_between_steps("export_weights", where);
  plugins::for_program([&] { engine.run.export_weights(folder); });
}

bool Engine::validation_due() const {
  return implementation_->run.validation_due();
}
bool Engine::checkpoint_due() const {
  return implementation_->run.checkpoint_due();
}

int Engine::rank() const {
  return implementation_->run.place().rank;
}
int Engine::ranks() const {
  return implementation_->run.place().world_size;
}
int Engine::data_rank() const {
  return implementation_->run.session().place().at(Axis::Data);
}
int Engine::data_ranks() const {
  return static_cast<int>(implementation_->config().parallel.size(Axis::Data));
}
std::int64_t Engine::accumulation() const {
  return implementation_->config().train.accumulation;
}
std::int64_t Engine::micro_batch() const {
  return implementation_->config().train.micro_batch;
}
std::int64_t Engine::seq_len() const {
  return implementation_->config().model.seq_len;
}
std::int64_t Engine::steps() const {
  return implementation_->config().train.steps;
}
std::int64_t Engine::steps_done() const {
  return implementation_->run.steps_done();
}
at::Device Engine::device() const {
  return implementation_->run.session().store().device();
}

}  // namespace strata
