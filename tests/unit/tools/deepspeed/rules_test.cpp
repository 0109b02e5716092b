// What several keys mean together: batches, "auto", versions, the pipeline, --set, conversion.
#include <strata/deepspeed.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "catch.hpp"
#include "config/listing.hpp"
#include "temporary_folder.hpp"
#include "tools/config/config.hpp"
#include "tools/config/write_tree.hpp"
#include "tools/deepspeed/deepspeed_table.hpp"
#include "translation.hpp"

namespace strata::config {
namespace {

std::string batches(const Translated& result) {
  if (!result.run) return result.error;
  const TrainConfig& train = result.run->train;
  return std::to_string(train.micro_batch) + " x " + std::to_string(train.accumulation) + " of " +
         std::to_string(train.global_batch);
}

std::string batches(const std::string& keys, std::int64_t world = 2) {
  return batches(translated("{" + keys + "}", {}, world));
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("The batch triangle of a ds_config is exact") {
  CHECK(batches(R"("train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4)") ==
        "2 x 4 of 16");
  CHECK(batches(R"("train_batch_size": 16, "train_micro_batch_size_per_gpu": 2)") == "2 x 4 of 16");
  CHECK(batches(R"("train_batch_size": 16, "gradient_accumulation_steps": 4)") == "2 x 4 of 16");
  CHECK(batches(R"("train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4)") == "2 x 4 of 16");
  CHECK(batches(R"("train_batch_size": 16)") == "8 x 1 of 16");
  CHECK(batches(R"("train_micro_batch_size_per_gpu": 2)", 3) == "2 x 1 of 6");
  has(batches(R"("train_batch_size": 15, "train_micro_batch_size_per_gpu": 2)"),
      "the nearest valid values of global_batch are 12 and 16");
  has(batches(R"("train_batch_size": 15, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4)"),
      "ds_config.json:1");
  has(batches(R"("gradient_accumulation_steps": 4)"), "no batch size in this ds_config");
  has(batches(R"("fp16": {"enabled": true})"), "no batch size in this ds_config");
}

TEST_CASE("An auto batch is derived from the others") {
  CHECK(
      batches(
          R"("train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto")") ==
      "2 x 1 of 4");
  CHECK(
      batches(R"("train_batch_size": 8, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2)") ==
      "2 x 2 of 8");
}

TEST_CASE("An auto batch is 8 samples per device, with any micro-batch") {
  const std::string all =
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})";
  CHECK(batches(translated(all)) == "8 x 1 of 16");
  CHECK(batches(translated(all, {}, 3)) == "8 x 1 of 24");
  CHECK(batches(R"("train_batch_size": "auto")") == "8 x 1 of 16");
  CHECK(batches(R"("train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 3)") == "8 x 3 of 48");
  CHECK(batches(translated(all, {"train.micro_batch=3"})) == "3 x 1 of 6");
  CHECK(batches(translated(all, {"train.accumulation=3"})) == "8 x 3 of 48");
  CHECK(batches(translated(all, {"train.global_batch=6", "train.accumulation=3"})) == "1 x 3 of 6");
  CHECK(translated(all).report.automatic_batch == 8);
  CHECK(translated(all, {"train.accumulation=3"}).report.automatic_batch == 0);  // nothing is left to choose
  resolve::DialectAnswers answers;
  answers.micro_batch = 2;
  answers.micro_batch_origin = "the largest that fits";
  const Translated result = translated(all, {}, 2, answers);
  CHECK(batches(result) == "2 x 4 of 16");
  CHECK(line_of(result, "train_micro_batch_size_per_gpu") ==
        "train.micro_batch = 2; \"auto\" is 8 samples per device, Hugging Face's default; the micro-batch is the "
        "largest that fits");
  CHECK(line_of(result, "gradient_accumulation_steps") == "train.accumulation = 4");
  CHECK(batches(translated(R"({"train_batch_size": "auto", "gradient_accumulation_steps": 3})", {}, 2, answers)) ==
        "2 x 12 of 48");
  has(batches(R"("train_batch_size": "auto", "gradient_accumulation_steps": 9000000000000000000)"), "64-bit");
}

TEST_CASE("A format that is auto is off, but for bf16 where the device has it, unless --dtype says") {
  const auto format = [](const std::string& blocks, const std::vector<std::string>& settings = {}) {
    return value_of(translated(R"({"train_batch_size": 2, )" + blocks + "}", settings), "precision.plugin");
  };
  const std::vector<std::string> on_cuda{"device=cuda",
                                         "communicator.plugin=gloo"};  // nccl is not there without a toolkit
  const std::string both = R"("fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"})";
  CHECK(format(both) == "fp32");
  CHECK(format(both, on_cuda) == "bf16");
  CHECK(format(both, {"precision.plugin=bf16"}) == "bf16");
  CHECK(format(R"("fp16": {"enabled": "auto"})") == "fp32");
  CHECK(format(R"("fp16": {"enabled": "auto"})", on_cuda) == "fp32");
  CHECK(format(R"("bf16": {"enabled": "auto"})", on_cuda) == "bf16");
  CHECK(format(R"("fp16": {"enabled": true}, "bf16": {"enabled": "auto"})", on_cuda) == "fp16");
  has(line_of(translated(R"({"train_batch_size": 2, )" + both + "}"), "fp16.enabled"),
      "precision.plugin = fp32: \"auto\" is off, as Hugging Face's --fp16 and --bf16 are");
}

TEST_CASE("OneCycle cycles Adam's first beta, sets its second, and leaves SGD alone") {
  const std::string head = R"({"train_batch_size": 2, "optimizer": {"type": ")", cycle = R"(", "params": {"lr": 0.1}},
      "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1)";
  const std::string cycles = "learning_rate.one_cycle.cycle_momentum";
  const Translated adam = translated(head + "Adam" + cycle + "}}}");
  CHECK(value_of(adam, cycles) == "true");
  CHECK(value_of(adam, "optimizer.adamw.betas") == "[0.9, 0.99]");
  const Translated sgd = translated(head + "SGD" + cycle + R"(, "cycle_momentum": true}}})");
  CHECK(value_of(sgd, cycles) == "false");
  const Translated off = translated(head + "Adam" + cycle + R"(, "cycle_momentum": false}}})");
  CHECK(value_of(off, "optimizer.adamw.betas") == "[0.9, 0.999]");
}

// What the constructors of DeepSpeed 0.19.5 and torch have for parameters that are left out: deepspeed/ops/adam, lamb,
// lion and adagrad, runtime/fp16/onebit, torch.optim; which of them is made: _configure_basic_optimizer of
// runtime/engine.py.
TEST_CASE("Unset parameters of an optimizer are DeepSpeed's defaults for its class") {
  struct Made {
    const char *type, *parameters;
    std::vector<std::pair<const char*, const char*>> values;
  };
  const char *decays = "optimizer.adamw.weight_decay", *rate = "learning_rate.base";
  const std::vector<Made> all{
      {"Adam", "", {{rate, "0.001"}, {decays, "0"}, {"optimizer.adamw.epsilon", "1e-08"}}},
      {"AdamW", "", {{rate, "0.001"}, {decays, "0"}, {"optimizer.adamw.betas", "[0.9, 0.999]"}}},
      {"AdamW", R"("torch_adam": false)", {{decays, "0"}}},
      {"AdamW", R"("torch_adam": true)", {{rate, "0.001"}, {decays, "0.01"}, {"optimizer.adamw.decoupled", "true"}}},
      {"adamw",
       R"("torch_adam": true, "adam_w_mode": false)",
       {{decays, "0.01"}, {"optimizer.adamw.decoupled", "true"}}},
      {"Adam", R"("torch_adam": true)", {{decays, "0.01"}, {"optimizer.adamw.decoupled", "true"}}},
      {"Adam", R"("torch_adam": true, "adam_w_mode": true)", {{decays, "0.01"}}},
      {"Adam", R"("torch_adam": true, "adam_w_mode": false)", {{decays, "0"}, {"optimizer.adamw.decoupled", "false"}}},
      {"Adam", R"("adam_w_mode": false)", {{decays, "0"}, {"optimizer.adamw.decoupled", "false"}}},
      {"AdamW", R"("torch_adam": true, "weight_decay": 0.2)", {{decays, "0.2"}}},
      {"AdamW", R"("torch_adam": true, "weight_decay": "auto")", {{decays, "0"}}},  // Hugging Face's, which it hands on
      {"Lion", "", {{rate, "0.001"}, {"optimizer.lion.betas", "[0.9, 0.999]"}, {"optimizer.lion.weight_decay", "0"}}},
      {"Lamb",
       "",
       {{rate, "0.001"},
        {"optimizer.lamb.betas", "[0.9, 0.999]"},
        {"optimizer.lamb.epsilon", "1e-08"},
        {"optimizer.lamb.bias_correction", "step_size"},
        {"optimizer.lamb.min_coeff", "0.01"},
        {"optimizer.lamb.max_coeff", "10"}}},
      {"Adagrad", "", {{rate, "0.01"}, {"optimizer.adagrad.epsilon", "1e-10"}, {"optimizer.adagrad.lr_decay", "0"}}},
      {"SGD", "", {{rate, "0.001"}, {"optimizer.sgd.momentum", "0"}, {"optimizer.sgd.weight_decay", "0"}}},
      {"OneBitAdam", "", {{rate, "0.001"}, {"optimizer.onebit_adam.freeze_step", "100000"}}},
      {"ZeroOneAdam",
       "",
       {{"optimizer.zero_one_adam.var_freeze_step", "100000"},
        {"optimizer.zero_one_adam.var_update_scaler", "16"},
        {"optimizer.zero_one_adam.local_step_scaler", "32678"},
        {"optimizer.zero_one_adam.local_step_clipper", "16"}}}};
  for (const Made& made : all) {
    const Translated result = translated(R"({"train_batch_size": 2, "optimizer": {"type": ")" + std::string(made.type) +
                                         R"(", "params": {)" + made.parameters + "}}}");
    CAPTURE(made.type, made.parameters, result.error);
    for (const auto& [key, value] : made.values) {
      CAPTURE(key);
      CHECK(value_of(result, key) == value);
    }
  }
  const Translated torch =
      translated(R"({"train_batch_size": 2, "optimizer": {"type": "Adam", "params": {"torch_adam": true}}})");
  has(line_of(torch, "optimizer.params.weight_decay"), "the default of torch.optim.AdamW");
}

TEST_CASE("The schedule is Hugging Face's where the rate is") {
  const auto schedule = [](const std::string& keys, const std::vector<std::string>& settings = {}) {
    return value_of(translated(R"({"train_batch_size": 2)" + keys + "}", settings), "learning_rate.plugin");
  };
  CHECK(schedule("") == "linear");
  CHECK(schedule(R"(, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}})") == "linear");
  CHECK(schedule(R"(, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}})") == "constant");
  CHECK(schedule(R"(, "optimizer": {"type": "AdamW"})") == "constant");  // DeepSpeed's own default rate
  CHECK(schedule(R"(, "scheduler": {"type": "WarmupLR"})") == "warmup_lr");
  CHECK(schedule("", {"learning_rate.plugin=cosine"}) == "cosine");
}

TEST_CASE("Keys that DeepSpeed ignores are ignored, and misspelt ones are reported") {
  const Translated result =
      translated(R"({"train_batch_size": 2, "comms_config": {"enabled": false}, "monitor_config": {}, "seed": 3})");
  CHECK(result.error == "");
  for (const char* key : {"comms_config", "monitor_config", "seed"})
    has(line_of(result, key), "ignored, as in DeepSpeed");
  const std::string slip = R"({"train_batch_size": 2, "gradient_cliping": 0.5})";
  has(translated(slip).error, "did you mean gradient_clipping? DeepSpeed ignores it; --allow gradient_cliping does so");
  has(line_of(translated(slip, {"deepspeed_allow=[gradient_cliping]"}), "gradient_cliping"),
      "ignored, as in DeepSpeed");
  has(translated(R"({"train_batch_size": 2, "zero_optimization": {"strange": 1}})").error, "unknown key");
}

TEST_CASE("Defaults are DeepSpeed's, and those that moved follow the version") {
  const std::string stage3 = R"({"train_batch_size": 2, "zero_optimization": {"stage": 3}})";
  CHECK(value_of(translated(stage3), "train.clip") == "1");
  CHECK(value_of(translated(stage3, {"deepspeed_compat=0.16"}), "train.clip") == "0");
  CHECK(value_of(translated(stage3, {"deepspeed_compat=0.19.2"}), "train.clip") == "0");
  CHECK(value_of(translated(stage3, {"deepspeed_compat=0.19.3"}), "train.clip") == "1");
  CHECK(value_of(translated(R"({"train_batch_size": 2, "deepspeed_compat": "0.16.4"})"), "train.clip") == "0");
  has(line_of(translated(stage3, {"deepspeed_compat=0.16"}), "gradient_clipping"), "train.clip = 0.0");
  CHECK(value_of(translated(stage3), "partitioner.zero3.persistence_threshold") == "100000");
  CHECK(value_of(translated(stage3), "partitioner.zero3.max_reuse_distance") == "1000000000");
  CHECK(value_of(translated(stage3), "partitioner.zero3.overlap_comm") == "true");
  CHECK(value_of(translated(R"({"train_batch_size": 2, "zero_optimization": {"stage": 2}})"),
                 "partitioner.zero2.overlap_comm") == "false");
  CHECK(value_of(translated(stage3), "optimizer.adamw.weight_decay") == "0");
  CHECK(value_of(translated(stage3), "learning_rate.base") == "5e-05");
  CHECK(value_of(translated(R"({"train_batch_size": 2, "optimizer": {"type": "Adam"}})"), "learning_rate.base") ==
        "0.001");
  CHECK(value_of(translated(R"({"train_batch_size": 2, "optimizer": {"type": "Adam"}})"),
                 "optimizer.adamw.weight_decay") == "0");
  const Translated lamb = translated(R"({"train_batch_size": 2, "optimizer": {"type": "Lamb"}})");
  CHECK(value_of(lamb, "optimizer.lamb.bias_correction") == "step_size");
  CHECK(value_of(lamb, "optimizer.lamb.weight_decay") == "0");
  CHECK(value_of(translated(R"({"train_batch_size": 2, "optimizer": {"type": "Adagrad"}})"), "learning_rate.base") ==
        "0.01");
  CHECK(origin_of(translated(stage3), "partitioner.plugin") == "ds_config.json:1 zero_optimization.stage");
  CHECK(deepspeed::is_older("0.16", "0.19.3"));
  CHECK_FALSE(deepspeed::is_older("0.19.10", "0.19.3"));
  CHECK_FALSE(deepspeed::is_older("0.19.3", "0.19.3"));
  CHECK_FALSE(deepspeed::is_older("1", "0.19.3"));
}

TEST_CASE("Sizes by the model's width, once it is known") {
  const std::string text = R"({"train_batch_size": 2, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "sub_group_size": 1e9}})";
  CHECK(translated(text).report.asks_hidden_size);
  resolve::DialectAnswers answers;
  answers.hidden_size = 128;
  const Translated result = translated(text, {}, 2, answers);
  CHECK(value_of(result, "partitioner.zero3.reduce_bucket_size") == "16384");
  CHECK(value_of(result, "partitioner.zero3.prefetch_bucket_size") == "14745");
  CHECK(value_of(result, "partitioner.zero3.persistence_threshold") == "1280");
  has(line_of(result, "zero_optimization.stage3_prefetch_bucket_size"), "0.9 x (hidden size)^2 of 128");
}

TEST_CASE("--set wins over the file, and its line says so") {
  const std::string text = R"({"train_batch_size": 2, "gradient_clipping": 0.5, "zero_optimization": {"stage": 2}})";
  const Translated result = translated(text, {"train.clip=0.25", "partitioner.plugin=zero1"});
  CHECK(value_of(result, "train.clip") == "0.25");
  CHECK(line_of(result, "gradient_clipping") == "train.clip = 0.5 (--set changes it to 0.25)");
  CHECK(value_of(result, "partitioner.plugin") == "zero1");
}

TEST_CASE("A pipeline counts micro-batches as DeepSpeed does") {
  const std::string pipeline = R"("pipeline": {"stages": 2, "micro_batch_size": 2, "intermediate_batch_size": "auto"})";
  CHECK(batches(pipeline + R"(, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3)") ==
        "2 x 6 of 12");
  CHECK(batches(pipeline + R"(, "train_micro_batch_size_per_gpu": 4)") == "2 x 2 of 4");
  CHECK(batches(pipeline + R"(, "train_batch_size": 12, "gradient_accumulation_steps": 1)") == "2 x 6 of 12");
  CHECK(batches(pipeline + R"(, "train_batch_size": "auto", "gradient_accumulation_steps": "auto")") == "2 x 4 of 8");
  CHECK(batches(pipeline + R"(, "gradient_accumulation_steps": 4)", 4) == "2 x 4 of 16");
  const Translated result =
      translated("{" + pipeline + R"(, "zero_optimization": {"stage": 3}, "train_batch_size": 4})", {}, 2);
  CHECK(value_of(result, "scheduler.plugin") == "1f1b");
  CHECK(value_of(result, "parallel.pipeline") == "2");
  CHECK(value_of(result, "partitioner.plugin") == "zero3");
}

TEST_CASE("What training can do without may be allowed") {
  const std::string text = R"({"train_batch_size": 2, "wandb": {"enabled": true, "project": "p"}})";
  has(translated(text).error, "or run without it by --allow wandb");
  has(line_of(translated(text, {"deepspeed_allow=[wandb]"}), "wandb"), "ignored by --allow");
  has(translated(R"({"train_batch_size": 2, "amp": {"enabled": true}})", {"deepspeed_allow=[amp]"}).error,
      "is refused");
}

TEST_CASE("A ds_config is known by its keys") {
  const auto known = [](const std::string& json) {
    return deepspeed::DeepSpeed().recognises(read_text(json, Format::Json, "x.json"));
  };
  CHECK(known(R"({"zero_optimization": {"stage": 1}})"));
  CHECK(known(R"({"zero": true, "optimizer": {"type": "Adam"}})"));
  CHECK(known(R"({"optimizer": {"type": "Adam"}})"));
  CHECK_FALSE(known(R"({"optimizer": {"plugin": "adamw"}})"));
  CHECK_FALSE(known(R"({"zero_optimization": {"stage": 1}, "model": {"plugin": "gpt_neox"}})"));
  CHECK_FALSE(known("{}"));
  CHECK_FALSE(known(R"({"checkpoint": {}})"));
}

TEST_CASE("What a ds_config means can be written, and means the same") {
  accept_deepspeed_configs();
  const TemporaryFolder folder;
  const std::string source = folder / "ds_config.json";
  std::ofstream(source)
      << R"({"train_batch_size": 8, "gradient_accumulation_steps": 2, "fp16": {"enabled": true, "loss_scale": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95]}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}})";
  const auto registry = plugins::open_registry("");
  const plugins::EnginePlugins plugins(registry);
  cli::ConfigShow arguments;
  arguments.file = source;
  arguments.settings = model_settings;
  std::vector<Node> trees = read_trees(source, model_settings);
  deepspeed::DeepSpeed().translate(trees, plugins, {});
  const RunConfig meant = resolve(trees, {2, "--nproc"}, plugins);
  for (const char* name : {"out.yaml", "out.toml", "out.json"}) {
    const std::string file = folder / name;
    std::ostringstream output, log;
    cli::config_convert(arguments, registry, "", file, output, log);
    CHECK(output.str().empty());
    has(log.str(), "zero_optimization.stage 3: partitioner.plugin = zero3");
    const RunConfig read = resolve(read_trees(file, {}), {2, "--nproc"}, plugins);
    const std::vector<Resolved> rows = listing(read), expected = listing(meant);
    REQUIRE(rows.size() == expected.size());
    for (std::size_t at = 0; at < rows.size(); ++at) {
      CHECK(rows[at].path == expected[at].path);
      CHECK(rows[at].value == expected[at].value);
    }
  }
  std::ostringstream output, log;
  cli::config_convert(arguments, registry, "toml", "", output, log);
  has(output.str(), "# ds_config.json:3 zero_optimization.stage");
  CHECK_THROWS_AS(cli::config_convert(arguments, registry, "", folder / "out.txt", output, log), UserError);
  CHECK_THROWS_AS(cli::config_convert(arguments, registry, "yaml", folder / "none/out.yaml", output, log), Error);
}

TEST_CASE("A tree is written so that it reads back") {
  const std::string text =
      "'odd key': -0.5\na: {b: 'x y', c: \"1\", d: 5e8, e: [1, two, 'three 3'], f: true, g: \"true\"}\nh: {i: {j: "
      "no-one}}\n";
  const Node tree = read_text(text, Format::Yaml, "t.yaml");
  for (const Format format : {Format::Yaml, Format::Toml, Format::Json}) {
    const std::string written = cli::write_tree(tree, format);
    INFO(written);
    const Node again = read_text(written, format, "again");
    CHECK(cli::write_tree(again, Format::Json) == cli::write_tree(tree, Format::Json));
  }
  CHECK(cli::write_tree(read_text("", Format::Yaml, "e"), Format::Yaml) == "");
  CHECK_THROWS_AS(cli::write_tree(read_text("a: null", Format::Yaml, "n"), Format::Toml), UserError);
}

}  // namespace strata::config
