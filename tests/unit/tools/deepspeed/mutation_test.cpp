// Mutated configs in every spelling, Strata's and DeepSpeed's: each is refused in one line with a place, or resolves
// and can be carried out, as `strata plan` does it.
#include <array>
#include <random>

#include "catch.hpp"
#include "plan/dry_run.hpp"
#include "translation.hpp"

namespace strata::config {
namespace {

constexpr const char* yaml_text =
    "model: {plugin: gpt_neox, preset: pythia-14m, seq_len: 512}\ndata:\n  path: train.bin\n"
    "train: {steps: 5e3, micro_batch: 4, global_batch: 64, clip: 1.0}\nlearning_rate: {base: 6e-4, plugin: cosine}\n"
    "partitioner: {plugin: zero3, prefetch_layers: 2}\nprecision: fp16\noptimizer: {plugin: adamw, betas: [0.9, "
    "0.95]}\n"
    "activations: {checkpoint: all}\noffload: {optimizer: {plugin: cpu}}\n";
constexpr const char* toml_text =
    "[model]\nplugin = \"gpt_neox\"\npreset = \"pythia-14m\"\nseq_len = 512\n[data]\npath = \"train.bin\"\n"
    "[train]\nsteps = 5000\nmicro_batch = 4\nglobal_batch = 64\n[learning_rate]\nbase = 6e-4\nplugin = \"wsd\"\n"
    "[partitioner]\nplugin = \"zero2\"\nreduce_bucket_size = 5e8\n[optimizer]\nplugin = \"adamw\"\nbetas = [0.9, "
    "0.95]\n";
constexpr const char* json_text =
    "{\"train_batch_size\": 16, \"gradient_accumulation_steps\": 2, \"gradient_clipping\": 1.0, // comment\n"
    "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 5e8, \"overlap_comm\": true, \"sub_group_size\": "
    "1e9,\n"
    "\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}}, \"fp16\": {\"enabled\": true, "
    "\"loss_scale\": 0},\n"
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": [0.9, 0.95], \"weight_decay\": "
    "0.1}},\n"
    "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_num_steps\": 10, \"total_num_steps\": 100}},\n"
    "\"pipeline\": {\"stages\": \"auto\"}, \"wandb\": {\"enabled\": false}}\n";
constexpr const char* own_json_text =
    "{\"model\": {\"plugin\": \"gpt_neox\", \"seq_len\": 128, \"preset\": \"pythia-14m\"}, \"data\": {\"path\": "
    "\"x\"},\n"
    "\"train\": {\"steps\": 10, \"micro_batch\": 2}, \"learning_rate\": {\"base\": 1e-3}, \"precision\": {\"plugin\": "
    "\"bf16\"}}\n";

// One or two edits: letters, words that mean something to a parser or to the keys, pieces moved or doubled.
std::string mutated(std::string text, std::mt19937_64& random) {
  static const std::array<std::string, 34> words{"{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 ":",
                                                 ",",
                                                 "\"",
                                                 "'",
                                                 "#",
                                                 "\n",
                                                 "  ",
                                                 "=",
                                                 "-",
                                                 "1e999",
                                                 "nan",
                                                 "-1",
                                                 "0",
                                                 "0.5",
                                                 "auto",
                                                 "\"auto\"",
                                                 "null",
                                                 "true",
                                                 "false",
                                                 "9999999999999999999",
                                                 "\"stage\": 4",
                                                 "zero",
                                                 "fp16",
                                                 "\"type\"",
                                                 "\xff",
                                                 "plugin",
                                                 "train",
                                                 "\\",
                                                 "1.5",
                                                 "enabled"};
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  for (std::size_t edits = 1 + below(2); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = below(text.size());
    switch (below(7)) {
      case 0:
        text[at] = static_cast<char>(32 + below(95));
        break;
      case 1:
        text.erase(at, 1 + below(6));
        break;
      case 2:
        text.insert(at, words[below(words.size())]);
        break;
      case 3:
        text.insert(below(text.size()), text.substr(at, 1 + below(30)));
        break;
      case 4:
      case 5: {  // another digit
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text[digit] = static_cast<char>('0' + below(10));
        break;
      }
      default: {  // a value replaced where one stands
        const std::size_t colon = text.find_first_of(":=", at);
        const std::size_t end = text.find_first_of(",}\n", colon);
        if (colon != std::string::npos && end != std::string::npos)
          text.replace(colon + 1, end - colon - 1, " " + words[below(words.size())]);
      }
    }
  }
  return text;
}

}  // namespace

TEST_CASE("2,000 mutated configs run dry or are refused in one line with a place") {
  const auto registry = plugins::open_registry("");
  const plugins::EnginePlugins plugins(registry);
  const Node defaults = read_defaults();
  const std::array<std::pair<Format, const char*>, 4> sources{
      {{Format::Yaml, yaml_text}, {Format::Toml, toml_text}, {Format::Json, json_text}, {Format::Json, own_json_text}}};
  std::mt19937_64 random(20261121);
  int ran = 0, refused = 0, translations = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto& [format, source] = sources[static_cast<std::size_t>(round) % sources.size()];
    const std::string text = round < 4 ? source : mutated(source, random);
    try {
      std::vector<Node> trees{defaults, read_text(text, format, "mutated")};
      const std::vector<std::string> model =
          source == json_text ? model_settings : std::vector<std::string>{"device=cpu"};
      trees.push_back(read_settings(model));
      if (deepspeed::DeepSpeed().recognises(trees[1])) {
        ++translations;
        for (const resolve::DialectLine& line : deepspeed::DeepSpeed().translate(trees, plugins, {}).lines)
          if (line.one_line().find('\n') != std::string::npos) FAIL_CHECK("more than one line: " << line.one_line());
      }
      const RunConfig config = resolve(trees, {2, "--nproc"}, plugins);
      const plan::DryRun run = plan::dry_run(config, *registry, 1);
      CHECK_FALSE(run.program.empty());
      ++ran;
    } catch (const UserError& error) {
      ++refused;
      const std::string what = error.what();
      if (!what.starts_with("mutated") || what.find('\n') != std::string::npos || what.size() > 1500) {
        UNSCOPED_INFO(text);
        FAIL_CHECK("not one line with a place: " << what);
      }
    } catch (const std::exception& error) {
      UNSCOPED_INFO(text);
      FAIL_CHECK("another exception: " << error.what());
    }
    if (round < 4) CHECK(ran == round + 1);
  }
  CHECK(ran > 200);  // neither too mild nor too wild
  CHECK(refused > 500);
  CHECK(translations > 100);
}

}  // namespace strata::config
