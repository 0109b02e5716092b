#include "tools/bench/plugin_under_test.hpp"

#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include "text/nearest.hpp"

namespace strata::bench {

namespace {

class BenchContext final : public PluginContext {
 public:
  BenchContext(std::string name, OptionValues options, int rank, MeshShape mesh)
      : name_(std::move(name)), options_(std::move(options)), rank_(rank), mesh_(mesh) {}
  const std::string& plugin_name() const override { return name_; }
  const OptionValues& options() const override { return options_; }
  int rank() const override { return rank_; }
  const MeshShape& mesh() const override { return mesh_; }
  void log(LogLevel level, const std::string& text) override {
    if (level == LogLevel::Warning) spdlog::warn("{}: {}", name_, text);
    if (level == LogLevel::Error) spdlog::error("{}: {}", name_, text);
  }
  void set_metric(const std::string&, const std::string&, double) override {}
  void* extension(const char*) override { return nullptr; }

 private:
  std::string name_;
  OptionValues options_;
  int rank_;
  MeshShape mesh_;
};

OptionValues values_of(const plugin_host::Manifest& manifest,
                       const std::vector<std::pair<std::string, std::string>>& texts) {
  OptionValues values = default_options(manifest.options);
  for (const auto& [key, text] : texts) {
    const OptionSpec* known = nullptr;
    std::vector<std::string> names;
    for (const OptionSpec& spec : manifest.options) {
      names.push_back(spec.name);
      if (spec.name == key) known = &spec;
    }
    if (known == nullptr)
      throw UserError("--set " + key + "=" + text + ": " + full_name(manifest) + " has no such option" +
                      (names.empty() ? "; it has no options" : "; " + config::suggestion(key, names)));
    values.set(key, parse_option(*known, text));
  }
  return values;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> options_of(const std::vector<std::string>& settings) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw UserError("--set " + setting + ": give OPTION=VALUE, an option of the plugin");
    options.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return options;
}

PluginUnderTest::PluginUnderTest(plugin_host::PluginRegistry& registry, PluginKind kind,
                                 const std::string& name_or_path, const Settings& settings, const MeshShape& mesh)
    : registry_(registry),
      found_(registry.find(kind, name_or_path)),
      name_(full_name(found_.manifest)),
      context_(std::make_unique<BenchContext>(name_, values_of(found_.manifest, settings.options), settings.place.rank,
                                              mesh)) {}

PluginUnderTest::~PluginUnderTest() = default;

}  // namespace strata::bench
