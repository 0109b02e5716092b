#include <set>

#include "catch.hpp"
#include "config/defaults.hpp"
#include "config/keys.hpp"
#include "config/listing.hpp"
#include "config/run_config.hpp"
#include "fake_plugins.hpp"
#include "outcome.hpp"

namespace strata::config {

TEST_CASE("A minimal config is completed from the defaults") {
  const RunConfig run = resolved({minimal_config});
  CHECK(run.world_size == 2);
  CHECK(run.device.plugin == "cpu");  // cuda has an obstacle
  CHECK(run.communicator.plugin.name == "shm");
  CHECK(run.communicator.timeout_s == 120);
  CHECK(run.model.plugin.name == "gpt_neox");
  CHECK(std::get<std::string>(run.model.plugin.options.value("preset")) == "pythia-14m");
  CHECK(run.model.seq_len == 128);
  CHECK(run.data.plugin.name == "nanogpt");
  CHECK(run.data.order == DataOrder::Sequential);
  CHECK(run.train.steps == 10);
  CHECK(run.train.accumulation == 1);
  CHECK(run.train.global_batch == 8);
  CHECK(run.learning_rate.base == 1e-3);
  CHECK(run.learning_rate.plugin.name == "constant");
  CHECK(run.learning_rate.warmup == 0);
  CHECK(run.parallel.size(Axis::Data) == 2);
  CHECK(run.partitioner.name == "ddp");
  CHECK(std::get<std::vector<double>>(run.optimizer.options.value("betas")) == std::vector<double>{0.9, 0.999});
  CHECK_FALSE(run.recompute.covers(0));
  CHECK_FALSE(run.offload.optimizer.has_value());
  CHECK(run.plugins().size() == 9);
  const std::set<std::string> settled_later{"parallel.chunks", "parallel.cut", "memory_budget", "device_budget"};
  for (const Resolved& one : listing(run)) {
    CAPTURE(one.path);
    CHECK((to_text(one.value) == "auto") == settled_later.contains(one.path));
  }
  CHECK(resolved({minimal_config}, {}, 3).train.global_batch == 12);
}

TEST_CASE("Each value's origin is listed") {
  const RunConfig run = resolved({minimal_config, "partitioner: {plugin: zero3}\n"}, {"train.seed=7"});
  CHECK(row(run, "train.steps").origin == "t.yaml:3");
  CHECK(row(run, "train.seed").value == "7");
  CHECK(row(run, "train.seed").origin == "--set");
  CHECK(row(run, "partitioner.zero3.bucket").value == "16777216");
  CHECK(row(run, "partitioner.zero3.bucket").origin == "default of partitioner/zero3");
  CHECK(row(run, "train.clip").origin == "default");
  CHECK(row(run, "scheduler.plugin").origin.starts_with("defaults.yaml:"));
  CHECK(row(run, "parallel.data").origin == "data-parallel size 2 = world size 2 (--nproc) / (pipeline 1 x tensor 1)");
  CHECK(row(run, "train.global_batch").origin == "micro_batch x accumulation x data-parallel size 2");
  CHECK(row(run, "device.plugin").value == "cpu");
  CHECK(row(run, "device.plugin").origin.find("by automatic.device") != std::string::npos);
}

TEST_CASE("Every key of the engine is in the defaults or in a missing-key error") {
  const Node defaults = read_defaults();
  std::vector<std::string> absent;
  for (const Key& key : keys()) {
    const std::string& path = key.option.name;
    const Node* slot = key.option.type == "plugin" ? find(defaults, path.substr(0, path.rfind('.'))) : nullptr;
    const bool named = slot != nullptr && slot->kind == NodeKind::Scalar;  // `device: auto`
    if (find(defaults, path) == nullptr && !named) absent.push_back(path);
  }
  CHECK(absent ==
        std::vector<std::string>{"model.plugin", "model.seq_len", "data.path", "validation.plugin", "train.steps"});
  CHECK(outcome({"model: {plugin: gpt_neox}"}).error == "t.yaml: model.seq_len must be given: tokens per sample");
  CHECK(outcome({"model: {plugin: gpt_neox, seq_len: 1}"})
            .error.starts_with("t.yaml: data.path must be given: the token file,"));
  CHECK(outcome({""}).error == "t.yaml: model.plugin must be given: the name of a plugin");
  CHECK(outcome({"model: {plugin: gpt_neox, seq_len: 1}\ndata: {path: ''}\n", "train: {steps: 1, micro_batch: 1}\n",
                 "learning_rate: {base: 1}\n"})
            .error.starts_with("t.yaml:2:14: data.path is empty"));
}

TEST_CASE("Rules for parameters are read from the config") {
  CHECK(resolved({minimal_config}).parameters.empty());
  CHECK(row(resolved({minimal_config}), "parameters").value == "[]");
  const RunConfig run = resolved({minimal_config,
                                  "parameters:\n  - {match: '*.bias', weight_decay: 0}\n"
                                  "  - match: ['*norm*', a.b]\n    trainable: false\n    learning_rate: 2e-3\n"});
  REQUIRE(run.parameters.size() == 2);
  CHECK(run.parameters[0].match == std::vector<std::string>{"*.bias"});
  CHECK(run.parameters[0].weight_decay == 0.0);
  CHECK_FALSE(run.parameters[0].trainable.has_value());
  CHECK_FALSE(run.parameters[0].learning_rate_factor.has_value());
  CHECK(run.parameters[1].match == std::vector<std::string>{"*norm*", "a.b"});
  CHECK(run.parameters[1].trainable == false);
  CHECK(run.parameters[1].learning_rate_factor == 2.0);
  CHECK(run.parameters[1].path == "parameters[1]");
  CHECK(row(run, "parameters").value ==
        "[{match: \"*.bias\", weight_decay: 0}, {match: [\"*norm*\", a.b], trainable: false, learning_rate: 2e-3}]");
  CHECK(resolved({minimal_config}, {"parameters=[{match: x, learning_rate_factor: 0.5}]"})
            .parameters[0]
            .learning_rate_factor == 0.5);
  CHECK(error("parameters: {match: x}").find("parameters: a list of rules") != std::string::npos);
  CHECK(error("parameters: [x]").starts_with("t.yaml:5:14: parameters[0]: a rule is expected"));
  CHECK(error("parameters: [{match: x, weight_deca: 0}]") ==
        "t.yaml:5:25: unknown key \"parameters[0].weight_deca\"; did you mean weight_decay?");
  CHECK(error("parameters: [{trainable: true}]").find("parameters[0].match must be given") != std::string::npos);
  CHECK(error("parameters: [{match: x}]").find("sets nothing") != std::string::npos);
  CHECK(error("parameters: [{match: [], trainable: true}]").find("a name or a list") != std::string::npos);
  CHECK(error("parameters: [{match: [[x]], trainable: true}]").find("a name or a list") != std::string::npos);
  CHECK(error("parameters: [{match: x, trainable: maybe}]").find("parameters[0].trainable") != std::string::npos);
  CHECK(error("parameters: [{match: x, learning_rate_factor: -1}]").find("the minimum is 0") != std::string::npos);
  CHECK(error("parameters: [{match: x, learning_rate: 1, learning_rate_factor: 1}]").find("are both given") !=
        std::string::npos);
  CHECK(error("parameters: [{match: x, learning_rate: 1}]", {"learning_rate.base=0"}).find("learning_rate.base is 0") !=
        std::string::npos);
  CHECK(outcome({"model: {plugin: gpt_neox, seq_len: 1}\ndata: {path: x}\ntrain: {steps: 1, micro_batch: 1}\n"
                 "parameters: [{match: x, learning_rate: 1}]"})
            .error.find("learning_rate.base is not given") != std::string::npos);
}

TEST_CASE("Unknown keys at any depth name the nearest one") {
  CHECK(error("trian: {}") == "t.yaml:5:1: unknown key \"trian\"; did you mean train?");
  CHECK(error("telemetry: {path: x}").starts_with("t.yaml:5:1: unknown key \"telemetry\"; known: "));
  CHECK(error("parallel: {pipline: 2}") == "t.yaml:5:12: unknown key \"parallel.pipline\"; did you mean pipeline?");
  CHECK(error("parallel: {data: {x: 1}}").starts_with("t.yaml:5:18: parallel.data: a section"));
  CHECK(error("offload: {optimiser: {}}") == "t.yaml:5:11: unknown key \"offload.optimiser\"; did you mean optimizer?");
  CHECK(error("offload: {optimizer: {plugin: cpu, cpu: {pined: true}}}") ==
        "t.yaml:5:42: unknown option \"offload.optimizer.cpu.pined\"; did you mean pinned?");
  CHECK(error("optimizer: {beta: [0.9, 0.99]}") ==
        "t.yaml:5:13: unknown option \"optimizer.adamw.beta\"; did you mean betas?");
  CHECK(error("communicator: {plugin: gloo, timeout: 5}") ==
        "t.yaml:5:30: unknown option \"communicator.gloo.timeout\"; did you mean timeout_s?");
  CHECK(error("partitioner: {zero33: {}}") == "t.yaml:5:15: unknown key \"partitioner.zero33\"; did you mean zero3?");
  CHECK(error("", {"trian.steps=5"}) == "--set: unknown key \"trian\"; did you mean train?");
  CHECK(error("activations: {checkpoint: all, x: 1}").find("unknown key \"activations.x\"") != std::string::npos);
}

TEST_CASE("Wrong values say where, which and why") {
  CHECK(error("data: 5") != "");
  CHECK(outcome({"train: 5"}).error.starts_with("t.yaml:1:8: train is a section"));
  CHECK(error("communicator: {timeout_s: 0}") ==
        "t.yaml:5:27: option communicator.timeout_s is '0': the minimum is 0.1 seconds");
  CHECK(error("parallel: {pipeline: two}")
            .starts_with("t.yaml:5:22: option parallel.pipeline is 'two': it must be a whole number"));
  CHECK(error("optimizer: {weight_decay: -1}") ==
        "t.yaml:5:27: option optimizer.adamw.weight_decay is '-1': the minimum is 0");
  CHECK(error("", {"learning_rate=cosin"}) ==
        "--set: learning_rate.plugin: no learning_rate plugin \"cosin\"; did you mean cosine?");
  CHECK(error("", {"learning_rate.schedule=cosine"}) ==
        "--set: learning_rate.schedule was renamed learning_rate.plugin; `strata plugins list` prints its values");
  CHECK(error("", {"train.steps.x=1"}).starts_with("--set: train.steps: a section"));
  CHECK(error("", {"train.steps=0"}).find("the minimum is 1") != std::string::npos);
  CHECK(error("", {"partitioner.plugin=[a]"}).starts_with("--set: partitioner.plugin: the name of a plugin"));
  CHECK(error("partitioner: [zero3]").starts_with("t.yaml:5:14: partitioner is a section"));
}

TEST_CASE("Checkpointed layers") {
  CHECK(resolved({minimal_config, "activations: {checkpoint: all}"}).recompute.covers(77));
  const RecomputedLayers some = resolved({minimal_config, "activations: {checkpoint: [3, 0]}"}).recompute;
  CHECK(some.covers(0));
  CHECK_FALSE(some.covers(1));
  CHECK(some.covers(3));
  CHECK(error("activations: {checkpoint: [1, 1]}").find("layer 1 is listed twice") != std::string::npos);
  CHECK(error("activations: {checkpoint: [-1]}").find("the minimum is 0") != std::string::npos);
  CHECK(error("activations: {checkpoint: some}").find("all, none, or a list") != std::string::npos);
  CHECK(error("activations: {checkpoint: }").find("all, none, or a list") != std::string::npos);
}

TEST_CASE("Offload") {
  const RunConfig run = resolved({minimal_config, "offload: {optimizer: {plugin: cpu, pinned: false}}"});
  REQUIRE(run.offload.optimizer.has_value());
  CHECK(run.offload.optimizer->slot == "offload.optimizer");
  CHECK(run.offload.optimizer->kind == "offload");
  CHECK_FALSE(std::get<bool>(run.offload.optimizer->options.value("pinned")));
  CHECK_FALSE(resolved({minimal_config, "offload: {optimizer: {plugin: cpu, pinned: false}}"},
                       {"offload.optimizer.plugin=none"})
                  .offload.optimizer.has_value());
}

TEST_CASE("Sizes of world and batch reach the error with their places") {
  CHECK(outcome({minimal_config, "parallel: {pipeline: 2}"}, {}, {3, "--nproc", true})
            .error.starts_with("t.yaml:5:22: parallel: world size 3 (--nproc) is not divisible"));
  CHECK(outcome({minimal_config}, {"train.global_batch=30"}, {4, "--nproc", true})
            .error.starts_with("--set: train.global_batch 30 / (micro_batch 4 x data-parallel size 4 = 16)"));
  CHECK(error("", {"train.micro_batch=auto"}) ==
        "t.yaml: train: no batch size is given; give train.micro_batch or train.global_batch (samples)");
}

TEST_CASE("The same content resolves the same from all three spellings") {
  const std::string yaml =
      write_file("same.yaml",
                 "model: {plugin: gpt_neox, preset: pythia-70m, seq_len: 128}\ndata: {path: x.bin, order: shuffled}\n"
                 "train: {steps: 5e8, micro_batch: 4, global_batch: 64, clip: 0.5, seed: 3}\n"
                 "learning_rate: {base: 6e-4, plugin: cosine, warmup: 1e2}\n"
                 "partitioner: {plugin: zero3, bucket: 16MB}\noptimizer: {betas: [0.9, 0.95]}\n"
                 "activations: {checkpoint: [0, 2]}\noffload: {optimizer: {plugin: cpu, cpu: {pinned: false}}}\n"
                 "parallel: {data: auto}\n");
  const std::string toml = write_file(
      "same.toml",
      "[model]\nplugin = \"gpt_neox\"\npreset = \"pythia-70m\"\nseq_len = 128\n[data]\npath = \"x.bin\"\n"
      "order = \"shuffled\"\n[train]\nsteps = 5e8\nmicro_batch = 4\nglobal_batch = 64\nclip = 0.5\nseed = 3\n"
      "[learning_rate]\nbase = 6e-4\nplugin = \"cosine\"\nwarmup = 1e2\n[partitioner]\nplugin = \"zero3\"\n"
      "bucket = \"16MB\"\n[optimizer]\nbetas = [0.9, 0.95]\n[activations]\ncheckpoint = [0, 2]\n"
      "[offload.optimizer]\nplugin = \"cpu\"\ncpu.pinned = false\n[parallel]\ndata = \"auto\"\n");
  const std::string json = write_file(
      "same.json",
      "{\"model\": {\"plugin\": \"gpt_neox\", \"preset\": \"pythia-70m\", \"seq_len\": 128},\n"
      "\"data\": {\"path\": \"x.bin\", \"order\": \"shuffled\"},\n"
      "\"train\": {\"steps\": 5e8, \"micro_batch\": 4, \"global_batch\": 64, \"clip\": 0.5, \"seed\": 3},\n"
      "\"learning_rate\": {\"base\": 6e-4, \"plugin\": \"cosine\", \"warmup\": 1e2},\n"
      "\"partitioner\": {\"plugin\": \"zero3\", \"bucket\": \"16MB\"}, \"optimizer\": {\"betas\": [0.9, 0.95]},\n"
      "\"activations\": {\"checkpoint\": [0, 2]},\n"
      "\"offload\": {\"optimizer\": {\"plugin\": \"cpu\", \"cpu\": {\"pinned\": false}}}, \"parallel\": {\"data\": "
      "\"auto\"}}\n");
  const auto listed = [](const std::string& file) {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const Resolved& one : listing(resolve(read_trees(file, {}), {2, "--nproc"}, FakePlugins())))
      rows.emplace_back(one.path, to_text(one.value));
    return rows;
  };
  CHECK(listed(yaml) == listed(toml));
  CHECK(listed(yaml) == listed(json));
  const RunConfig run = resolve(read_trees(toml, {}), {2, "--nproc"}, FakePlugins());
  CHECK(run.train.steps == 500000000);
  CHECK(run.learning_rate.warmup == 100);
  CHECK(run.train.accumulation == 8);
  CHECK(std::get<std::int64_t>(run.partitioner.options.value("bucket")) == 16000000);
}

TEST_CASE("The ready configs resolve, and say when to use them") {
  int configs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(configs_folder())) {
    if (entry.path().extension() != ".yaml" || entry.path().filename() == "defaults.yaml") continue;
    ++configs;
    INFO(entry.path());
    CHECK(error_of([&] { resolve(read_trees(entry.path().string(), {}), {2, "--nproc"}, FakePlugins()); }) == "");
    std::string line;
    std::ifstream file(entry.path());
    std::getline(file, line);
    CHECK(line.starts_with("# When to use: "));
  }
  CHECK(configs >= 4);
}

TEST_CASE("The defaults are looked for, and missing ones say where") {
  const std::string folder = configs_folder();
  const char* set = std::getenv("STRATA_CONFIG_DIR");
  const std::string before = set == nullptr ? "" : set;
  setenv("STRATA_CONFIG_DIR", "/nowhere/at/all", 1);
  std::string text;
  try {
    read_defaults();
  } catch (const EnvironmentError& missing) {
    text = missing.what();
  }
  CHECK(text.starts_with("defaults.yaml is in none of: /nowhere/at/all; set STRATA_CONFIG_DIR"));
  unsetenv("STRATA_CONFIG_DIR");
  CHECK(std::filesystem::equivalent(configs_folder(), folder));  // the source tree's
  if (!before.empty()) setenv("STRATA_CONFIG_DIR", before.c_str(), 1);
}

TEST_CASE("plugin_path is known before plugins are") {
  CHECK(plugin_path({read_text("plugin_path: /a", Format::Yaml, "x"), parse_setting("plugin_path=/b:/c")}) == "/b:/c");
  CHECK(plugin_path({}) == "");
}

}  // namespace strata::config
