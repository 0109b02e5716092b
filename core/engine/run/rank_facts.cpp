#include "run/rank_facts.hpp"

#include <link.h>
#include <strata/error.hpp>
#include <strata/fingerprint.hpp>
#include <strata/split_mix.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include "checkpoint/checksum.hpp"
#include "checkpoint/content.hpp"
#include "config/keys.hpp"
#include "data/file.hpp"

namespace strata::run {

namespace {

void add_number(checkpoint::Checksum& sum, std::int64_t number) {
  sum.add(&number, sizeof number);
}

std::string content_text(std::uint64_t checksum) {
  return "content " + checkpoint::format_checksum(checksum);
}

group::Fact fact_of_file(const std::string& name, const std::string& path) {
  checkpoint::Checksum sum;
  const data::InputFile file(path);
  checkpoint::add_sample(sum, file, 0, file.size(), checkpoint::Sample{});
  return {name, content_text(sum.value()), path};
}

// The engine's own libraries and libtorch's among those that this process has loaded.
std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  const auto add = [](dl_phdr_info* library, std::size_t, void* found) {
    const std::string path = library->dlpi_name;
    const std::string name = path.substr(path.rfind('/') + 1);
    constexpr std::array<std::string_view, 5> wanted{"libstrata.so", "libstrata_interface.so", "libtorch.so",
                                                     "libtorch_", "libc10"};
    if (std::ranges::any_of(wanted, [&](std::string_view start) { return name.starts_with(start); }))
      static_cast<std::vector<std::string>*>(found)->push_back(path);
    return 0;
  };
  dl_iterate_phdr(add, &paths);
  std::ranges::sort(paths, {}, [](const std::string& path) { return path.substr(path.rfind('/') + 1); });
  return paths;
}

// Read once in a process: an automatic choice of homes connects ranks several times.
const std::vector<group::Fact>& own_facts() {
  static const std::vector<group::Fact> facts = [] {
    std::vector<group::Fact> all{{"plugin ABI", STRATA_ABI_TEXT}};
    std::error_code hidden;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", hidden);
    if (!hidden) {
      all.push_back(fact_of_file("the program", "/proc/self/exe"));  // also where its file was replaced meanwhile
      all.back().where = program.string();
    }
    for (const std::string& path : loaded_libraries())
      all.push_back(fact_of_file(path.substr(path.rfind('/') + 1), path));
    return all;
  }();
  return facts;
}

// The tokens of drawn samples, which a plugin's own order decides.
std::uint64_t order_of(const data::OrderedSamples& samples) {
  constexpr std::int64_t drawn = 64;
  checkpoint::Checksum sum;
  std::vector<std::int64_t> sample(static_cast<std::size_t>(samples.seq_len()) + 1);
  std::vector<std::uint8_t> is_target(sample.size());
  const std::int64_t count = samples.count();
  for (std::int64_t i = 0; i < std::min(drawn, count); ++i) {
    samples.read(
        static_cast<std::int64_t>(split_mix(static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(count)),
        sample.data(), is_target.data());
    sum.add(sample.data(), sample.size() * sizeof(std::int64_t));
    sum.add(is_target.data(), is_target.size());
  }
  return sum.value();
}

std::string text_of(const data::Loader* loader, config::DataOrder order) {
  if (loader == nullptr) return "none";
  const data::TokenSource& source = loader->source();
  std::string text = format("{} tokens, {}", source.token_count(), content_text(content_of(source)));
  if (order == config::DataOrder::Own) text += ", order " + checkpoint::format_checksum(order_of(loader->samples()));
  return text;
}

// An evaluation's weights may come from a checkpoint in place of the key's folder.
group::Fact fact_of_weights(const std::string& key, const checkpoint::SavedWeights* weights,
                            const std::string& folder) {
  if (weights == nullptr) return {key, "none"};
  return {weights->path() == folder ? key : "--checkpoint", content_text(weights->content()), weights->path()};
}

}  // namespace

std::vector<group::Fact> engine_facts(const plugins::PluginRegistry& registry) {
  std::vector<group::Fact> plugins;
  for (const plugins::FoundPlugin* const plugin : registry.loaded()) {
    const std::string name = "plugin " + plugins::full_name(plugin->manifest);
    plugins.push_back(plugin->file.empty() ? group::Fact{name, "", "of " + plugin->origin}
                                           : fact_of_file(name, plugin->file));
  }
  std::ranges::sort(plugins, {},
                    &group::Fact::name);  // loaded in an order that depends on where the model's sizes come from
  std::vector<group::Fact> facts = own_facts();
  facts.insert(facts.end(), plugins.begin(), plugins.end());
  return facts;
}

std::uint64_t content_of(const data::TokenSource& source) {
  constexpr std::int64_t block = 4096, blocks = 256;
  checkpoint::Checksum sum;
  const std::int64_t count = source.token_count();
  add_number(sum, count);
  for (const auto& [name, number] : source.facts()) add_number(sum, number);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(block));
  std::vector<std::uint8_t> is_target(tokens.size());
  const auto add = [&](std::int64_t first, std::int64_t length) {
    source.copy(first, length, tokens.data());
    sum.add(tokens.data(), static_cast<std::size_t>(length) * sizeof(std::int64_t));
    if (!source.has_mask()) return;
    source.copy_mask(first, length, is_target.data());
    sum.add(is_target.data(), static_cast<std::size_t>(length));
  };
  if (count <= block * blocks) {
    for (std::int64_t first = 0; first < count; first += block) add(first, std::min(block, count - first));
    return sum.value();
  }
  for (std::int64_t i = 0; i < blocks; ++i)
    add(static_cast<std::int64_t>(split_mix(static_cast<std::uint64_t>(i)) %
                                  static_cast<std::uint64_t>(count - block + 1)),
        block);
  return sum.value();
}

std::vector<group::Fact> content_facts(const config::RunConfig& config, const FilesRead& files) {
  std::vector<group::Fact> facts;
  for (const config::Key& key : config::keys()) {
    if (key.effect.compared != config::Compared::Content) continue;
    const std::string& name = key.option.name;
    if (name == "data.path")
      facts.push_back({name, text_of(files.data, config.data.order), config.data.path});
    else if (name == "validation.path")
      facts.push_back({name, text_of(files.validation, config.validation.data.order), config.validation.data.path});
    else if (name == "model.init")
      facts.push_back(fact_of_weights(name, files.weights, config.model.init));
    else
      throw Bug("nothing compares the content of {} between ranks", name);
  }
  return facts;
}

}  // namespace strata::run
