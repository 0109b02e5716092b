// Reading a data plugin's samples, in random order, compared with widening as many bytes in memory.
#include <stdlib.h>
#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "data/samples.hpp"
#include "data/temporary_folder.hpp"
#include "tools/bench/kinds.hpp"

namespace strata::bench {

namespace {

constexpr std::int64_t row_tokens = std::int64_t{1} << 20;
constexpr int samples_a_time = 64;

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(data::make_temporary_folder("strata-bench")) {}
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::vector<Row> bench_data(const DataSource& plugin, const Sizes& sizes, const InterleavedTimer& timer) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/tokens";
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(row_tokens));
  std::vector<std::uint8_t> bytes(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = bytes[i] = static_cast<std::uint8_t>(i * 31 % 127);
  plugin.write(path, tokens);
  std::vector<Row> rows;
  for (const std::int64_t size : sizes) {
    const data::OrderedSamples samples({plugin, "the plugin", path}, config::DataOrder::Shuffled, {size, 0, 1});
    std::vector<std::int64_t> sample(static_cast<std::size_t>(size) + 1);
    std::vector<std::uint8_t> is_target(sample.size());
    std::int64_t position = 0;
    rows.push_back(timer.time({.name = "samples read",
                               .size = format("{} of {} tokens", samples_a_time, size),
                               .floor = "widening bytes in memory"},
                              [&] {
                                for (int i = 0; i < samples_a_time; ++i)
                                  samples.read(position++, sample.data(), is_target.data());
                              },
                              {[&] {
                                for (int i = 0; i < samples_a_time; ++i) {
                                  const auto* from = bytes.data() + samples.sample(position++) * size;
                                  std::copy(from, from + size + 1, sample.data());
                                  asm volatile("" : : "r"(sample.data()) : "memory");  // the copy is not left out
                                }
                              }}));
  }
  return rows;
}

}  // namespace strata::bench
