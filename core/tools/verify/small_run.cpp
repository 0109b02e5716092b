#include "tools/verify/small_run.hpp"

#include <strata/error.hpp>
#include <strata/model.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>

#include "config/defaults.hpp"
#include "data/file.hpp"
#include "plan/dry_run.hpp"
#include "program/validate_schedule.hpp"
#include "tools/chosen/model_sizes.hpp"

namespace strata::verify {

namespace {

constexpr std::int64_t sequence_length = 17;  // odd: nothing may have to divide it
constexpr std::int64_t micro_batch = 2;
constexpr std::int64_t vocabulary = 97;
constexpr std::int64_t head_size = 8;
constexpr std::int64_t most_parameters = 20'000'000;
constexpr std::size_t documents = 400;
constexpr const char* device = "cpu";
// Optimizers that divide a gradient by its own size move an element that is nothing but rounding by up to this, so that
// large ones make right runs differ: by 1.4 of the second step's bound at 1e-2 with AdamW, by 2.2 in another model at
// 1e-3. An update that is missing on a rank changes gradients by thousands of bounds here, and with SGD by ten.
constexpr const char* learning_rate = "3e-5";

// Settings that a user may change: sizes of the model, micro-batches, places of offloaded state.
bool is_left_to_user(const std::string& key) {
  return key.starts_with("model.") || key.starts_with("offload.") || key == "train.accumulation";
}

std::vector<std::string> with(const Run& user_run, const std::vector<std::string>& settings) {
  std::vector<std::string> all = user_run.settings;
  for (const std::string& setting : settings) {
    const std::string key = setting.substr(0, setting.find('='));
    const bool given =
        std::ranges::any_of(user_run.settings, [&](const std::string& one) { return one.starts_with(key + "="); });
    if (!given || !is_left_to_user(key)) all.push_back(setting);
  }
  return all;
}

// The values of keys of the mesh, which must be known before a config with a number of ranks can be resolved; 1 for
// what is not there, or is no number: resolving says that.
std::int64_t given_ranks(const Run& user_run) {
  std::vector<config::Node> trees = config::read_trees(user_run.config, user_run.settings);
  const plugins::EnginePlugins plugins(plugins::open_registry(config::plugin_path(trees)));
  if (const resolve::Dialect* dialect = resolve::dialect_of(trees[1])) dialect->translate(trees, plugins, {});
  std::int64_t ranks = 1;
  for (const Axis axis : axes_without({Axis::Data})) {
    std::string text = "1";
    for (const config::Node& tree : trees)
      if (const config::Node* const node = config::find(tree, config::key_of(axis))) text = node->text;
    if (text.size() < 7 && !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }))
      ranks *= std::max<std::int64_t>(1, std::stoll(text));
  }
  return ranks;
}

resolve::ResolvedRun read(const Run& run) {
  return resolve::read_run(run.config, run.settings, config::World::started_here(run.ranks),
                           config::DataSection::Optional);
}

// Documents of random lengths, each ended by token 0: some are longer than a sample, most leave targets that do not
// count, so that no two ranks count equally many.
std::string write_tokens(const std::string& folder) {
  std::mt19937_64 draw(20250811);  // the same on every machine: no distribution of the library's
  std::vector<std::uint16_t> tokens;
  for (std::size_t document = 0; document < documents; ++document) {
    for (std::uint64_t length = 3 + draw() % 30; length > 0; --length)
      tokens.push_back(static_cast<std::uint16_t>(1 + draw() % (vocabulary - 1)));
    tokens.push_back(0);
  }
  const std::string path = (std::filesystem::path(folder) / "tokens.bin").string();
  const std::string bytes(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size());
  std::error_code none;
  if (std::filesystem::exists(path, none)) {  // of an earlier --keep, or the user's own
    const data::InputFile file(path);
    std::string there(std::min<std::size_t>(file.size(), bytes.size() + 1), '\0');
    file.read_at(0, there.data(), there.size());
    if (there == bytes) return path;
    throw UserError(Place{path},
                    "is another file than the tokens to keep and is not overwritten; keep them in another folder");
  }
  data::OutputFile file(path);
  file.write_at(0, bytes.data(), bytes.size());
  file.finish();
  return path;
}

// The model's options that are sizes.
std::vector<std::string> sizes(const config::RunConfig& config, const std::vector<OptionSpec>& options,
                               std::int64_t layers, std::int64_t tensor) {
  using cli::ModelSize;
  const std::int64_t heads = std::max<std::int64_t>(4, 2 * tensor);
  std::map<ModelSize, std::int64_t> values{{ModelSize::Width, heads * head_size},
                                           {ModelSize::Layers, layers},
                                           {ModelSize::Heads, heads},
                                           {ModelSize::KeyValueHeads, heads / 2},
                                           {ModelSize::HeadSize, head_size},
                                           {ModelSize::InnerWidth, tensor * (heads * head_size / tensor + 1)},
                                           {ModelSize::Vocabulary, vocabulary}};
  std::map<ModelSize, std::int64_t> given;
  for (const OptionSpec& option : options)
    if (const auto size = cli::model_size(option)) given[*size] = config.model.plugin.options.integer(option.name);
  if (given[ModelSize::KeyValueHeads] != 0 && given[ModelSize::KeyValueHeads] == given[ModelSize::Heads])
    values[ModelSize::KeyValueHeads] = heads;
  std::vector<std::string> settings;
  for (const OptionSpec& option : options)
    if (const auto size = cli::model_size(option))
      settings.push_back(format("model.{}.{}={}", config.model.plugin.name, option.name, values.at(*size)));
  return settings;
}

// Whether the rule of `communicator: auto` names it, and for another device only.
bool is_of_other_device(const std::string& communicator) {
  const config::Node defaults = config::read_defaults();
  bool here = false, elsewhere = false;
  for (const config::Entry& rule : config::find(defaults, "automatic.communicator")->entries) {
    const auto names = [&](const config::Node& node) { return node.text == communicator; };
    (rule.key == device ? here : elsewhere) |= names(rule.value) || std::ranges::any_of(rule.value.items, names);
  }
  return elsewhere && !here;
}

// As the user has it; where plugins of its device are not built here, as for this machine's.
resolve::ResolvedRun read_here(Run own) {
  try {
    return read(own);
  } catch (const UserError&) {
    own.settings.push_back("device.plugin=" + std::string(device));
    try {
      return read(own);
    } catch (const UserError&) {  // the first error is about what the user gave
    }
    throw;
  }
}

// An option given next to a slot's plugin, under its name: `partitioner.order` as `partitioner.mine.order`. So it stays
// the plugin's when another one replaces it.
std::vector<std::string> under_names(std::vector<std::string> settings, const config::RunConfig& config) {
  for (std::string& setting : settings)
    for (const config::PluginChoice* choice : config.plugins()) {
      const std::string key = setting.substr(0, setting.find('=')), prefix = choice->slot + ".";
      if (key.starts_with(prefix) && choice->options.contains(key.substr(prefix.size())))
        setting.insert(prefix.size(), choice->name + ".");
    }
  return settings;
}

// The settings that make any model small, or hold only here. `promise`: the scheduler's.
std::vector<std::string> surroundings(const config::RunConfig& config, const plugins::Equivalence& promise,
                                      const std::string& folder) {
  std::vector<std::string> settings{"model.seq_len=" + std::to_string(sequence_length),
                                    default_plugin("data"),
                                    "data.order=sequential",
                                    "data.documents=separate",
                                    "data.document_end=0",
                                    "device.plugin=" + std::string(device),
                                    default_plugin("learning_rate"),
                                    "learning_rate.base=" + std::string(learning_rate),
                                    "learning_rate.warmup=0",
                                    "train.micro_batch=" + std::to_string(micro_batch),
                                    "train.global_batch=auto",
                                    "train.log_every=1",
                                    "parallel.data=auto",
                                    "parallel.layers_per_chunk=[]",
                                    "offload.automatic=false"};
  settings.emplace_back(R"(checkpoint.path="")");
  for (const config::Key& key : config::keys())  // no other file but the tokens is read or written
    if (key.effect.per_host() && key.option.name != "data.path") settings.push_back(key.option.name + R"(="")");
  // Where stages update by themselves, every token must count.
  if (promise.kind == plugins::Equivalence::Kind::Simulated) settings.push_back("data.documents=packed");
  if (is_of_other_device(config.communicator.plugin.name)) settings.push_back("communicator.plugin=auto");
  for (const config::PluginChoice* home : config.offload.homes())
    if (home->options.contains("path")) settings.push_back(home->slot + "." + home->name + ".path=" + folder);
  return settings;
}

}  // namespace

std::vector<std::string> small_sizes(const CheckedRun& run, std::int64_t tensor) {
  const config::PluginChoice& model = run.config().model.plugin;
  const std::vector<OptionSpec>& options =
      run.resolved.registry->find(PluginKind::Model, model.plugin).manifest.options;
  std::int64_t layers = 0;
  for (const OptionSpec& option : options)
    if (cli::model_size(option) == cli::ModelSize::Layers) layers = model.options.integer(option.name);
  return sizes(run.config(), options, layers, tensor);
}

std::string default_plugin(const std::string& slot) {
  static const config::Node defaults = config::read_defaults();
  const std::string key = slot + ".plugin";
  const config::Node* node = config::find(defaults, key);
  if (node == nullptr) node = config::find(defaults, slot);  // the short form, `communicator: auto`
  strata_check(node != nullptr, "a slot has a default");
  return key + "=" + node->text;
}

plugins::Equivalence equivalence(const CheckedRun& run, const config::PluginChoice& choice) {
  return plugins::equivalence_of(
      run.resolved.registry->find(*plugin_kind_from_string(choice.kind), choice.plugin).manifest, choice.options);
}

CheckedRun check(Run run) {
  CheckedRun checked{std::move(run), {}};
  checked.resolved = read(checked.run);
  plan::check_run(checked.config(), *checked.resolved.registry);
  return checked;
}

std::optional<CheckedRun> try_check(Run run) {
  try {
    return check(std::move(run));
  } catch (const program::WrongOrders&) {
    throw;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

CheckedRun make_small(const Run& user_run, const std::string& folder) {
  const std::int64_t mesh = given_ranks(user_run);
  Run own = user_run;  // as the user has it
  own.ranks = user_run.ranks > 0 ? user_run.ranks : static_cast<int>(2 * mesh);
  own.settings = with(user_run, {"parallel.data=auto", "train.micro_batch=1", "train.global_batch=auto"});
  const resolve::ResolvedRun resolved = read_here(own);
  const config::RunConfig& config = resolved.config;
  if (config.step_policy == config::StepPolicy::Local)
    throw UserError(
        "step_policy is local, and groups that train independently do not compute the gradients of a single process; "
        "verify the run with --set step_policy=plain");
  const Run named{user_run.config, under_names(user_run.settings, config), 0};
  std::vector<std::string> fixed = surroundings(
      config,
      plugins::equivalence_of(resolved.registry->find(PluginKind::Scheduler, config.scheduler.plugin).manifest,
                              config.scheduler.options),
      folder);
  fixed.push_back("data.path=" + write_tokens(folder));
  const std::vector<OptionSpec>& options =
      resolved.registry->find(PluginKind::Model, config.model.plugin.plugin).manifest.options;

  std::vector<std::int64_t> data_ranks{2, 3, 4, 8};
  if (user_run.ranks > 0) data_ranks = {user_run.ranks / mesh};
  std::optional<UserError> refusal;
  for (const std::int64_t data : data_ranks)
    for (const std::int64_t accumulation : {2, 3, 4, 6, 8, 12, 16, 1})
      for (const std::int64_t layers : {2, 3, 4, 6, 8, 12, 16, 24, 32, 64}) {
        std::vector<std::string> settings = fixed;
        for (const std::string& size : sizes(config, options, layers, config.parallel.size(Axis::Tensor)))
          settings.push_back(size);
        settings.push_back(format("train.accumulation={}", accumulation));
        try {
          CheckedRun small = check({named.config, with(named, settings), static_cast<int>(mesh * data)});
          const std::int64_t parameters = plan::parameters_of(*asked<Model>(small, small.config().model.plugin));
          if (parameters > most_parameters)
            throw UserError(
                "the smallest {}/{} that Strata can configure has {} parameters, because it does not recognize the "
                "model's size options, such as hidden_size, layers, heads, vocabulary; set small sizes with --set "
                "model.SIZE=N",
                config.model.plugin.kind, config.model.plugin.name, parameters);
          return small;
        } catch (const program::WrongOrders& error) {  // at no size is that right
          throw UserError(
              "with train.accumulation={}, {}\nA scheduler must refuse unsupported numbers of micro-batches with a "
              "UserError",
              accumulation, error.what());
        } catch (const UserError& error) {
          if (!refusal) refusal = error;
        }
      }
  throw *refusal;
}

std::vector<std::string> without_axis(Axis axis) {
  std::vector<std::string> settings{config::key_of(axis) + (axis == Axis::Data ? "=auto" : "=1")};
  const auto add = [&](std::initializer_list<const char*> keys) {
    settings.insert(settings.end(), keys.begin(), keys.end());
  };
  if (axis == Axis::Pipeline) add({"parallel.chunks=auto"});
  if (axis == Axis::Tensor) add({"parallel.sequence=false", "activations.partition=false"});
  return settings;
}

namespace {

bool has_own_way(const CheckedRun& run) {
  return equivalence(run, run.config().scheduler).kind == plugins::Equivalence::Kind::Simulated;
}

// The run without its mesh, in `parts` micro-batches.
Run plain(const CheckedRun& small, std::int64_t parts) {
  const config::RunConfig& config = small.config();
  Run run = small.run;
  const bool own_way = has_own_way(small);
  if (own_way) parts = config.train.accumulation;
  run.ranks = own_way ? static_cast<int>(config.parallel.size(Axis::Pipeline)) : 1;
  // The features left out; equal settings for equal plain runs.
  std::erase_if(run.settings, [&](const std::string& one) {
    const auto is_of = [&](const char* section) { return one.starts_with(section); };
    return is_of("partitioner") || is_of("offload.") || is_of("activations.") ||
           (!own_way && (is_of("scheduler") || is_of("parallel.")));
  });
  const auto put = [&](std::string setting) { run.settings.push_back(std::move(setting)); };
  for (const char* key : {"parallel.layers_per_chunk=[]", "activations.checkpoint=none", "activations.partition=false",
                          "communicator.plugin=auto", "offload.automatic=false", "step_policy=plain"})
    put(key);
  for (const Axis axis : axes)
    if (axis != Axis::Pipeline || !own_way)
      for (std::string& setting : without_axis(axis)) put(std::move(setting));
  for (const char* slot : {"offload.parameters", "offload.optimizer", "offload.activations"}) {
    put(std::string(slot) + ".plugin=none");
    put(std::string(slot) + "_ratio=1");
  }
  put(default_plugin("partitioner"));
  if (!own_way) put(default_plugin("scheduler"));
  put("train.micro_batch=" + std::to_string(config.train.global_batch / parts));
  put("train.accumulation=" + std::to_string(parts));
  return run;
}

}  // namespace

CheckedRun plain_run(const CheckedRun& small) {
  return check(plain(small, 1));
}

std::optional<CheckedRun> plain_run_by_samples(const CheckedRun& small) {
  if (has_own_way(small)) return std::nullopt;
  return check(plain(small, small.config().train.global_batch));
}

Run plain_run_for_step(const CheckedRun& small, Run plain, std::size_t step) {
  if (!is_delayed(small)) return plain;
  if (step < 2) {
    plain.settings.emplace_back("learning_rate.base=0");
    return plain;
  }
  // The rate of the first update, then 0.
  for (const char* setting :
       {"learning_rate.base=auto", "learning_rate.plugin=one_cycle", "learning_rate.one_cycle.cycle_max_lr=0",
        "learning_rate.one_cycle.cycle_first_step_size=1",
        "learning_rate.one_cycle.cycle_second_step_size=1000000000000"})
    plain.settings.emplace_back(setting);
  plain.settings.push_back("learning_rate.one_cycle.cycle_min_lr=" + std::string(learning_rate));
  return plain;
}

bool is_delayed(const CheckedRun& run) {
  return run.config().step_policy == config::StepPolicy::Delayed;
}

bool train_differently(const CheckedRun& one, const CheckedRun& other) {
  return has_own_way(one) != has_own_way(other) || is_delayed(one) != is_delayed(other);
}

}  // namespace strata::verify
