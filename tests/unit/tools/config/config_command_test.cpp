#include <strata/error.hpp>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "catch.hpp"
#include "config/conflicts.hpp"
#include "config/keys.hpp"
#include "plugins/registry.hpp"
#include "tools/config/config.hpp"
#include "unit/config/fake_plugins.hpp"

namespace strata::config {
namespace {

// Two optimizers, of which one has no betas.
plugins::PluginRegistry& registry() {
  static plugins::PluginRegistry made({});
  static const bool filled = [] {
    OptionSpec decay = option("weight_decay", "number", "0.01");
    decay.minimum = "0";
    decay.documentation = "Decay of the weights.";
    OptionSpec betas = option("betas", "numbers", "[0.9, 0.999]");
    betas.documentation = "Decay of the moments.";
    const auto factory = [](PluginContext&) { return std::unique_ptr<Plugin>(); };
    made.register_plugin(PluginKind::Optimizer, "adamw", factory, {betas, decay});
    made.register_plugin(PluginKind::Optimizer, "sgd", factory, {decay});
    return true;
  }();
  static_cast<void>(filled);
  return made;
}

std::string explained(const std::string& path) {
  std::ostringstream output;
  cli::config_explain(registry(), path, output);
  return output.str();
}

}  // namespace

TEST_CASE("strata config explain says all that there is to a key") {
  CHECK(explained("train.clip") ==
        "train.clip\n  Maximum gradient norm; gradients with a larger norm are scaled down to it. 0: no clipping.\n  "
        "type      number\n  default   1.0\n  range     >= 0\n  affects   losses and weights\n  resume    may change; "
        "the change is logged\n  ranks     same value on all ranks\n  example   train: {clip: 1.0}\n  conflicts "
        "train.clip above 0 with a scheduler that updates within the step: the norm of the whole gradient is known "
        "only after the updates\n            train.clip above 0 with an optimizer that does its own communication: "
        "gradients are not summed, so the norm of the whole gradient is unknown\n");
  const std::string beside = explained("optimizer.betas");
  CHECK(beside == explained("optimizer.adamw.betas"));
  CHECK(beside.starts_with("optimizer.adamw.betas\n  Decay of the moments.\n"));
  CHECK(beside.find("  example   optimizer: {plugin: adamw, betas: [0.9, 0.999]}\n") != std::string::npos);
  const std::string both = explained("optimizer.weight_decay");
  CHECK(both.starts_with("optimizer.adamw.weight_decay\n"));
  CHECK(both.find("\n\noptimizer.sgd.weight_decay\n") != std::string::npos);
  CHECK(explained("data.path").find("  ranks     paths may differ between hosts; their contents must be identical\n") !=
        std::string::npos);
  CHECK(explained("data.order").starts_with("data.order\n  Order of the samples.\n  sequential: as in the file;\n"));
  CHECK(explained("train.seed").find("  resume    must stay the same\n") != std::string::npos);
  CHECK(explained("train.steps").find("  default   none (required)\n") != std::string::npos);
  CHECK(explained("train.micro_batch").find("  default   auto: global_batch / (") != std::string::npos);
  CHECK(explained("device.plugin").find("  default   auto\n") != std::string::npos);
}

TEST_CASE("strata config explain prints a section as a table, and the nearest key of an unknown one") {
  const std::string checkpoint = explained("checkpoint");
  CHECK(checkpoint.find("checkpoint.path") != std::string::npos);
  CHECK(checkpoint.find("checkpoint.keep") != std::string::npos);
  CHECK(checkpoint.find("train.") == std::string::npos);
  CHECK(explained("optimizer").find("optimizer.sgd.weight_decay") != std::string::npos);
  CHECK(error_of([] { explained("train.cilp"); }) == "unknown key \"train.cilp\"; in train: did you mean clip?");
  CHECK(error_of([] { explained("trian.clip"); }) == "unknown key \"trian.clip\"; did you mean train?");
  CHECK(error_of([] { explained("optimizer.sgd.weight_deacy"); }) ==
        "unknown key \"optimizer.sgd.weight_deacy\"; in optimizer.sgd: did you mean weight_decay?");
}

TEST_CASE("strata config conflicts lists every conflict") {
  std::ostringstream output;
  cli::config_conflicts({.format = "csv"}, output);
  const std::string text = output.str();
  CHECK(text.starts_with("feature,cannot be combined with,reason\n"));
  CHECK(std::ranges::count(text, '\n') == std::ssize(conflicts()) + 1);
  CHECK(text.find("\noffload.optimizer,step_policy: local,weights are averaged on the device\n") != std::string::npos);
  CHECK(error_of([] { cli::config_conflicts({.settings = {"train.clip=0"}}, std::cout); }).find("name one") !=
        std::string::npos);
}

TEST_CASE("The config reference has every key and every option") {
  std::ostringstream output;
  cli::config_reference(registry(), output);
  const std::string text = output.str();
  for (const Key& key : keys()) {
    INFO(key.option.name);
    CHECK(text.find("`" + key.option.name + "`") != std::string::npos);
  }
  CHECK(text.find(" | Order of the samples.<br>sequential: as in the file;<br>shuffled: ") != std::string::npos);
  CHECK(text.find("\n## optimizer/adamw\n") != std::string::npos);
  CHECK(text.find("`betas`") != std::string::npos);
}

TEST_CASE("strata config show prints every value and its origin") {
  const std::string file =
      write_file("show.yaml",
                 "model: {plugin: gpt_neox, seq_len: 128}\ndata: {path: x.bin}\ntrain: {steps: 10, micro_batch: 4}\n"
                 "learning_rate: {base: 1e-3}\n");
  std::string asked_path;
  const cli::ResolveConfig resolve_it = [&](const std::vector<Node>& trees, const World& world) {
    asked_path = plugin_path(trees);
    return resolve(trees, world, FakePlugins());
  };
  std::ostringstream output;
  cli::ConfigShow arguments;
  arguments.file = file;
  arguments.settings = {"train.accumulation=3", "plugin_path=/p"};
  arguments.world = {2, "--nproc"};
  arguments.format = "csv";
  cli::config_show(arguments, resolve_it, output);
  CHECK(asked_path == "/p");
  CHECK(output.str().find("\ntrain.accumulation,3,--set\n") != std::string::npos);
  CHECK(output.str().find("\ntrain.global_batch,24,micro_batch x accumulation x data-parallel size 2\n") !=
        std::string::npos);
  CHECK(output.str().find("\nlearning_rate.base,0.001,show.yaml:4\n") != std::string::npos);
  arguments.format = "jsn";
  CHECK(error_of([&] { cli::config_show(arguments, resolve_it, output); }) ==
        "--format jsn: table, markdown, csv or json is expected");
}

}  // namespace strata::config
