#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <strata/error.hpp>

#include <cmath>

#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "checkpoint/finite.hpp"
#include "checkpoint/hugging_face.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"

using namespace strata::checkpoint;
using strata::Bug;
using strata::UserError;

namespace {

const std::string config = R"({"model_type": "example", "layers": 2})";
const std::vector<TensorSpec> written_specs{{"embed.weight", at::kFloat, {10, 4}},
                                            {"layers.0.weight", at::kBFloat16, {4, 4}},
                                            {"layers.0.attention.bias", at::kBool, {3}},
                                            {"layers.1.weight", at::kHalf, {4, 4}}};

// What the exporter below writes into element i of every tensor.
at::Tensor content(const TensorSpec& spec) {
  const std::int64_t count = element_count(spec.shape);
  return at::arange(count, at::kFloat).to(spec.dtype);
}

void export_to(const std::string& path, std::uint64_t max_shard_bytes) {
  HuggingFaceExporter exporter(path, config, written_specs, max_shard_bytes);
  for (const TensorSpec& spec : written_specs) {
    const at::Tensor whole = content(spec);
    exporter.write_range(spec.name, 2, whole.narrow(0, 2, whole.numel() - 2));
    exporter.write_range(spec.name, 0, whole.narrow(0, 0, 2));
  }
  exporter.finish();
}

NameMap name_map() {
  return {{{"embedding", {10, 4}, {"old.embed.weight", "embed.weight"}},
           {"layer0.weight", {4, 4}, {"layers.0.weight"}},
           {"layer1.weight", {4, 4}, {"layers.1.weight"}}},
          {"layers.*.attention.bias"}};
}

void check_reads(const std::string& path) {
  const auto folder = std::make_shared<const HuggingFaceFolder>(path);
  CHECK(folder->config_text() == config);
  const RangeReader reader(folder, name_map());
  const at::Tensor piece = at::empty({7}, at::kFloat);
  for (const char* name : {"embedding", "layer0.weight", "layer1.weight"}) {
    reader.fill(name, 5, 12, piece);
    CHECK(at::equal(piece, at::arange(5, 12, at::kFloat)));
  }
  CHECK_THROWS_AS(reader.fill("head", 0, 7, piece), Bug);
}

}  // namespace

TEST_CASE("an export comes back, as one file and as shards") {
  const TemporaryFolder folder;
  export_to(folder / "one", 1 << 20);
  check_reads(folder / "one");
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "one"), {}) == 2);
  export_to(folder / "shards/", 64);
  check_reads(folder / "shards");
  const auto index = nlohmann::json::parse(read_file(folder / "shards/model.safetensors.index.json"));
  CHECK(index["metadata"]["total_size"] == 160 + 32 + 3 + 32);
  CHECK(index["weight_map"]["embed.weight"] == "model-00001-of-00003.safetensors");
  CHECK(index["weight_map"]["layers.0.attention.bias"] == "model-00002-of-00003.safetensors");
  CHECK(index["weight_map"]["layers.1.weight"] == "model-00003-of-00003.safetensors");
  CHECK(SafetensorsFile(folder / "shards/model-00003-of-00003.safetensors").metadata().at("format") == "pt");
  CHECK(folder.names() == 2);
}

TEST_CASE("an export refuses an existing folder and leaves nothing when dropped") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& path) {
    return error_of<UserError>([&] { HuggingFaceExporter exporter(path, config, written_specs, 1000); });
  };
  std::filesystem::create_directory(folder / "full");
  write_file(folder / "full/notes", "precious");
  CHECK_THAT(refused(folder / "full"), Contains("is not empty"));
  CHECK_THAT(refused(folder / "full/notes"), Contains("is a file"));
  CHECK_THAT(refused(folder / "none/deep"), Contains("cannot be created"));
  CHECK_THAT(error_of<UserError>([&] { HuggingFaceExporter exporter(folder / "new", "{", written_specs, 1000); }),
             Contains("not valid JSON"));
  { HuggingFaceExporter dropped(folder / "new", config, written_specs, 1000); }
  CHECK_THROWS_AS(HuggingFaceExporter(folder / "new", config, {written_specs[0], written_specs[0]}, 1), Bug);
  HuggingFaceExporter unfinished(folder / "new", config, written_specs, 1000);
  CHECK_THROWS_AS(unfinished.finish(), Bug);
  CHECK_THROWS_AS(unfinished.write_range("other", 0, at::arange(2)), Bug);
  CHECK_FALSE(std::filesystem::exists(folder / "new"));
  HuggingFaceExporter late(folder / "late", config, {}, 1000);
  std::filesystem::create_directory(folder / "late");
  write_file(folder / "late/theirs", "");
  CHECK_THAT(error_of<UserError>([&] { late.finish(); }), Contains("filled by another process"));
  std::filesystem::create_directory(folder / "empty");
  export_to(folder / "empty", 1000);
  check_reads(folder / "empty");
}

TEST_CASE("weights that are not the model's are listed") {
  const TemporaryFolder folder;
  export_to(folder / "hf", 1000);
  NameMap names = name_map();
  names.ignored.clear();
  names.entries[1].shape = {4, 5};
  for (const char* name : {"a", "b", "c", "d", "e"})
    names.entries.push_back({name, {2}, {std::string(name) + ".weight"}});
  const std::string text =
      error_of<UserError>([&] { RangeReader reader(std::make_shared<const HuggingFaceFolder>(folder / "hf"), names); });
  CHECK_THAT(text, Contains("layers.0.weight is [4, 4] and the model's [4, 5]"));
  CHECK_THAT(text, Contains("missing: a.weight [2], b.weight [2], c.weight [2] and 2 more"));
  CHECK_THAT(text, Contains("unknown to the model: layers.0.attention.bias"));
}

TEST_CASE("a parameter that a folder holds under two names has one value") {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, float last) {
    HuggingFaceExporter exporter(folder / name, config, {{"a", at::kFloat, {3}}, {"b", at::kHalf, {3}}}, 1000);
    exporter.write_range("a", 0, at::arange(3, at::kFloat));
    const at::Tensor other = at::arange(3, at::kFloat);
    other[2] = last;
    exporter.write_range("b", 0, other);
    exporter.finish();
    const RangeReader reader(std::make_shared<const HuggingFaceFolder>(folder / name), {{{"x", {3}, {"a", "b"}}}});
    const at::Tensor values = at::empty({3}, at::kFloat);
    reader.fill("x", 0, 3, values);
    CHECK(at::equal(values, at::arange(3, at::kFloat)));
  };
  write("equal", 2);
  CHECK_THAT(error_of<UserError>([&] { write("different", 3); }),
             Contains("'a' and 'b'") && Contains("different values"));
}

TEST_CASE("weights that are not finite, or too large for fp16, are named and not exported") {
  const TemporaryFolder folder;
  const auto refused = [&](at::ScalarType dtype, double value) {
    HuggingFaceExporter exporter(folder / "out", config, {{"a", dtype, {3}}}, 1000);
    const at::Tensor values = at::arange(3, at::kFloat);
    values[2] = value;
    return error_of<UserError>([&] { exporter.write_range("a", 0, values); });
  };
  CHECK_THAT(refused(at::kFloat, NAN), Contains("tensor 'a' holds NaN or infinity (nan at element 2)"));
  CHECK_THAT(refused(at::kBFloat16, -INFINITY), Contains("tensor 'a' holds NaN or infinity (-inf at element 2)"));
  CHECK_THAT(refused(at::kHalf, -70000.0), Contains("'a' has values above 65504"));
  const at::Tensor large = at::full({4}, 3e38, at::kFloat);  // whose sum is not finite
  CHECK_NOTHROW(check_finite(large, 0, strata::Place{"file"}, "a"));
}

TEST_CASE("an export copies its source's files other than weights") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "from/additional_chat_templates");
  std::filesystem::create_directories(folder / "from/onnx");
  write_file(folder / "from/config.json", config);
  for (const char* name : {"tokenizer.json", "empty.txt", "additional_chat_templates/a.jinja", "onnx/tokenizer.json",
                           "model.safetensors", "model.safetensors.index.json", "old.bin", ".hidden"})
    write_file(folder / ("from/" + std::string(name)), std::string(name) == "empty.txt" ? "" : name);
  const auto copied = [&](const SourceFolder& source, const std::string& into) {
    std::filesystem::create_directory(folder / into);
    return source.copy_into(folder / into);
  };
  CHECK(copied({folder / "from", config}, "to").empty());
  CHECK(read_file(folder / "to/tokenizer.json") == "tokenizer.json");
  CHECK(read_file(folder / "to/additional_chat_templates/a.jinja") == "additional_chat_templates/a.jinja");
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "to"), {}) == 3);
  CHECK_THAT(copied({folder / "from", "{}"}, "changed"), Contains("has a config.json that differs"));
  CHECK_THAT(copied({folder / "gone", config}, "gone to"), Contains("no longer exists"));
  CHECK(copied({"", ""}, "none").empty());
  for (const char* name : {"changed", "gone to", "none"}) CHECK(std::filesystem::is_empty(folder / name));
}

TEST_CASE("each fault of a folder is its own error") {
  const TemporaryFolder folder;
  const auto refused = [&] { return error_of<UserError>([&] { HuggingFaceFolder opened(folder / "hf"); }); };
  const auto index = [&](const std::string& text) { write_file(folder / "hf/model.safetensors.index.json", text); };
  CHECK_THAT(refused(), Contains("is not a folder"));
  std::filesystem::create_directory(folder / "hf");
  CHECK_THAT(refused(), Contains("has no config.json"));
  write_file(folder / "hf/config.json", "");
  CHECK_THAT(refused(), Contains("config.json:1:1: is not valid JSON: unexpected end of input"));
  write_file(folder / "hf/config.json", R"({"a":1,"a":2})");
  CHECK_THAT(refused(), Contains("'a' occurs twice"));
  write_file(folder / "hf/config.json", config);
  CHECK_THAT(refused(), Contains("neither model.safetensors"));
  write_file(folder / "hf/pytorch_model.bin", "");
  CHECK_THAT(refused(), Contains("save_pretrained"));
  index("{}");
  CHECK_THAT(refused(), Contains("the key weight_map is missing"));
  index(R"({"weight_map":{"x":3}})");
  CHECK_THAT(refused(), Contains("weight_map.x is 3; it must be a text"));
  for (const char* outside : {"../secret", "/etc/secret", "a/../../secret", "a/", "."}) {
    index(R"({"weight_map":{"x":")" + std::string(outside) + R"("}})");
    CHECK_THAT(refused(), Contains("it must be the name of a file of this folder"));
  }
  index(R"({"weight_map":{"x":"gone.safetensors"}})");
  CHECK_THAT(refused(), Contains("gone.safetensors, which does not exist"));
  write_file(folder / "hf/there.safetensors", bytes<std::uint64_t>({2}) + "{}");
  index(R"({"weight_map":{"x":"there.safetensors"}})");
  CHECK_THAT(refused(), Contains("'x' in there.safetensors, which does not contain it"));
  write_file(folder / "hf/model.safetensors", "cut");
  CHECK_THAT(refused(), Contains("model.safetensors: holds 3 bytes"));
}
