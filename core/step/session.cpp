#include "step/session.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <algorithm>
#include <utility>

#include "group/group_plan.hpp"
#include "plugin_host/plugin_call.hpp"
#include "program/passes.hpp"
#include "step/connect_stages.hpp"

namespace strata::runtime {

namespace {
constexpr const char* sums_group = "stage";
constexpr const char* exchange_group = "optimizer";

// As ranks compare it: a part for each stage, of which a long one is its beginning and a hash.
std::string text_of(const StepPlan& plan) {
  constexpr std::size_t longest = 200;
  std::string text = "layers";
  for (std::size_t chunk = 0; chunk < plan.placement.stage_of_chunk.size(); ++chunk) {
    const auto [begin, end] = plan.placement.layers_of_chunk[chunk];
    text += " " + std::to_string(begin) + "-" + std::to_string(end - 1) + " on stage " +
            std::to_string(plan.placement.stage_of_chunk[chunk]);
  }
  for (std::size_t stage = 0; stage < plan.orders.size(); ++stage) {
    std::string order;
    for (const ComputeAction& action : plan.orders[stage]) order += " " + to_string(action);
    if (order.size() > longest)
      order = order.substr(0, longest) + " ... (hash " + std::to_string(std::hash<std::string>()(order)) + ")";
    text += "; stage " + std::to_string(stage) + ":" + order;
  }
  return text;
}
}  // namespace

// What layers see of the engine.
class Session::LayerContext final : public ModelContext {
 public:
  LayerContext(BatchShape batch, const NamedPlugin<PrecisionPolicy>& precision, int rank, Group* tensor)
      : products(*precision, precision.name, rank), batch_(batch), tensor_(tensor) {
    if (tensor != nullptr) products.cut_over(*tensor, batch);
  }
  const BatchShape& batch() const override { return batch_; }
  Group* tensor_group() override { return tensor_; }
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const Parameter* b) override { return products(x, w, b); }
  Tensors column_linear(const at::Tensor& x, const std::vector<Weight>& weights) override {
    return products.by_columns(x, weights);
  }
  at::Tensor row_linear(const at::Tensor& x, const Weight& weight) override { return products.by_rows(x, weight); }

  Linear products;

 private:
  BatchShape batch_;
  Group* tensor_;
};

// What plugins see of it; the partitioner all.
class Session::Context final : public PartitionContext {
 public:
  explicit Context(Session& session) : session_(session) {}
  const std::vector<FlatParameter*>& flat_parameters() const override { return session_.flat_; }
  Group& group(const std::string& name) override {
    const auto found = session_.groups_.find("partitioner." + name);
    if (found == session_.groups_.end())
      throw Bug(session_.stage_.partitioner.name + " asks for a group \"" + name + "\" that its groups() did not name");
    return *found->second;
  }
  Buffer& buffer(const BufferRequest& request) override {
    const FlatParameterInfo& flat = request.flat->info();
    return session_.stage_.buffers->make({request.category, flat.id}, flat.name, request.elements, request.dtype,
                                         request.resident);
  }
  bool moves(Category category) const override { return session_.stage_.buffers->plan().of(category) != nullptr; }
  StateStore& store() override { return *session_.stage_.store; }
  SlotPool& slots() override { return *session_.stage_.slots; }
  Device& device() override { return *session_.stage_.device; }

 private:
  Session& session_;
};

Session::Session(const config::RunConfig& config, PluginSet& plugins, GroupProvider& groups, const RankNumbers& place,
                 const std::string& model_config, bool dry_run, Purpose purpose, std::vector<LayerTime> measured)
    : plugins_(plugins),
      measured_(std::move(measured)),
      learning_rate_(plugins.learning_rate, config),
      mesh_(plugins.mesh()),
      place_(place_of(mesh_, place.rank)),
      policy_(purpose == Purpose::Training ? config.step_policy : config::StepPolicy::Plain),
      read_ahead_(config.offload.read_ahead),
      executor_(stage_) {
  const int rank = place.rank;
  stage_.rank = rank;
  stage_.stage = place_.pipeline;
  stage_.device = dry_run ? NamedPlugin<Device>{&dry_device_, plugins.device.name} : plugins.device;
  stage_.partitioner = plugins.partitioner;
  stage_.precision = plugins.precision;
  stage_.optimizer = plugins.optimizer;
  stage_.model_name = plugins.model.name;
  stage_.own_exchange = &plugins.own_exchange;
  batch_ = {config.train.micro_batch, config.model.seq_len, plugins.precision->activation(), mesh_.tensor,
            mesh_.tensor > 1 && config.sequence_parallel};
  stage_.sequence_parallel = batch_.sequence_parallel;
  stage_.store = std::make_unique<StateStore>(
      plugin_call(stage_.device.name, "select()", rank, [&] { return stage_.device->select(place.local_rank); }));
  stage_.slots = std::make_unique<SlotPool>(*stage_.store, *stage_.device);
  if (policy_ == config::StepPolicy::Speculative && !config.offload.homes().empty())
    throw UserError("step_policy is speculative and " + config.offload.homes().front()->slot +
                    " is given; a speculative step keeps what it changes twice on the device, and the inputs of the "
                    "step that it begins: set step_policy: plain or delayed, or leave offload out");
  context_ = std::make_unique<Context>(*this);
  for (const auto& [slot, plugin] : plugins.all())
    plugin_call(plugin.name, "run_begins()", rank, [&, &plugin = plugin] { plugin->run_begins(*context_); });
  plugin_call(stage_.model_name, "configure()", rank, [&] {
    if (!model_config.empty()) plugins.model->configure(model_config);
    if (config.model.seq_len > plugins.model->maximum_sequence_length())
      throw UserError("model.seq_len is " + std::to_string(config.model.seq_len) + "; this model takes at most " +
                      std::to_string(plugins.model->maximum_sequence_length()) + " tokens");
  });
  stage_.groups = &groups;
  stage_.world = groups_.emplace("world", groups.make(world_request(mesh_))).first->second.get();
  if (mesh_.tensor > 1)
    stage_.tensor = groups_.emplace("tensor", groups.make(tensor_request(mesh_, place_))).first->second.get();
  stage_.partitions_inputs = config.partitions_inputs && mesh_.tensor > 1;
  layer_context_ = std::make_unique<LayerContext>(batch_, plugins.precision, rank, stage_.tensor);
  stage_.linear = &layer_context_->products;
  place_layers(config, *plugins.scheduler);
  connect_groups(groups);
  connect_stages(*stage_.pipeline, plan_.placement, stage_.store->device());
  groups_.at("pipeline")->reset_traffic();  // which is of steps
  if (policy_ == config::StepPolicy::Speculative && !look_ahead(plan_).any()) policy_ = config::StepPolicy::Plain;
  std::optional<ParameterRules> rules;
  if (purpose == Purpose::Evaluation) {
    set_trainable([](const std::string&) { return false; });
  } else {
    learning_rate_.check_momentum(plugins.optimizer);
    rules.emplace(config.parameters, stage_.model_layers,
                  plugin_call(stage_.model_name, "checkpoint_names()", rank, [&] {
                    return config.parameters.empty() ? CheckpointNames() : plugins.model->checkpoint_names();
                  }));
    set_trainable([&](const std::string& parameter) { return rules->of(parameter).trainable; });
    connect_sums(groups);
    check_units();
  }
  find_ties();
  std::vector<Layer*> layers;
  std::vector<int> numbers;
  for (const StageLayer& layer : stage_.layers) {
    layers.push_back(layer.layer.get());
    numbers.push_back(layer.number);
  }
  std::map<std::string, ParameterInfo> first_uses;
  for (const auto& [name, tie] : ties_) first_uses.emplace(name, tie.first_use);
  stage_.layout =
      state::lay_out(layers, numbers, *plugins.precision, stage_.store->device(), splits_backward(), first_uses,
                     place_.tensor, mesh_.tensor, [&](const ParameterInfo& parameter) { return unit_of(parameter); });
  for (const auto& flat : stage_.layout.flat) flat_.push_back(flat.get());
  make_buffers(config);
  plugin_call(stage_.partitioner.name, "attach()", rank, [&] { stage_.partitioner->attach(*context_); });
  const std::vector<Slice> slices =
      plugin_call(stage_.partitioner.name, "owned()", rank, [&] { return stage_.partitioner->owned(); });
  state::check_ranges(slices, stage_.partitioner.name);
  state::check_cuts(slices, stage_.optimizer.name, stage_.partitioner.name);
  stage_.scalars = {.gradient_factor = at::ones({}, stage_.scalar_options()),
                    .apply = at::zeros({}, stage_.scalar_options())};
  state::OptimizerState::WriteTrained write_trained;
  if (purpose == Purpose::Training && plugins.optimizer->trains_elsewhere())
    write_trained = [this](const Piece& piece) {
      plugin_call(
          stage_.optimizer.name, [&] { return "write_trained(" + piece.info.parameter + ")"; }, stage_.rank,
          [&] { stage_.optimizer->write_trained(piece); });
    };
  stage_.optimizer_state =
      std::make_unique<state::OptimizerState>(slices, *plugins.optimizer, *stage_.buffers, flats_of_ties(true), policy_,
                                              config.offload.update_elements, std::move(write_trained));
  if (purpose == Purpose::Training) {
    check_updates_within_step(config);
    check_own_exchange(config);
    connect_own_exchange();
    connect_ties(groups);
  }
  for (state::OptimizerState::Entry& entry : stage_.optimizer_state->entries()) {
    if (!entry.trainable) continue;
    const ParameterSettings& settings = rules->of(entry.piece.info.parameter);
    entry.piece.learning_rate_factor = settings.learning_rate_factor;
    entry.piece.weight_decay = settings.weight_decay;
  }
  if (stage_.buffers->updates_on_host())
    stage_.host_copies = std::make_unique<state::HostCopies>(state::HostCopies::bytes_for(*stage_.optimizer_state),
                                                             *stage_.store, *stage_.device);
  if (purpose == Purpose::Training) {
    stage_.sums = std::make_unique<state::ParameterSums>(stage_.layout.flat, *plugins.optimizer, *stage_.store);
    const LayerOptions options = layer_options();
    program_ = lower_training(plan_, options, stage_.partitioner->lookahead(), stage_.stage);
    if (options.defers_updates)
      pending_updates_ = lower_pending_updates(plan_, options, stage_.partitioner->lookahead(), stage_.stage);
    make_input_buffers(program_);
    make_room(program_);
    make_room(pending_updates_);
  }
}

Session::~Session() = default;

Session::PluginsStop::~PluginsStop() {
  // Offload devices were made before the partitioner: what it has under way ends before they take their regions back.
  session.plugins_.shutdown(session.stage_.partitioner.plugin);
  session.stage_.host_copies.reset();
  session.stage_.optimizer_state.reset();
  session.stage_.buffers.reset();
  session.plugins_.shutdown();
}

// Every rank describes every layer, builds its own, and comes to the same placement.
void Session::place_layers(const config::RunConfig& config, Scheduler& scheduler) {
  const Model& model = *plugins_.model;
  stage_.layers_in_model = plugin_call(stage_.model_name, "layers()", stage_.rank, [&] { return model.layers(); });
  std::vector<bool> recompute;
  for (int number = 0; number < stage_.layers_in_model; ++number) {
    stage_.model_layers.push_back(plugin_call(
        stage_.model_name, [&] { return "describe(" + std::to_string(number) + ")"; }, stage_.rank,
        [&] { return model.describe(number, batch_); }));
    recompute.push_back(config.recompute.covers(number));
  }
  attach_precision();
  std::vector<LayerTime> times = measured_;
  if (times.empty() && cuts_by_time(config.cut) && !stage_.store->dry_run())
    times = measure_layers(
        stage_.model_layers, recompute, batch_, model.vocabulary(),
        [&](int number) { return model.build(number, *layer_context_); }, stage_, stage_.store->device());
  if (!times.empty() && times.size() != stage_.model_layers.size())
    throw UserError("the measured times are of " + std::to_string(times.size()) + " layers, and the model has " +
                    std::to_string(stage_.model_layers.size()));
  const std::vector<LayerCost> costs = layer_costs(stage_.model_layers, config.cut, times);
  for (const std::int64_t layer : config.recompute.layers)
    if (layer < 0 || layer >= stage_.layers_in_model)
      throw UserError("activations.checkpoint names layer " + std::to_string(layer) + "; this model has layers 0 to " +
                      std::to_string(stage_.layers_in_model - 1));
  auto chunks = static_cast<int>(config.chunks_per_stage);
  if (chunks == 0)
    chunks = plugin_call(plugins_.scheduler.name, "chunks_per_stage()", stage_.rank,
                         [&] { return scheduler.chunks_per_stage(mesh_.pipeline, stage_.layers_in_model); });
  PipelineShape shape{mesh_.pipeline, chunks, static_cast<int>(config.train.accumulation)};
  shape.layers_per_chunk.assign(config.layers_per_chunk.begin(), config.layers_per_chunk.end());
  plan_ = plan_step(plugins_.scheduler.name, scheduler, shape, costs);
  stage_.groups->agree("the orders of " + plugins_.scheduler.name, text_of(plan_),
                       "place() and order() are pure functions, the same in every process: they may not depend on the "
                       "rank, the time, a counter or an address");
  stage_.placement = plan_.placement;
  stage_.updates_within_step = updates_within_step(plan_.orders);
  for (std::size_t chunk = 0; chunk < plan_.placement.layers_of_chunk.size(); ++chunk) {
    if (plan_.placement.stage_of_chunk[chunk] != stage_.stage) continue;
    const auto [begin, end] = plan_.placement.layers_of_chunk[chunk];
    for (int number = begin; number < end; ++number) {
      StageLayer& layer = stage_.layers.emplace_back();
      layer.number = number;
      layer.info = stage_.model_layers[static_cast<std::size_t>(number)];
      layer.recompute = config.recompute.covers(number);
      layer.layer = plugin_call(
          stage_.model_name, [&] { return "build(" + std::to_string(number) + ")"; }, stage_.rank,
          [&] { return model.build(number, *layer_context_); });
    }
  }
}

void Session::attach_precision() {
  PrecisionPolicy& precision = *plugins_.precision;
  plugin_call(plugins_.precision.name, "attach()", stage_.rank, [&] { precision.attach(stage_.model_layers); });
  const auto maxima = [&] { return precision.maxima(); };
  if (policy_ != config::StepPolicy::Speculative ||
      !plugin_call(plugins_.precision.name, "maxima()", stage_.rank, maxima).defined())
    return;
  throw UserError("step_policy is speculative, and with its options " + plugins_.precision.name +
                  " needs in a step what all ranks measured in the one before, for whose end the step does not wait; "
                  "set step_policy: plain or delayed, or the precision's options so that it measures nothing");
}

// The engine's own groups but the world, then the partitioner's, one after the other in the same order on every rank.
void Session::connect_groups(GroupProvider& groups) {
  groups_.emplace("pipeline", groups.make(pipeline_request(mesh_, place_)));
  stage_.pipeline = groups_.at("pipeline").get();
  const std::vector<GroupSpec> specs =
      plugin_call(stage_.partitioner.name, "groups()", stage_.rank, [&] { return stage_.partitioner->groups(mesh_); });
  for (const GroupSpec& spec : specs) {
    if (groups_.count("partitioner." + spec.name) != 0)
      throw Bug(stage_.partitioner.name + " names group \"" + spec.name + "\" twice");
    if (spec.name == exchange_group)
      throw Bug(stage_.partitioner.name + " names a group \"" + spec.name + "\", as the engine's own is called");
    const GroupRequest request = plugin_call(stage_.partitioner.name, "groups()", stage_.rank,
                                             [&] { return data_parallel_request(mesh_, place_, spec); });
    groups_.emplace("partitioner." + spec.name, groups.make(request));
  }
}

// The ranks of the stage, for the sums that the optimizer asks for, and the data-parallel ones, for what it sends
// itself. Every rank looks at the whole model, so all come to the same answer.
void Session::connect_sums(GroupProvider& groups) {
  std::vector<ParameterInfo> parameters;
  for (const LayerInfo& layer : stage_.model_layers)
    parameters.insert(parameters.end(), layer.parameters.begin(), layer.parameters.end());
  sums_of_round_ = plugin_call(stage_.optimizer.name, "sums()", stage_.rank,
                               [&] { return state::sums_of_round(parameters, *stage_.optimizer); });
  if (std::find(sums_of_round_.begin(), sums_of_round_.end(), true) != sums_of_round_.end()) {
    groups_.emplace(sums_group, groups.make(stage_request(mesh_, place_)));
    stage_.peers = groups_.at(sums_group).get();
  }
  if (plugins_.own_exchange.optimizer() == nullptr) return;
  GroupSpec all{exchange_group, {{}}};
  for (int rank = 0; rank < mesh_.data; ++rank) all.members.front().push_back(rank);
  groups_.emplace(exchange_group, groups.make(data_parallel_request(mesh_, place_, all)));
  stage_.data = groups_.at(exchange_group).get();
}

std::int64_t Session::unit_of(const ParameterInfo& parameter) const {
  if (!parameter.trainable) return 1;
  const std::int64_t unit = plugin_call(stage_.optimizer.name, "unit()", stage_.rank,
                                        [&] { return stage_.optimizer->unit(PieceInfo::whole(parameter)); });
  if (unit < 1)
    throw Bug(stage_.optimizer.name + " updates " + parameter.name + " in units of " + std::to_string(unit) +
              " elements; a unit has at least one");
  return unit;
}

// Every rank looks at the whole model, so all come to the same answer.
void Session::check_units() const {
  if (mesh_.tensor == 1) return;
  for (const LayerInfo& layer : stage_.model_layers)
    for (const ParameterInfo& parameter : layer.parameters) {
      const std::int64_t unit = unit_of(parameter);
      if (unit == 1 || ParameterCut(parameter, mesh_.tensor).keeps_together(unit)) continue;
      throw UserError("parallel.tensor is " + std::to_string(mesh_.tensor) + ", and " + stage_.optimizer.name +
                      " updates " + std::to_string(unit) + " neighbouring elements of " + parameter.name +
                      " together, which lie in the parts of several ranks; set it to 1, or choose an optimizer that "
                      "updates each element by itself");
    }
}

// Whether other ranks make parts of its gradient that the partitioner does not add up.
bool Session::is_replicated(const FlatParameter& flat) const {
  const bool in_parts = std::ranges::any_of(flat.info().parameters, [&](const ParameterSpan& span) {
    return span.info.sums_over_tensor(batch_.sequence_parallel);
  });
  return stage_.holders.contains(flat.info().id) || (stage_.tensor != nullptr && in_parts);
}

bool Session::splits_backward() const {
  const auto is_split = [](const ComputeAction& action) { return action.kind == ComputeKind::BackwardInput; };
  return std::any_of(plan_.orders.begin(), plan_.orders.end(),
                     [&](const auto& order) { return std::any_of(order.begin(), order.end(), is_split); });
}

void Session::set_trainable(const std::function<bool(const std::string& parameter)>& trainable) {
  stage_.first_trainable = stage_.layers_in_model;
  for (int number = stage_.layers_in_model; number-- > 0;)
    for (ParameterInfo& parameter : stage_.model_layers[static_cast<std::size_t>(number)].parameters) {
      parameter.trainable = trainable(parameter.name);
      if (parameter.trainable) stage_.first_trainable = number;
    }
  for (StageLayer& layer : stage_.layers) {
    layer.info = stage_.model_layers[static_cast<std::size_t>(layer.number)];
    for (Parameter* parameter : layer.layer->parameters()) parameter->info.trainable = trainable(parameter->info.name);
  }
}

LayerOptions Session::layer_options() const {
  LayerOptions options;
  options.parameters.flat_parameters_of_layer.resize(static_cast<std::size_t>(stage_.layers_in_model));
  options.recompute.resize(static_cast<std::size_t>(stage_.layers_in_model));
  options.parameters.input_moves.resize(static_cast<std::size_t>(stage_.layers_in_model));
  for (std::size_t local = 0; local < stage_.layers.size(); ++local) {
    const auto number = static_cast<std::size_t>(stage_.layers[local].number);
    options.parameters.flat_parameters_of_layer[number] = stage_.layout.flat_of_layer[local];
    options.recompute[number] = stage_.layers[local].recompute;
    options.parameters.input_moves[number] = input_moves(stage_.layers[local].number);
  }
  for (const auto& flat : stage_.layout.flat) {
    const FlatParameterInfo& info = flat->info();
    const auto bytes = [&](Category category, bool kept = false) {
      return stage_.buffers->moving_bytes({category, info.id, kept});
    };
    // Their state's bytes: the parts but the last are of one size.
    const int parts = stage_.optimizer_state->update_parts(info.id);
    std::int64_t state = 0;
    for (int part = 0; part < parts; ++part)
      state += stage_.buffers->moving_bytes({Category::Optimizer, info.id, false, part});
    options.parameters.flat_parameters.push_back(
        FlatParameterSize{.elements = info.elements,
                          .trainable = info.trainable,
                          .deferred = info.deferred,
                          .parameter_moves = bytes(Category::Parameter),
                          .gradient_moves = bytes(Category::Gradient),
                          .state_moves = state,
                          .kept_moves = bytes(Category::Gradient, true),
                          .update_parts = parts,
                          .updates_at_home = stage_.buffers->updates_on_host()});
  }
  for (const FlatParameter* const flat : flat_)
    if (flat->info().trainable && is_replicated(*flat)) options.replicated.push_back(flat->info().id);
  options.sums_of_round = sums_of_round_;
  options.policy = policy_;
  // By what is equal on the ranks of a stage: one may own nothing that moves.
  options.defers_updates =
      policy_ == config::StepPolicy::Plain && stage_.updates_within_step == 0 && !stage_.buffers->updates_on_host() &&
      std::ranges::any_of(stage_.layout.flat, [&](const auto& flat) {
        const OffloadDevice* const home = stage_.buffers->plan().home_of(Category::Optimizer, flat->info().id);
        return flat->info().trainable && home != nullptr && !home->limits().mapped;
      });
  options.read_ahead = stage_.buffers->moves_in_background() ? read_ahead_ : 0;
  return options;
}

void Session::fill(const ValueSource& source) {
  for (state::OptimizerState::Entry& entry : stage_.optimizer_state->entries()) {
    const PieceInfo& piece = entry.piece.info;
    entry.for_each_run(entry.master, 0, piece.end - piece.begin, [&](std::int64_t whole, const BufferRange& part) {
      stage_.buffers->with(part, state::Access::Write, [&](const at::Tensor& values) {
        source(entry.span->info, whole, whole + part.elements, values);
      });
    });
    stage_.optimizer_state->write_parameter(entry);
  }
  publish();
}

void Session::compute_with(Weights weights) {
  if (weights == weights_ || !stage_.optimizer_state->trains_elsewhere()) return;
  const c10::NoGradGuard no_grad;
  state::OptimizerState& state = *stage_.optimizer_state;
  for (const state::OptimizerState::Entry& entry : state.entries())
    if (weights == Weights::Trained)
      state.write_parameter(entry);
    else
      state.write_evaluated(entry);
  publish_values();
  weights_ = weights;
}

void Session::publish() {
  publish_values();
  weights_ = Weights::Trained;
  check_values();
}

void Session::publish_values() {
  std::vector<state::Buffers::Movement> movements;
  for (const FlatParameter* const flat : flat_)
    for (const bool comes : {true, false}) movements.push_back({{Category::Parameter, flat->info().id}, comes});
  stage_.buffers->make_room(movements);
  for (FlatParameter* flat : flat_) {
    const state::Moved values{Category::Parameter, flat->info().id};
    stage_.buffers->fetch(values, true);
    stage_.buffers->await(values);
    plugin_call(
        stage_.partitioner.name, [&] { return "publish(" + flat->info().name + ")"; }, stage_.rank,
        [&] { stage_.partitioner->publish(*flat); });
    stage_.buffers->store(values, false);
  }
}

StepOutcome Session::step(const StepInput& input, const StepInput* next) {
  strata_check(!program_.empty(), "a session made for evaluation cannot train");
  compute_with(Weights::Trained);
  return executor_.run(program_, input, next);
}

void Session::make_pending_updates() {
  if (pending_updates_.empty() || !executor_.has_pending_update()) return;
  executor_.make_pending_updates(pending_updates_);
}

void Session::evaluate(const std::vector<MicroBatch>& batches, const at::Tensor& sums) {
  make_pending_updates();
  compute_with(Weights::Evaluated);
  const int micro_batches = static_cast<int>(batches.size());
  const auto [found, fresh] = evaluations_.try_emplace(micro_batches);
  if (fresh) {
    const LayerOptions layers = layer_options();
    Lookahead lookahead = stage_.partitioner->lookahead();
    // Between two micro-batches a forward program would gather the last layer and the first at once, often the two
    // largest; a training step never does, and where it fits its validation must.
    if (!program_.empty() && !lookahead.resident)
      lookahead.live_parameters = std::min(lookahead.live_parameters, peak_live_elements(program_, layers.parameters));
    found->second = lower_evaluation(plan_, layers, lookahead, stage_.stage, micro_batches);
    make_room(found->second);
  }
  StepInput input;
  input.batches = batches;
  executor_.evaluate(found->second, input, sums);
}

MeanLosses Session::mean_losses(const at::Tensor& sums, std::int64_t valid_tokens) {
  sums.select(0, LossSums::valid_tokens).fill_(static_cast<double>(counted(valid_tokens)));
  stage_.world->all_reduce(sums, ReduceOperation::Sum).wait();
  return MeanLosses::of(sums.cpu().const_data_ptr<double>());
}

}  // namespace strata::runtime
