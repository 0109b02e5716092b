#include <strata/error.hpp>

#include <atomic>

#include "checkpoint/hugging_face.hpp"
#include "checkpoint/weights.hpp"
#include "plugin_host/engine_plugins.hpp"
#include "run/implementation.hpp"
#include "run/launch_groups.hpp"
#include "run/resolve_run.hpp"

namespace strata {

namespace {

constexpr const char* program_model = "program";  // what errors and `config show` call a model that the program brings

// What a config may not say when the program brings the model.
void check_no_model(const std::vector<config::Node>& layers) {
  for (const config::Node& layer : layers) {
    const config::Node* section = config::find(layer, "model");
    const config::Node* plugin =
        section != nullptr && section->kind == config::NodeKind::Map ? section->get("plugin") : section;
    if (plugin == nullptr || plugin->kind != config::NodeKind::Scalar) continue;
    throw UserError(
        plugin->place,
        "model.plugin is " + config::shown(plugin->text) +
            ", and this program brings a model of its own: leave model.plugin out, or initialize without a model");
  }
}

void add(plugin_host::PluginRegistry& registry, ProgramPlugin plugin) {
  registry.register_plugin(plugin.kind, plugin.name, std::move(plugin.make), std::move(plugin.options),
                           std::move(plugin.capabilities));
}

// The program's model while the config is resolved, when it is only asked: a dry run ends, and the model goes on.
class LentModel final : public Model {
 public:
  explicit LentModel(Model& model) : model_(model) {}
  void configure(const std::string& config_json) override { model_.configure(config_json); }
  int layers() const override { return model_.layers(); }
  std::int64_t vocabulary() const override { return model_.vocabulary(); }
  std::int64_t maximum_sequence_length() const override { return model_.maximum_sequence_length(); }
  LayerInfo describe(int layer, const BatchShape& batch) const override { return model_.describe(layer, batch); }
  std::unique_ptr<Layer> build(int layer, ModelContext& context) const override { return model_.build(layer, context); }
  CheckpointNames checkpoint_names() const override { return model_.checkpoint_names(); }
  std::string hugging_face_config(at::ScalarType dtype) const override { return model_.hugging_face_config(dtype); }

 private:
  Model& model_;
};

struct ProgramModel {
  std::unique_ptr<Model> model;
  bool lent = true;  // until the config is resolved
};

ProgramPlugin plugin_of(const std::shared_ptr<ProgramModel>& held) {
  const auto make = [held](PluginContext&) -> std::unique_ptr<Plugin> {
    if (!held->model) throw Bug("the program's model was taken before");
    if (held->lent) return std::make_unique<LentModel>(*held->model);
    return std::move(held->model);
  };
  return {PluginKind::Model, program_model, make, {}, {}};
}

std::optional<data::Loader> open_data(const config::RunConfig& config, const runtime::PluginSet& plugins) {
  if (config.data.path.empty()) return {};
  return runtime::open_data(config, config.data, plugins.data);
}

std::shared_ptr<const checkpoint::HuggingFaceFolder> open_folder(const std::string& path) {
  if (path.empty()) return {};
  return checkpoint::HuggingFaceFolder::open(path);
}

std::uint64_t next_identity() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

Engine make_engine(std::unique_ptr<Model> model, const std::string& config_file,
                   const std::vector<std::string>& settings, std::vector<ProgramPlugin> plugins) {
  const launch::LaunchPlace place = launch::read_environment();
  ProgramConfig program =
      read_program_config(std::move(model), config_file, settings, std::move(plugins), runtime::world_of(place));
  // What all ranks compare is read before the engine takes the config over.
  const std::shared_ptr<plugin_host::PluginRegistry> registry = program.registry;
  const config::RunConfig config = program.config;
  return Engine(std::make_unique<Engine::Implementation>(std::move(program),
                                                         runtime::RankPlace{place.rank, place.size, place.local_rank},
                                                         runtime::launch_groups(place, config, *registry)));
}

}  // namespace

ProgramConfig read_program_config(std::unique_ptr<Model> model, const std::string& config_file,
                                  std::vector<std::string> settings, std::vector<ProgramPlugin> plugins,
                                  const config::World& world) {
  std::vector<config::Node> layers = config::read_layers(config_file, settings);
  ProgramConfig program;
  program.registry = plugin_host::open_registry(config::plugin_path(layers));
  for (ProgramPlugin& plugin : plugins) add(*program.registry, std::move(plugin));
  const auto held = std::make_shared<ProgramModel>(ProgramModel{std::move(model)});
  if (held->model) {
    check_no_model(layers);
    settings.push_back(std::string("model.plugin=") + program_model);
    layers.back() = config::read_settings(settings);
    add(*program.registry, plugin_of(held));
  }
  program.config = runtime::resolve_run(std::move(layers), world, *program.registry,
                                        plugin_host::EnginePlugins(program.registry), config::DataSection::Optional)
                       .config;
  held->lent = false;
  return program;
}

Engine::Implementation::Implementation(ProgramConfig program, const runtime::RankPlace& place,
                                       const runtime::MakeGroups& make_groups)
    : program_(std::move(program)),
      place_(place),
      folder_(open_folder(program_.config.model.init)),
      plugins_(program_.config, *program_.registry, place.rank, place.world_size > 1),
      loader_(open_data(program_.config, plugins_)),
      groups_(make_groups(plugins_)),
      session_(program_.config, plugins_, *groups_, place, folder_ ? folder_->config_text() : "", /*dry_run=*/false),
      run_(loader_ ? runtime::Run(program_.config, session_, *loader_) : runtime::Run(program_.config, session_)),
      parts_(runtime::StepInParts::cut(session_.program(), session_.executor())),
      checkpoints_(program_.config.checkpoint.path),
      identity_(next_identity()) {
  if (place.rank == 0 && !program_.config.checkpoint.path.empty()) checkpoints_.lock();
  if (loader_) runtime::check_tokens(session_, loader_->source(), plugins_.model->vocabulary());
  if (folder_)
    session_.fill(runtime::values_from(std::make_shared<checkpoint::RangeReader>(
        folder_, runtime::name_map(*plugins_.model, session_.stage().model_layers))));
  else
    session_.fill(runtime::initial_values(static_cast<std::uint64_t>(program_.config.train.seed)));
}

Engine initialize(std::unique_ptr<Model> model, const std::string& config_file,
                  const std::vector<std::string>& settings, std::vector<ProgramPlugin> plugins) {
  if (!model)
    throw UserError(
        "strata::initialize got a null model; leave the argument out to train the model that the config names");
  return make_engine(std::move(model), config_file, settings, std::move(plugins));
}

Engine initialize(const std::string& config_file, const std::vector<std::string>& settings,
                  std::vector<ProgramPlugin> plugins) {
  return make_engine(nullptr, config_file, settings, std::move(plugins));
}

}  // namespace strata
