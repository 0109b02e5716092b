#include <strata/engine.hpp>
#include <strata/error.hpp>

#include "run/implementation.hpp"

namespace strata {

namespace {

constexpr std::int64_t ignored = -100;

std::string of(std::int64_t number, std::int64_t count) {
  return std::to_string(number) + " of " + std::to_string(count);
}

std::string shape_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string text = std::string(c10::toString(tensor.scalar_type())) + " [";
  for (const std::int64_t extent : tensor.sizes()) text += (text.back() == '[' ? "" : ", ") + std::to_string(extent);
  return text + "]";
}

}  // namespace

void refuse(const char* call, const Engine::Where& where, const std::string& text) {
  throw UserError(Place{where.file, where.line}, std::string("engine.") + call + ": " + text);
}

double Loss::value() const {
  if (valid_tokens_ == 0) return 0.0;
  return sum_.item().toDouble() / static_cast<double>(valid_tokens_);
}

void Engine::Implementation::check_usable(const char* call, const Where& where) const {
  if (broken_)
    refuse(call, where,
           "an earlier call failed in the middle of a step, which cannot be taken up again; make a new engine");
}

void Engine::Implementation::check_between_steps(const char* call, const Where& where) const {
  check_usable(call, where);
  if (parts_ && parts_->forwards() > 0)
    refuse(call, where,
           "a step is under way, " + of(parts_->forwards(), config().train.accumulation) +
               " micro-batches went forward; finish it with backward and step first");
}

data::TokenBatch Engine::Implementation::checked(const Batch& batch, const char* call, const Where& where) const {
  const std::int64_t rows = config().train.micro_batch;
  const std::int64_t columns = config().model.seq_len;
  const std::int64_t vocabulary = plugins_.model->vocabulary();
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
    if (target == ignored) continue;
    check_value(target, "targets");
    ++result.valid_tokens;
  }
  return result;
}

Loss Engine::Implementation::forward(const Batch& batch, const Where& where) {
  check_usable("forward", where);
  if (config().parallel.pipeline > 1)
    refuse("forward", where,
           "parallel.pipeline is " + std::to_string(config().parallel.pipeline) +
               ", and stages take turns within a step; call engine.train_batch with the step's micro-batches");
  const std::int64_t accumulation = config().train.accumulation;
  if (!parts_)
    refuse("forward", where,
           plugins_.scheduler.name +
               " does not compute one micro-batch's forward and backward after the other's; call " +
               "engine.train_batch with the step's micro-batches, or set scheduler.plugin to another");
  if (parts_->forwards() > parts_->backwards())
    refuse("forward", where,
           "the loss of the forward before was not passed to engine.backward; micro-batches go forward and backward "
           "one by one");
  if (parts_->forwards() == accumulation)
    refuse("forward", where,
           "all " + std::to_string(accumulation) +
               " micro-batches of this step (train.accumulation) went forward and backward; "
               "call engine.step() first");
  check_start("forward", where);
  const data::TokenBatch checked_batch = checked(batch, "forward", where);
  return part([&] {
    started_ = true;
    if (parts_->forwards() == 0) {
      begin_ = Clock::now();
      valid_tokens_ = 0;
      runtime::StepInput input = run_.scalars(steps_done_);
      input.valid_tokens = config().train.global_batch * config().model.seq_len;
      parts_->begin(std::move(input));
    }
    valid_tokens_ += checked_batch.valid_tokens;
    const at::Tensor sum = parts_->forward(run_.place(steps_done_, parts_->forwards(), checked_batch));
    return Loss(identity_, ++forwards_, sum, checked_batch.valid_tokens);
  });
}

void Engine::Implementation::backward(const Loss& loss, const Where& where) {
  check_usable("backward", where);
  if (loss.engine_ != identity_)
    refuse("backward", where, "this loss was made by another engine; pass what this engine's forward gave");
  const bool waiting = parts_->forwards() > parts_->backwards();
  if (loss.number_ != forwards_ || !waiting)
    refuse("backward", where, "this loss went backward already; each loss is passed once, right after its forward");
  part([&] { parts_->backward(); });
}

StepResult Engine::Implementation::step(const Where& where) {
  check_usable("step", where);
  const std::int64_t accumulation = config().train.accumulation;
  if (!parts_) refuse("step", where, "no step is under way; engine.train_batch makes a whole one");
  if (parts_->forwards() > parts_->backwards())
    refuse("step", where, "the loss of the last forward was not passed to engine.backward");
  if (parts_->backwards() < accumulation)
    refuse("step", where,
           of(parts_->backwards(), accumulation) +
               " micro-batches went forward and backward; a step takes train.accumulation of them");
  return part([&] {
    const runtime::StepOutcome outcome = parts_->finish(run_.count_over_run(valid_tokens_));
    return result(
        run_.conclude(parts_->input(), outcome, std::chrono::duration<double>(Clock::now() - begin_).count()));
  });
}

StepResult Engine::Implementation::train_batch(const std::vector<Batch>& micro_batches, const Where& where) {
  check_between_steps("train_batch", where);
  const auto given = static_cast<std::int64_t>(micro_batches.size());
  if (given != config().train.accumulation)
    refuse("train_batch", where,
           std::to_string(given) + " micro-batches were given; a step takes train.accumulation = " +
               std::to_string(config().train.accumulation) + " of them on each rank");
  check_start("train_batch", where);
  std::vector<data::TokenBatch> batches;
  for (const Batch& batch : micro_batches) batches.push_back(checked(batch, "train_batch", where));
  started_ = true;
  return part([&] { return result(run_.step(steps_done_, batches).value()); });
}

StepResult Engine::Implementation::result(const report::StepRecord& record) {
  ++steps_done_;
  return {record.step,          record.outcome.loss, record.outcome.gradient_norm,
          record.learning_rate, record.applied,      record.step_s};
}

std::vector<Batch> Engine::Implementation::batches(const Where& where) const {
  if (!loader_)
    refuse(
        "batches", where,
        "data.path is not given, and batches are read from the file it names; give it, or bring batches of your own");
  std::vector<Batch> result;
  for (data::TokenBatch& batch : run_.read(steps_done_))
    result.push_back({std::move(batch.tokens), std::move(batch.targets)});
  return result;
}

Engine::Engine(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
Engine::Engine(Engine&& other) noexcept = default;
Engine& Engine::operator=(Engine&& other) noexcept = default;
Engine::~Engine() = default;

Loss Engine::forward(const Batch& batch, Where where) {
  return implementation_->forward(batch, where);
}
void Engine::backward(const Loss& loss, Where where) {
  implementation_->backward(loss, where);
}
StepResult Engine::step(Where where) {
  return implementation_->step(where);
}
StepResult Engine::train_batch(const std::vector<Batch>& micro_batches, Where where) {
  return implementation_->train_batch(micro_batches, where);
}
std::vector<Batch> Engine::batches(Where where) const {
  return implementation_->batches(where);
}
double Engine::evaluate(Where where) {
  return implementation_->evaluate(where);
}
double Engine::evaluate(const std::vector<Batch>& micro_batches, Where where) {
  return implementation_->evaluate(micro_batches, where);
}
std::string Engine::save_checkpoint(Where where) {
  return implementation_->save_checkpoint(where);
}
bool Engine::resume(const std::string& from, Where where) {
  return implementation_->resume(from, where);
}
void Engine::export_weights(const std::string& folder, Where where) {
  implementation_->export_weights(folder, where);
}

int Engine::rank() const {
  return implementation_->place().rank;
}
int Engine::ranks() const {
  return implementation_->place().world_size;
}
int Engine::data_rank() const {
  return implementation_->session().place().data;
}
int Engine::data_ranks() const {
  return static_cast<int>(implementation_->config().parallel.data);
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
  return implementation_->steps_done();
}
at::Device Engine::device() const {
  return implementation_->session().store().device();
}

}  // namespace strata
