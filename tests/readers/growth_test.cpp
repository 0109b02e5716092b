// Readers take time in proportion to what they read. The sources of the readers are compiled once more for this test,
// and count their basic blocks (g++'s -fsanitize-coverage=trace-pc) and the bytes that they allocate: a text of double
// the size may take 2.3 times of each.
#include "catch.hpp"

#include <cstdlib>
#include <new>
#include <string>

#include "checkpoint/safetensors.hpp"
#include "config/tree.hpp"
#include "plugins/elf_section.hpp"
#include "plugins/manifest.hpp"
#include "temporary_folder.hpp"
#include "text/json.hpp"

namespace {

std::uint64_t blocks = 0;
std::uint64_t allocated = 0;

}  // namespace

extern "C" void __sanitizer_cov_trace_pc();
extern "C" void __sanitizer_cov_trace_pc() {
  ++blocks;
}
void* operator new(std::size_t bytes) {
  allocated += bytes;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace strata {
namespace {

struct Work {
  double blocks;
  double bytes;
};

template <typename Read>
Work work_of(const Read& read) {
  blocks = allocated = 0;
  read();
  return {static_cast<double>(blocks), static_cast<double>(allocated)};
}

// `read` is called with a number of things to read.
template <typename Read>
void check_growth(const std::string& what, int count, const Read& read) {
  INFO(what);
  const Work once = read(count), twice = read(2 * count);
  CHECK(once.blocks > count);  // the reader was compiled to count
  CHECK(twice.blocks < 2.3 * once.blocks);
  CHECK(twice.bytes < 2.3 * once.bytes);
}

std::string list_of(int count, const std::function<std::string(int)>& one, const std::string& between = ",") {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i > 0 ? between : "") + one(i);
  return all;
}

std::string member(int i) {
  return "\"key" + std::to_string(i) + "\":" + std::to_string(i);
}

TEST_CASE("reading JSON takes time in proportion to its size") {
  const auto json = [](const std::function<std::string(int)>& text) {
    return [text](int count) {
      const std::string all = text(count);
      return work_of([&] { text::JsonDocument document(all, {"a.json"}); });
    };
  };
  check_growth("keys", 2000, json([](int count) { return "{" + list_of(count, member) + "}"; }));
  check_growth("numbers", 4000, json([](int count) { return "[" + list_of(count, [](int) { return "7"; }) + "]"; }));
  check_growth("objects", 2000,
               json([](int count) { return "[" + list_of(count, [](int i) { return "{" + member(i) + "}"; }) + "]"; }));
  check_growth("objects in an object", 2000, json([](int count) {
                 return "{" + list_of(count, [](int i) { return "\"k" + std::to_string(i) + "\":{\"a\":[1]}"; }) + "}";
               }));
  check_growth("a text", 20000,
               json([](int count) { return "\"" + std::string(static_cast<std::size_t>(count), 'x') + "\""; }));
  check_growth("escapes", 20000, json([](int count) {
                 return "\"" +
                        list_of(
                            count, [](int) { return "\\\""; }, "") +
                        "\"";
               }));
}

TEST_CASE("reading a safetensors header takes time in proportion to its tensors") {
  const TemporaryFolder folder;
  check_growth("tensors", 1000, [&](int count) {
    const std::string header = "{" +
                               list_of(count,
                                       [](int i) {
                                         return "\"layers." + std::to_string(i) +
                                                R"(.weight":{"dtype":"U8","shape":[1],)" + "\"data_offsets\":[" +
                                                std::to_string(i) + "," + std::to_string(i + 1) + "]}";
                                       }) +
                               "}";
    const std::uint64_t length = header.size();
    write_file(folder / "a", std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
                                 std::string(static_cast<std::size_t>(count), '\0'));
    return work_of([&] { checkpoint::SafetensorsFile file(folder / "a"); });
  });
}

TEST_CASE("reading a config takes time in proportion to its size") {
  const auto config = [](config::Format format, const std::function<std::string(int)>& text) {
    return [format, text](int count) {
      const std::string all = text(count);
      return work_of([&] { config::read_text(all, format, "a config"); });
    };
  };
  using config::Format;
  const auto pairs = [](const std::string& equals) {
    return [equals](int i) { return "key" + std::to_string(i) + equals + std::to_string(i); };
  };
  for (const std::string between : {",", ",\n"})
    check_growth("JSON", 1000,
                 config(Format::Json, [&](int count) { return "{" + list_of(count, member, between) + "}"; }));
  check_growth("YAML", 1000, config(Format::Yaml, [&](int count) { return list_of(count, pairs(": "), "\n"); }));
  check_growth("YAML in one line", 1000,
               config(Format::Yaml, [&](int count) { return "{" + list_of(count, pairs(": "), ", ") + "}"; }));
  check_growth("TOML", 1000, config(Format::Toml, [&](int count) { return list_of(count, pairs(" = "), "\n"); }));
  check_growth("a text with quotes", 5000, config(Format::Json, [](int count) {
                 return "{\"a\":\"" +
                        list_of(
                            count, [](int) { return "\\\""; }, "") +
                        "\"}";
               }));
}

TEST_CASE("a manifest's reader takes time in proportion to its text") {
  check_growth("fields", 1000, [](int count) {
    const std::string text = "{" + list_of(count, member) + "}";
    return work_of([&] {
      plugins::Manifest manifest;
      CHECK_THROWS_AS(plugins::parse_manifest(text, manifest), plugins::DamagedFile);
    });
  });
}

TEST_CASE("a reader that looks through all siblings is found") {
  std::vector<int> seen;
  const auto quadratic = [&](int count) {
    return work_of([&] {
      for (int i = 0; i < count; ++i)
        for (int j = 0; j < count; ++j) __sanitizer_cov_trace_pc();
    });
  };
  CHECK(quadratic(200).blocks > 2.3 * quadratic(100).blocks);
}

}  // namespace
}  // namespace strata
