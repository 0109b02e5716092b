// What a config leaves to the run: the micro-batch of an "auto" batch, and the options that a folder of weights
// decides.
#include "resolve/resolve_run.hpp"

#include <strata/deepspeed.hpp>

#include "catch.hpp"
#include "config/defaults.hpp"
#include "config/listing.hpp"
#include "error_of.hpp"
#include "plugins/engine_plugins.hpp"
#include "temporary_folder.hpp"

namespace strata::resolve {
namespace {

ResolvedRun resolved(const std::string& text, config::Format format, std::vector<std::string> settings,
                     const config::World& world = config::World::started_here(2)) {
  accept_deepspeed_configs();
  static const auto registry = plugins::open_registry("");
  settings.insert(settings.begin(), {"device=cpu", "data.path=x.bin", "model.plugin=gpt_neox"});
  std::vector<config::Node> trees{config::read_defaults(), config::read_text(text, format, "config"),
                                  config::read_settings(settings)};
  return resolve_run(std::move(trees), world, registry, plugins::EnginePlugins(registry));
}

struct Row {
  std::string value;
  std::string origin;
};

Row row(const ResolvedRun& run, const std::string& path) {
  for (const config::Resolved& one : config::listing(run.config))
    if (one.path == path) return {config::to_text(one.value), one.origin};
  FAIL("no row " << path);
  throw Bug(path);
}

std::string batch(const std::vector<std::string>& settings,
                  const config::World& world = config::World::started_here(2)) {
  std::vector<std::string> all{"model.preset=pythia-14m", "model.seq_len=64"};
  all.insert(all.end(), settings.begin(), settings.end());
  const config::TrainConfig train =
      resolved(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"})", config::Format::Json, all,
               world)
          .config.train;
  return std::to_string(train.micro_batch) + " x " + std::to_string(train.accumulation) + " of " +
         std::to_string(train.global_batch);
}

}  // namespace

TEST_CASE("free memory decides the micro-batch of an auto batch and no result") {
  CHECK(batch({"memory_budget=2GB"}) == "8 x 1 of 16");
  CHECK(batch({"memory_budget=330MB"}) == "4 x 2 of 16");
  CHECK(batch({"memory_budget=284MB"}) == "2 x 4 of 16");
  CHECK(batch({"memory_budget=284MB"}, {2, "torchrun"}) == "2 x 4 of 16");
  CHECK(batch({}, {2, "torchrun"}) == "8 x 1 of 16");  // ranks that would each see other free memory
  CHECK_THAT(error_of<UserError>([] { batch({"memory_budget=4MB"}); }),
             Contains("config:1:") && Contains("batch size \"auto\": a micro-batch of one sample needs"));
}

TEST_CASE("the trials of an auto batch are reported") {
  const ResolvedRun run = resolved(R"({"train_micro_batch_size_per_gpu": "auto"})", config::Format::Json,
                                   {"model.preset=pythia-14m", "model.seq_len=64", "memory_budget=284MB"});
  const std::string text = run.translation->lines.front().text;
  CHECK_THAT(text, Contains("train.micro_batch = 2; \"auto\" is 8 samples per device") && Contains(": 8 take 3") &&
                       Contains(" MiB, 4: ") && Contains(" MiB, 2: ") &&
                       Contains("270.84 MiB per rank (memory_budget)"));
}

TEST_CASE("a folder of weights decides its model's options, and others are refused") {
  const TemporaryFolder folder;
  write_file(folder / "config.json",
             R"({"model_type":"gpt_neox","hidden_size":64,"intermediate_size":200,"num_attention_heads":4,
    "num_hidden_layers":3,"vocab_size":300,"rotary_pct":0.5,"use_parallel_residual":false})");
  write_file(folder / "model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  const auto from_folder = [&](const std::string& options) {
    return resolved("model: {plugin: gpt_neox, seq_len: 16, init: " + folder.path().string() + options +
                        "}\ntrain: {steps: 1, micro_batch: 1}\nlearning_rate: {base: 1}\n",
                    config::Format::Yaml, {});
  };
  const ResolvedRun run = from_folder("");
  CHECK(row(run, "model.gpt_neox.parallel_residual").value == "false");
  CHECK_THAT(row(run, "model.gpt_neox.parallel_residual").origin, Contains("config.json use_parallel_residual"));
  CHECK(row(run, "model.gpt_neox.rotary_fraction").value == "0.5");
  CHECK(row(run, "model.gpt_neox.hidden_size").value == "64");
  CHECK(row(run, "model.gpt_neox.loss_chunk").origin == "default of model/gpt_neox");  // no such file knows it
  CHECK(run.config.model.plugin.options.boolean("parallel_residual") == false);
  CHECK_THAT(error_of<UserError>([&] { from_folder(", parallel_residual: true"); }),
             Contains("config:1:") && Contains("model.gpt_neox.parallel_residual is true") &&
                 Contains("model.init has false (use_parallel_residual)"));
  CHECK_THAT(error_of<UserError>([&] { from_folder(", rotary_fraction: 0.25"); }),
             Contains("rotary_fraction is 0.25") && Contains("model.init has 0.5 (rotary_pct)"));
  CHECK_THAT(error_of<UserError>([&] { from_folder(", layer_norm_epsilon: 1e-4"); }),
             Contains("layer_norm_epsilon is 0.0001") && Contains("model.init has 1e-05 (layer_norm_eps, left out)"));
  CHECK_THAT(error_of<UserError>([&] { from_folder(", hidden_size: 128"); }),
             Contains("hidden_size is 128") && Contains("hidden_size 64"));
  CHECK(row(from_folder(", rotary_fraction: 0.5"), "model.gpt_neox.rotary_fraction").origin == "config:1");
}

}  // namespace strata::resolve
