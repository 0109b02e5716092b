#include "tools/checkpoint/checkpoint.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <strata/error.hpp>
#include <strata/model.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/hugging_face.hpp"
#include "checkpoint/ranges.hpp"
#include "checkpoint/resume_rules.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "checkpoint/weights.hpp"
#include "config/schema.hpp"
#include "plugins/engine_plugins.hpp"
#include "text/printable.hpp"
#include "text/size.hpp"
#include "tools/command/command.hpp"

namespace strata::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t chunk_elements = std::int64_t{1} << 22;  // 16 MiB of fp32 at a time

bool holds_checkpoint(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::path(path) / checkpoint::checkpoint_file_name, error) ||
         !checkpoint::CheckpointFolder(path).steps().empty();
}

checkpoint::TrainingCheckpoint open_checkpoint(const std::string& path) {
  checkpoint::TrainingCheckpoint saved = checkpoint::read_latest(path);
  checkpoint::verify(saved);
  return saved;
}

std::int64_t weights_in(const checkpoint::TrainingCheckpoint& saved) {
  std::int64_t elements = 0;
  for (const checkpoint::SavedParameter& parameter : saved.parameters)
    elements += checkpoint::element_count(parameter.shape);
  return elements;
}

std::int64_t bytes_in(const checkpoint::TrainingCheckpoint& saved) {
  std::uint64_t bytes = 0;
  for (const checkpoint::SavedFile& file : saved.files) bytes += file.bytes;
  return static_cast<std::int64_t>(bytes);
}

std::string setting(const checkpoint::TrainingCheckpoint& saved, const std::string& key) {
  const std::string* const value = saved.setting(key);
  if (value == nullptr)
    throw UserError(Place{saved.folder.string()},
                    "the checkpoint's config has no {}; use the version of Strata that wrote it", key);
  return *value;
}

// "1 rank", "2 ranks".
std::string count(std::int64_t number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

// The optimizer states of all parameters.
std::vector<std::string> optimizer_states(const checkpoint::TrainingCheckpoint& saved) {
  const checkpoint::RangeSource source(saved.folder, saved.files, saved.parameters);
  std::set<std::string> all;
  for (const checkpoint::SavedParameter& parameter : saved.parameters)
    for (const std::string& state : source.states(parameter.name)) all.insert(state);
  all.erase(checkpoint::master_state);
  all.erase(state::OptimizerState::kept_gradient);
  return {all.begin(), all.end()};
}

nlohmann::ordered_json to_json(const checkpoint::TrainingCheckpoint& saved, const std::vector<std::string>& states) {
  nlohmann::ordered_json parallel;
  for (const Axis axis : axes) parallel[name_of(axis)] = saved.layout.mesh.size(axis);
  nlohmann::ordered_json json = {{"path", saved.folder.string()},
                                 {"format", saved.format},
                                 {"step", saved.step},
                                 {"updates", saved.updates},
                                 {"optimizer_updates", saved.optimizer_updates},
                                 {"samples", saved.samples},
                                 {"world_size", saved.layout.world_size},
                                 {"parallel", parallel},
                                 {"parameters", saved.parameters.size()},
                                 {"weights", weights_in(saved)},
                                 {"optimizer_state", states},
                                 {"pending_update", saved.pending.has_value()},
                                 {"finite", saved.is_finite()},
                                 {"not_finite", saved.not_finite},
                                 {"bytes", bytes_in(saved)},
                                 {"verified", true}};
  json["files"] = nlohmann::ordered_json::array();
  for (const checkpoint::SavedFile& file : saved.files)
    json["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3", checkpoint::format_checksum(file.checksum)}});
  json["config"] = nlohmann::ordered_json::object();
  for (const auto& [key, value] : saved.config) json["config"][key] = value;
  return json;
}

// Finds the model plugin by name in the folders that the user gave; a checkpoint from somebody else decides no path.
const plugins::FoundPlugin& find_model(const checkpoint::TrainingCheckpoint& saved, const std::string& name,
                                       plugins::PluginRegistry& registry) {
  if (name.find('/') != std::string::npos)
    throw UserError(Place{saved.folder.string()},
                    "the checkpoint gives its model plugin by a path, {}, and Strata loads no code from such a path; "
                    "export with the run's own config: strata train CONFIG --resume {} --export FOLDER",
                    text::one_line(name), saved.folder.string());
  try {
    return registry.find(PluginKind::Model, name);
  } catch (const UserError& error) {
    throw UserError("{}; for a plugin of your own, give its folder with --plugin-path FOLDER", error.what());
  }
}

// The model options of the saved run, parsed with the schema of the plugin that is installed here.
OptionValues saved_options(const checkpoint::TrainingCheckpoint& saved, const plugins::FoundPlugin& plugin) {
  OptionValues values = default_options(plugin.manifest.options);
  for (const OptionSpec& spec : plugin.manifest.options) {
    const std::string* const text = saved.setting("model." + plugin.manifest.name + "." + spec.name);
    if (text != nullptr) values.set(spec.name, parse_option(spec, *text));
  }
  return values;
}

}  // namespace

int checkpoint_info(const CheckpointArguments& arguments, std::ostream& out) {
  const checkpoint::TrainingCheckpoint saved = open_checkpoint(arguments.path);
  const std::vector<std::string> states = optimizer_states(saved);
  if (arguments.format == "json") {
    out << to_json(saved, states).dump(2) << "\n";
    return 0;
  }
  const std::string state_text = fmt::format("{}", fmt::join(states, ", "));
  out << saved.folder.string() << "\n  step             " << saved.step << " (" << saved.optimizer_updates
      << " updates, " << saved.samples << " samples)\n  model            " << setting(saved, "model.plugin") << ", "
      << weights_in(saved) << " weights in " << saved.parameters.size() << " parameters\n  optimizer        "
      << setting(saved, "optimizer.plugin") << (state_text.empty() ? "" : ": ") << state_text
      << (saved.pending ? "\n  pending          the update of the last step's gradient (step_policy: delayed)" : "")
      << (saved.is_finite() ? "" : "\n  not finite       " + saved.not_finite + "; --resume skips it")
      << "\n  saved by         " << count(saved.layout.world_size, "rank") << ": " << text_of(saved.layout.mesh)
      << "\n  size             " << text::format_bytes(bytes_in(saved)) << " in " << saved.files.size() + 1
      << " files, all verified\n";
  return 0;
}

int checkpoint_export(const CheckpointArguments& arguments, std::ostream& out) {
  if (holds_checkpoint(arguments.folder) && !holds_checkpoint(arguments.path))
    throw UserError(Place{arguments.folder},
                    "this is a checkpoint, given as the folder to write; the checkpoint comes first: strata checkpoint "
                    "export {} {}",
                    arguments.folder, arguments.path);
  checkpoint::check_export_folder(arguments.folder);
  const checkpoint::TrainingCheckpoint saved = open_checkpoint(arguments.path);
  const std::shared_ptr<plugins::PluginRegistry> registry = plugins::open_registry(arguments.plugin_path);
  const std::string name = setting(saved, "model.plugin");
  const plugins::FoundPlugin& found = find_model(saved, name, *registry);
  const std::unique_ptr<PluginContext> context = plugins::asking_context(found, saved_options(saved, found));
  const std::unique_ptr<Model> model = registry->create<Model>(name, *context);
  if (!saved.model_config.empty()) model->configure(saved.model_config);

  std::vector<LayerInfo> layers;
  for (int layer = 0; layer < model->layers(); ++layer) layers.push_back(model->describe(layer, BatchShape{}));
  checkpoint::check_model(saved, layers);
  const checkpoint::NameMap map = checkpoint::name_map(*model, layers);
  const checkpoint::RangeSource source(saved.folder, saved.files, saved.parameters);
  const std::string* const init = saved.setting("model.init");
  const std::unique_ptr<checkpoint::HuggingFaceExporter> exporter = checkpoint::weights_folder(
      arguments.folder, *model, map, checkpoint::export_type(arguments.dtype, saved.model_config),
      {init == nullptr ? "" : *init, saved.model_config});
  for (const checkpoint::NameMapEntry& entry : map.entries) {
    const std::int64_t elements = checkpoint::element_count(entry.shape);
    for (std::int64_t begin = 0; begin < elements; begin += chunk_elements) {
      const std::int64_t end = std::min(elements, begin + chunk_elements);
      const at::Tensor chunk = at::empty({end - begin}, at::kFloat);
      source.read(entry.canonical, checkpoint::master_state, begin, end, chunk);
      exporter->write_range(entry.external.front(), begin, chunk);
    }
  }
  exporter->finish();
  out << arguments.folder << ": the weights of " << saved.folder.string() << ", step " << saved.step << ", in "
      << arguments.dtype << "\n";
  return 0;
}

void add_checkpoint(CommandLine& line) {
  CLI::App& checkpoint = *line.app.add_subcommand("checkpoint", "Inspect and export checkpoints");
  static CheckpointArguments arguments;
  checkpoint.require_subcommand(1);
  CLI::App& info = *checkpoint.add_subcommand("info", "Describe a checkpoint and verify its checksums");
  CLI::App& to_folder = *checkpoint.add_subcommand("export", "Write a checkpoint's weights in Hugging Face format");
  for (CLI::App* const command : {&info, &to_folder})
    command->add_option("path", arguments.path, "Checkpoint, or folder of checkpoints for the latest one")->required();
  add_format(info, arguments.format, {"text", "json"});
  info.footer("  strata checkpoint info ckpt");
  line.on(info, [] { return checkpoint_info(arguments, std::cout); });
  to_folder.add_option("folder", arguments.folder, "Folder to write; must be new or empty")->required();
  to_folder.add_option("--plugin-path", arguments.plugin_path,
                       "Folders to search for the model plugin first, separated by colons");
  to_folder
      .add_option("--dtype", arguments.dtype,
                  "Type of the weights; source: the type in the folder that the run started from")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "source"}));
  to_folder.footer(
      "Also copies the other files of the folder that the run started from (model.init), such as tokenizer, "
      "generation_config.json and chat templates, and the keys of its config.json.\n"
      "  strata checkpoint export ckpt hf_folder\n"
      "  strata checkpoint export ckpt hf_folder --dtype bfloat16");
  line.on(to_folder, [] { return checkpoint_export(arguments, std::cout); });
}

}  // namespace strata::cli
