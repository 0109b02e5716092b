// Damaged configs: each must give a run or a UserError of one line that begins with the file's name; nothing else may
// leave.
#include <random>

#include "catch.hpp"
#include "config/defaults.hpp"
#include "config/run_config.hpp"
#include "fake_plugins.hpp"

namespace strata::config {
namespace {

constexpr const char* yaml_text =
    "# comment\ndevice: auto\nmodel: {plugin: gpt_neox, preset: pythia-14m, seq_len: 512}\ndata:\n  plugin: nanogpt\n  "
    "path: 'train é.bin'\n"
    "train: {steps: 5e8, micro_batch: 4, global_batch: 64, clip: 1.0}\nlearning_rate: &rate {base: 6e-4, plugin: "
    "cosine}\n"
    "partitioner: {plugin: zero3, zero3: {prefetch_layers: 2, bucket: 16MiB}}\noptimizer:\n  plugin: adamw\n  betas:\n "
    " - 0.9\n  - 0.95\n"
    "activations: {checkpoint: [0, 1]}\noffload: {optimizer: {plugin: cpu}}\nexport: \"a\\tb\"\n";
constexpr const char* toml_text =
    "# comment\ndevice = \"auto\"\nmodel = {plugin = \"gpt_neox\", preset = 'pythia-14m', seq_len = "
    "512}\n[data]\nplugin = \"nanogpt\"\n"
    "path = 'train é.bin'\n[train]\nsteps = 5e8\nmicro_batch = 4\nglobal_batch = 64\nclip = 1.0\n[learning_rate]\nbase "
    "= 6e-4\n"
    "plugin = \"cosine\"\n[partitioner]\nplugin = \"zero3\"\nzero3.prefetch_layers = 2\nzero3.bucket = "
    "\"16MiB\"\n[optimizer]\nbetas = [0.9,\n 0.95]\n"
    "[offload.optimizer]\nplugin = \"cpu\"\n[activations]\ncheckpoint = [0, 1]\n";
constexpr const char* json_text =
    "{\"device\": \"auto\", \"model\": {\"plugin\": \"gpt_neox\", \"preset\": \"pythia-14m\", \"seq_len\": 512},\n"
    "\"data\": {\"plugin\": \"nanogpt\", \"path\": \"train \\u00e9.bin\"}, // comment\n"
    "\"train\": {\"steps\": 5e8, \"micro_batch\": 4, \"global_batch\": 64, \"clip\": 1.0},\n"
    "\"learning_rate\": {\"base\": 6e-4, \"plugin\": \"cosine\"},\n"
    "\"partitioner\": {\"plugin\": \"zero3\", \"zero3\": {\"prefetch_layers\": 2, \"bucket\": \"16MiB\"}},\n"
    "\"optimizer\": {\"betas\": [0.9, 0.95]}, \"activations\": {\"checkpoint\": [0, 1]}, \"offload\": {\"optimizer\": "
    "{\"plugin\": \"cpu\"}}}\n";

class Mutation {
 public:
  explicit Mutation(std::uint64_t seed) : random_(seed) {}

  std::string of(std::string text) {
    for (int edits = 1 + below(4); edits > 0 && !text.empty(); --edits) edit(text);
    return text;
  }

 private:
  int below(std::size_t bound) { return static_cast<int>(random_() % bound); }

  void edit(std::string& text) {
    static const std::vector<std::string> words{"{",
                                                "}",
                                                "[",
                                                "]",
                                                ":",
                                                ": ",
                                                ",",
                                                "\"",
                                                "'",
                                                "#",
                                                "&a ",
                                                "*a",
                                                "!!",
                                                "|\n",
                                                ">",
                                                "<<: ",
                                                "---\n",
                                                "\n",
                                                "  ",
                                                "\t",
                                                "=",
                                                "[[",
                                                "]]",
                                                ".",
                                                "-",
                                                "- ",
                                                "? ",
                                                "%",
                                                "@",
                                                "`",
                                                "0",
                                                "1e999",
                                                "nan",
                                                "auto",
                                                "null",
                                                "~",
                                                "\\",
                                                "\\u",
                                                "\r",
                                                "_",
                                                "9999999999999999999",
                                                "\xff",
                                                std::string(1, '\0'),
                                                "\xc3\xa9",
                                                "true",
                                                "plugin",
                                                "//",
                                                "/*"};
    const std::size_t at = static_cast<std::size_t>(below(text.size()));
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, 1 + static_cast<std::size_t>(below(12)));
        break;
      case 2:
        text.insert(at, words[static_cast<std::size_t>(below(words.size()))]);
        break;
      case 3:
        text.insert(static_cast<std::size_t>(below(text.size())),
                    text.substr(at, 1 + static_cast<std::size_t>(below(40))));
        break;
      case 4:
        std::swap(text[at], text[static_cast<std::size_t>(below(text.size()))]);
        break;
      default:
        text.resize(at);
        break;
    }
  }

  std::mt19937_64 random_;
};

struct Tally {
  int resolved = 0;
  int refused_reading = 0;
  int refused_resolving = 0;
};

void try_one(const std::string& text, Format format, const Node& defaults, const FakePlugins& plugins, Tally& tally) {
  bool read = false;
  try {
    Node tree = read_text(text, format, "fuzzed");
    read = true;
    resolve({defaults, std::move(tree)}, {2, "--nproc"}, plugins);
    ++tally.resolved;
  } catch (const UserError& error) {
    ++(read ? tally.refused_resolving : tally.refused_reading);
    const std::string what = error.what();
    if (!what.starts_with("fuzzed") || what.find('\n') != std::string::npos || what.size() > 1200) {
      UNSCOPED_INFO(text);
      FAIL_CHECK("not one line with a place: " << what);
    }
  } catch (const std::exception& error) {
    UNSCOPED_INFO(text);
    FAIL_CHECK("another exception: " << error.what());
  }
}

}  // namespace

TEST_CASE("Damaged configs are refused in one line with a place, or run") {
  const Node defaults = read_defaults();
  const FakePlugins plugins;
  const std::vector<std::pair<Format, std::string>> sources{
      {Format::Yaml, yaml_text}, {Format::Toml, toml_text}, {Format::Json, json_text}};
  for (const auto& [format, text] : sources) {
    Tally tally;
    try_one(text, format, defaults, plugins, tally);
    REQUIRE(tally.resolved == 1);
    Mutation mutation(20261120 + static_cast<std::uint64_t>(format));
    for (int round = 0; round < 4000; ++round) try_one(mutation.of(text), format, defaults, plugins, tally);
    // The three ways out all occur, so the mutations are neither too mild nor too wild.
    CHECK(tally.resolved > 20);
    CHECK(tally.refused_reading > 100);
    CHECK(tally.refused_resolving > 100);
  }
}

TEST_CASE("Damaged settings are refused in one line, or run") {
  const std::vector<std::string> settings{"train.steps=5e8", "optimizer.betas=[0.9, 0.95]",
                                          "partitioner={plugin: zero3, bucket: \"16MB\"}"};
  Mutation mutation(7);
  for (int round = 0; round < 4000; ++round) {
    const std::string text = mutation.of(settings[static_cast<std::size_t>(round) % settings.size()]);
    try {
      parse_setting(text);
    } catch (const UserError& error) {
      const std::string what = error.what();
      if (!what.starts_with("--set") || what.find('\n') != std::string::npos)
        FAIL_CHECK("not one line: " << what << " of " << text);
    } catch (const std::exception& error) {
      FAIL_CHECK("another exception: " << error.what() << " of " << text);
    }
  }
}

}  // namespace strata::config
