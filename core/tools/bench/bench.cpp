#include "tools/bench/bench.hpp"

#include <strata/error.hpp>

#include <filesystem>
#include <limits>

#include "config/defaults.hpp"
#include "data/temporary_folder.hpp"
#include "plugins/engine_plugins.hpp"
#include "tools/bench/bench_ranks.hpp"
#include "tools/bench/kinds.hpp"
#include "tools/compare/paired_ratio.hpp"

namespace strata::bench {

namespace {

using cli::ChosenPlugin;

constexpr std::int64_t kibi = 1024, mebi = 1024 * kibi;

// The meaning of --size for a kind.
struct KindSizes {
  std::string meaning;
  Sizes usual;  // one that fits in the caches and one that does not
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

KindSizes sizes_of(PluginKind kind) {
  switch (kind) {
    case PluginKind::Communicator:
      return {"bytes of the whole buffer", {64 * kibi, mebi, 16 * mebi}};
    case PluginKind::Partitioner:
      return {"bytes of a layer's parameters", {256 * kibi, 8 * mebi}};
    case PluginKind::PrecisionPolicy:
      return {"the rows and columns of a weight", {256, 1024}, 32768};
    case PluginKind::Scheduler:
      return {"micro-batches", {8, 64}, 4096};
    case PluginKind::Model:
      return {"tokens", {128}};
    case PluginKind::DataSource:
      return {"tokens of a sample", {512}, 65536};
    case PluginKind::OffloadDevice:
      return {"bytes of a transfer", {mebi, 64 * mebi}};
    case PluginKind::Device:
    case PluginKind::Optimizer:
    case PluginKind::LearningRate:
      break;
  }
  return {"bytes of a parameter in fp32", {mebi, 64 * mebi}};
}

std::string first_usable_communicator(const Registry& registry) {
  const plugins::EnginePlugins plugins(registry);
  const config::Node defaults = config::read_defaults();
  const config::Node* list = config::find(defaults, "automatic.communicator.cpu");
  strata_check(list != nullptr && list->kind == config::NodeKind::Sequence,
               "defaults.yaml lists communicators of the cpu");
  std::string reasons;
  for (const config::Node& name : list->items) {
    if (!plugins.find("communicator", name.text)) continue;
    const std::string obstacle = plugins.obstacle("communicator", name.text);
    if (obstacle.empty()) return name.text;
    reasons += (reasons.empty() ? "" : "; ") + name.text + ": " + obstacle;
  }
  throw EnvironmentError("no plugin of automatic.communicator works on this machine{}; choose one with --communicator",
                         reasons.empty() ? "" : " (" + reasons + ")");
}

std::vector<Row> run_communicator(Communicator& communicator, const Settings& settings, const Sizes& sizes) {
  BenchRanks ranks(communicator, settings.place);
  std::vector<Row> rows = bench_communicator(ranks.all(), sizes, InterleavedTimer(settings, &ranks.all()));
  ranks.all().barrier();
  return rows;
}

std::vector<Row> run_partitioner(const MakePlugin& make, const Registry& registry, const Settings& settings,
                                 const Sizes& sizes) {
  const MeshShape mesh = mesh_of(settings.place);
  ChosenPlugin communicator(*registry, PluginKind::Communicator,
                            settings.communicator.empty() ? first_usable_communicator(registry) : settings.communicator,
                            {}, settings.place.rank, mesh);
  BenchRanks ranks(communicator.make<Communicator>(), settings.place);
  const NamedGroups groups = ranks.connect(make()->make<Partitioner>().groups(mesh));
  std::vector<Row> rows = bench_partitioner(make, groups, sizes, InterleavedTimer(settings, &ranks.all()));
  ranks.all().barrier();
  return rows;
}

// An offload device that writes files has an option `path`; its floor writes to the same folder, the first of several.
std::string folder_of(const OptionValues& options) {
  if (options.contains("path")) {
    const auto* path = std::get_if<std::string>(&options.value("path"));
    if (path != nullptr && !path->empty()) return path->substr(0, path->find(':'));
  }
  return data::temporary_files();
}

std::vector<Row> run_kind(PluginKind kind, const MakePlugin& make, const Registry& registry, const Settings& settings,
                          const Sizes& sizes) {
  if (kind == PluginKind::Partitioner) return run_partitioner(make, registry, settings, sizes);
  const std::unique_ptr<ChosenPlugin> plugin = make();
  const InterleavedTimer timer(settings);
  std::vector<Row> rows;
  switch (kind) {
    case PluginKind::Device:
      rows = bench_device(plugin->make<Device>(), sizes, timer);
      break;
    case PluginKind::Communicator:
      rows = run_communicator(plugin->make<Communicator>(), settings, sizes);
      break;
    case PluginKind::PrecisionPolicy:
      rows = bench_precision(plugin->make<PrecisionPolicy>(), sizes, timer);
      break;
    case PluginKind::Scheduler:
      rows = bench_scheduler(plugin->name(), plugin->make<Scheduler>(), sizes, timer);
      break;
    case PluginKind::OffloadDevice:
      rows = bench_offload(plugin->make<OffloadDevice>(), folder_of(plugin->options()), sizes, timer);
      break;
    case PluginKind::Optimizer:
      rows = bench_optimizer(plugin->make<Optimizer>(), sizes, timer);
      break;
    case PluginKind::Model:
      rows = bench_model(plugin->make<Model>(), sizes, timer);
      break;
    case PluginKind::DataSource:
      rows = bench_data(plugin->make<DataSource>(), sizes, timer);
      break;
    case PluginKind::LearningRate:
      throw UserError("{}: bench does not measure learning rates, which take a few operations per update",
                      plugin->name());
    case PluginKind::Partitioner:
      break;  // see above: one plugin for each size
  }
  plugin->shutdown();
  return rows;
}

}  // namespace

bool needs_ranks(PluginKind kind) {
  return kind == PluginKind::Communicator || kind == PluginKind::Partitioner;
}

void check_usable(const Registry& registry, PluginKind kind, const std::string& name_or_path) {
  const std::string name = plugins::full_name(registry->find(kind, name_or_path).manifest);
  const std::string obstacle = plugins::EnginePlugins(registry).obstacle(std::string(to_string(kind)), name_or_path);
  if (!obstacle.empty()) throw EnvironmentError("{} cannot be measured here: {}", name, obstacle);
}

std::vector<Row> run_bench(const Registry& registry, PluginKind kind, const std::string& name_or_path,
                           const Settings& settings) {
  strata_check(settings.rounds >= compare::smallest_pairs, "a bench has enough rounds for an interval");
  check_usable(registry, kind, name_or_path);
  const KindSizes of_kind = sizes_of(kind);
  for (const std::int64_t size : settings.sizes)
    if (size < 1 || size > of_kind.most)
      throw UserError("--size {} is out of range; for this kind it is {}", size, of_kind.meaning);
  const MakePlugin make = [&] {
    return std::make_unique<ChosenPlugin>(*registry, kind, name_or_path, settings.options, settings.place.rank,
                                          mesh_of(settings.place));
  };
  return run_kind(kind, make, registry, settings, settings.sizes.empty() ? of_kind.usual : settings.sizes);
}

}  // namespace strata::bench
