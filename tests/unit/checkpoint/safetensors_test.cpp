#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <sys/resource.h>
#include <strata/error.hpp>

#include <csignal>
#include <random>

#include "catch.hpp"
#include "checkpoint/safetensors.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"

using namespace strata::checkpoint;
using strata::Bug;
using strata::EnvironmentError;
using strata::UserError;

namespace {

// A file of the format from its parts; the header is taken as it is, without padding.
std::string assemble(const std::string& header, const std::string& data) {
  return bytes<std::uint64_t>({header.size()}) + header + data;
}

// Written by the format's own Python library (0.8.0): a F32 [2, 2], b BF16 [3], n I64 [], notes {"format": "pt"}.
const std::string golden = assemble(
    R"({"__metadata__":{"format":"pt"},"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
    R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]}})"
    "    ",
    bytes<std::int64_t>({-2}) + bytes<float>({1.0F, -2.5F, 3.0F, 0.1F}) +
        bytes<std::uint16_t>({0x3f80, 0xc020, 0x4040}));

at::Tensor read(const SafetensorsFile& file, const std::string& name, std::int64_t begin, std::int64_t end,
                at::ScalarType dtype) {
  const at::Tensor destination = at::empty({end - begin}, dtype);
  file.read_range(name, begin, end, destination);
  return destination;
}

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

}  // namespace

TEST_CASE("a golden file reads, by ranges and into other dtypes") {
  const TemporaryFolder folder;
  write_file(folder / "a.safetensors", golden);
  const SafetensorsFile file(folder / "a.safetensors");
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.tensors().at("a").shape == std::vector<std::int64_t>{2, 2});
  CHECK(file.tensors().at("b").dtype == at::kBFloat16);
  CHECK(values(read(file, "a", 0, 4, at::kFloat)) == std::vector<double>{1.0, -2.5, 3.0, double{0.1F}});
  CHECK(values(read(file, "a", 1, 3, at::kBFloat16)) == std::vector<double>{-2.5, 3.0});
  CHECK(values(read(file, "b", 1, 3, at::kFloat)) == std::vector<double>{-2.5, 3.0});
  CHECK(values(read(file, "b", 0, 3, at::kBFloat16)) == std::vector<double>{1.0, -2.5, 3.0});
  CHECK(values(read(file, "n", 0, 1, at::kLong)) == std::vector<double>{-2.0});
  CHECK(values(read(file, "a", 2, 2, at::kFloat)).empty());
  CHECK_THROWS_AS(read(file, "a", 3, 5, at::kFloat), Bug);
  CHECK_THROWS_AS(read(file, "c", 0, 1, at::kFloat), Bug);
}

TEST_CASE("the same tensors, written in pieces and any order, give the golden bytes") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  const SafetensorsFile source = (write_file(folder / "golden", golden), SafetensorsFile(folder / "golden"));
  SafetensorsWriter writer(path, {{"b", at::kBFloat16, {3}}, {"a", at::kFloat, {2, 2}}, {"n", at::kLong, {}}},
                           {{"format", "pt"}});
  writer.write_range("a", 3, read(source, "a", 3, 4, at::kFloat));
  writer.write_range("b", 0, read(source, "b", 0, 3, at::kFloat));  // converted
  writer.write_range("a", 0, read(source, "a", 0, 1, at::kFloat));
  CHECK_THROWS_AS(writer.write_range("a", 2, read(source, "a", 0, 2, at::kFloat)), Bug);  // writes element 3 again
  CHECK_THROWS_AS(writer.write_range("a", 4, read(source, "a", 0, 1, at::kFloat)), Bug);
  CHECK_THROWS_AS(writer.write_range("c", 0, read(source, "a", 0, 1, at::kFloat)), Bug);
  writer.write_range("n", 0, read(source, "n", 0, 1, at::kLong));
  CHECK_THAT(error_of<Bug>([&] { writer.finish(); }), Contains("elements of a were never written"));
  writer.write_range("a", 1, read(source, "a", 1, 3, at::kFloat));
  CHECK_THROWS_AS(writer.write_range("a", 2, read(source, "a", 2, 3, at::kFloat)), Bug);  // inside what is written
  CHECK_FALSE(std::filesystem::exists(path));
  writer.finish();
  CHECK(read_file(path) == golden);
  CHECK(folder.names() == 2);
}

TEST_CASE("large tensors go through small buffers and come back bit by bit") {
  const TemporaryFolder folder;
  constexpr std::int64_t count = 3'000'001;  // several buffers of 4 MiB, and a rest
  const at::Tensor full = at::arange(count, at::kDouble).sin().to(at::kFloat);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const std::string path = folder / (std::string("a") + c10::toString(dtype));
    SafetensorsWriter writer(path, {{"x", dtype, {count}}, {"empty", dtype, {0, 7}}}, {});
    writer.write_range("x", 1'000'000, full.narrow(0, 1'000'000, count - 1'000'000));
    writer.write_range("x", 0, full.narrow(0, 0, 1'000'000));
    writer.finish();
    const SafetensorsFile file(path);
    const at::Tensor wanted = full.to(dtype);
    CHECK(at::equal(read(file, "x", 0, count, dtype), wanted));
    CHECK(at::equal(read(file, "x", 5, count - 3, at::kFloat), wanted.to(at::kFloat).narrow(0, 5, count - 8)));
  }
}

TEST_CASE("a parameter that wants gradients can be read into and written from") {
  const TemporaryFolder folder;
  at::Tensor parameter = at::arange(4, at::kFloat).set_requires_grad(true);
  SafetensorsWriter writer(folder / "a", {{"x", at::kBFloat16, {4}}}, {});
  writer.write_range("x", 0, parameter);
  writer.finish();
  SafetensorsFile(folder / "a").read_range("x", 0, 4, parameter);
  CHECK(values(parameter.detach()) == std::vector<double>{0, 1, 2, 3});
}

TEST_CASE("a writer that is dropped or fails leaves nothing behind") {
  const TemporaryFolder folder;
  { const SafetensorsWriter dropped(folder / "a", {{"x", at::kFloat, {4}}}, {}); }
  CHECK(folder.names() == 0);
  write_file(folder / "a", "theirs");
  CHECK_THAT(error_of<UserError>([&] { SafetensorsWriter again(folder / "a", {}, {}); }), Contains("exists already"));
  CHECK_THROWS_AS(SafetensorsWriter(folder / "b", {{"x", at::kFloat, {1}}, {"x", at::kFloat, {1}}}, {}), Bug);
  CHECK_THROWS_AS(SafetensorsWriter(folder / "b", {{"x", at::kQInt8, {1}}}, {}), Bug);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string text;
  try {
    const SafetensorsWriter full(folder / "b", {{"x", at::kFloat, {1 << 20}}}, {});
  } catch (const EnvironmentError& error) {
    text = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(text, Contains("4.00 MiB failed"));
  CHECK(folder.names() == 1);
}

TEST_CASE("unaligned tensors and unpadded headers are read") {
  const TemporaryFolder folder;
  write_file(
      folder / "a",
      assemble(
          R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"y":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
          "\x07" + bytes<float>({1.5F})));
  const SafetensorsFile file(folder / "a");
  CHECK(values(read(file, "y", 0, 1, at::kFloat)) == std::vector<double>{1.5});
  CHECK(values(read(file, "y", 0, 1, at::kDouble)) == std::vector<double>{1.5});
  write_file(folder / "empty", assemble("{}", ""));
  CHECK(SafetensorsFile(folder / "empty").tensors().empty());
}

TEST_CASE("each fault of a file is its own error") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& content) {
    write_file(folder / "a.safetensors", content);
    const std::string text = error_of<UserError>([&] { SafetensorsFile file(folder / "a.safetensors"); });
    CHECK_THAT(text, Contains("a.safetensors: "));
    return text;
  };
  const auto with = [&](const std::string& header) { return refused(assemble(header, std::string(8, '\0'))); };
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  CHECK_THAT(refused(""), Contains("holds 0 bytes"));
  CHECK_THAT(refused("1234567"), Contains("holds 7 bytes"));
  CHECK_THAT(refused(bytes<std::uint64_t>({100'000'001})),
             Contains("header of 100000001 bytes") && Contains("not a safetensors file"));
  CHECK_THAT(refused(bytes<std::uint64_t>({50}) + "{}"), Contains("may be truncated"));
  CHECK_THAT(with("{\"x\":"), Contains("not valid JSON"));
  CHECK_THAT(with("{}{}"), Contains("not valid JSON"));
  CHECK_THAT(with(""), Contains("not valid JSON"));
  CHECK_THAT(with("[1]"), Contains("an object { ... } is expected"));
  CHECK_THAT(with(std::string(10'000, '[')), Contains("nested deeper"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[2]", "[0,8]") + R"(,"x":)" + tensor("F32", "[2]", "[0,8]") + "}"),
             Contains("'x' occurs twice"));
  CHECK_THAT(with(R"({"x":1})"), Contains("x is 1; it must be an object"));
  CHECK_THAT(with(R"({"x":)" + tensor("F33", "[2]", "[0,8]") + "}"), Contains("dtype F33"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[-2]", "[0,8]") + "}"),
             Contains("x.shape[0] is -2; it must be an integer from 0"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "2", "[0,8]") + "}"), Contains("x.shape is 2; it must be a list"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[2.0]", "[0,8]") + "}"),
             Contains("x.shape[0] is 2.0; it must be an integer from 0"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[2]", "[0,8,9]") + "}"),
             Contains("x.data_offsets is [0,8,9]; it must be the pair"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[3]", "[0,8]") + "}"), Contains("takes 12"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[2]", "[8,0]") + "}"), Contains("takes 8"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[4294967296,4294967296]", "[0,0]") + "}"),
             Contains("a shape of at most"));
  CHECK_THAT(with(R"({"x":)" + tensor("U8", "[9223372036854775807,2,0]", "[0,0]") + "}"),
             Contains("x.shape[0] is 9223372036854775807"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[3]", "[0,12]") + "}"),
             Contains("ends at byte 12") && Contains("may be truncated"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[1]", "[4,8]") + "}"), Contains("hole"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[1]", "[0,4]") + "}"), Contains("4 bytes after its last tensor"));
  CHECK_THAT(with(R"({"x":)" + tensor("F32", "[1]", "[0,4]") + R"(,"y":)" + tensor("F64", "[1]", "[0,8]") + "}"),
             Contains("overlaps"));
  CHECK_THAT(with(R"({"__metadata__":3})"), Contains("__metadata__ is 3; it must be an object"));
  CHECK_THAT(with(R"({"__metadata__":{"a":3}})"), Contains("__metadata__.a is 3; it must be a text"));
  CHECK_THAT(error_of<UserError>([&] { SafetensorsFile file(folder / "none"); }), Contains("No such file"));
  CHECK_THAT(error_of<UserError>([&] { SafetensorsFile file(folder.path().string()); }), Contains("is a folder"));
}

TEST_CASE("a file cut while it is in use is an error") {
  const TemporaryFolder folder;
  write_file(folder / "a", golden);
  const SafetensorsFile file(folder / "a");
  std::filesystem::resize_file(folder / "a", golden.size() - 10);
  CHECK_THAT(error_of<EnvironmentError>([&] { read(file, "b", 0, 3, at::kFloat); }),
             Contains("was changed while in use: it had 238 bytes and now has 228"));
}

TEST_CASE("2,000 mutated files parse or are user errors") {
  const TemporaryFolder folder;
  std::mt19937 random(11);
  const std::vector<std::string> pieces{
      "18446744073709551615", "-1", "[",       "]",    "{",  "}", "null", "\"", "1e99",
      "9223372036854775808",  ",",  "\\u0000", "\xff", "F16"};
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string content = golden;
    for (std::uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % content.size();
      switch (random() % 5) {
        case 0:
          content[at] = static_cast<char>(random());
          break;
        case 1:
          content[at] = static_cast<char>(content[at] ^ (1 << random() % 8));
          break;
        case 2:
          content.resize(at + 1);
          break;
        case 3:
          content.insert(at, pieces[random() % pieces.size()]);
          break;
        default:
          content.replace(at, random() % 6, pieces[random() % pieces.size()]);
          break;
      }
    }
    if (i % 2 == 0 && content.size() >= 8) {  // keep the length right, so that the header itself is looked at
      const std::size_t end = content.rfind('}');
      if (end != std::string::npos && end > 8) content.replace(0, 8, bytes<std::uint64_t>({end - 7}));
    }
    write_file(folder / "a", content);
    try {
      const SafetensorsFile file(folder / "a");
      for (const auto& [name, entry] : file.tensors()) read(file, name, 0, element_count(entry.shape), entry.dtype);
      ++accepted;
    } catch (const UserError& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
  }
  CHECK(accepted > 20);  // flips in the data and the names
  CHECK(accepted < 1000);
}
