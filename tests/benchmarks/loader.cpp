// loader_bench [MIB]: tokens a second of the data loader, for each format and order.
//
// Writes one file of random tokens of each format (MIB mebibytes each, 256 if not given) into a temporary folder and
// takes micro-batches of 4 x 512 tokens from it for a second, five times; prints a table of medians. What was just
// written lies in the page cache, so this is the loader's speed and not the disk's. One thread, as in a run's rank.
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "data/file.hpp"
#include "data/loader.hpp"
#include "temporary_folder.hpp"
#include "unit/data/open_tokens.hpp"

namespace {

using namespace strata::data;
constexpr std::int64_t seq_len = 512, micro_batch = 4, ranks = 1, accumulation = 1;

template <typename Value>
void append(OutputFile& file, std::uint64_t& at, const std::vector<Value>& values) {
  file.write_at(at, values.data(), values.size() * sizeof(Value));
  at += values.size() * sizeof(Value);
}

// `count` random ids behind `header`.
template <typename Token>
void write_tokens(const std::string& path, const std::vector<std::uint32_t>& header, std::int64_t count) {
  std::mt19937 random(5);
  std::vector<Token> tokens(static_cast<std::size_t>(count));
  for (Token& token : tokens) token = static_cast<Token>(random() % 50304);
  OutputFile file(path);
  std::uint64_t at = 0;
  append(file, at, header);
  append(file, at, tokens);
  file.finish();
}

// Sequences of 1 to 1,200 tokens, about 600 on average, as documents of the web are.
void write_index(const std::string& path, std::int64_t count) {
  std::mt19937 random(6);
  std::vector<std::int32_t> lengths;
  for (std::int64_t left = count; left > 0; left -= lengths.back())
    lengths.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(left, 1 + random() % 1200)));
  std::vector<std::int64_t> offsets{0}, boundaries(lengths.size() + 1);
  for (const std::int32_t length : lengths) offsets.push_back(offsets.back() + 2 * length);
  offsets.pop_back();
  std::iota(boundaries.begin(), boundaries.end(), 0);
  OutputFile file(path);
  std::uint64_t at = 0;
  append<char>(file, at, {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0});
  append<std::uint64_t>(file, at, {1});
  append<std::uint8_t>(file, at, {8});
  append<std::uint64_t>(file, at, {lengths.size(), boundaries.size()});
  append(file, at, lengths);
  append(file, at, offsets);
  append(file, at, boundaries);
  file.finish();
}

std::vector<std::uint32_t> llmc_header(std::uint32_t magic, std::uint32_t version, std::int64_t count) {
  std::vector<std::uint32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::uint32_t>(count);
  return header;
}

// Processor time of this process, the system's share for page faults included: what other work does meanwhile is not in
// it.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double tokens_per_second(const Loader& loader, std::int64_t& step, std::int64_t last_step) {
  const double begin = processor_seconds();
  std::int64_t tokens = 0;
  double seconds = 0.0;
  while (seconds < 1.0) {
    for (int i = 0; i < 16; ++i) tokens += loader.micro_batch(step++ % last_step, 0).valid_tokens;
    seconds = processor_seconds() - begin;
  }
  return static_cast<double>(tokens) / seconds;
}

void measure(const char* name, OrderedSamples samples) {
  const std::int64_t last_step = samples.count() / micro_batch;
  const Loader loader(std::move(samples), BatchPlan{micro_batch, ranks, accumulation});
  std::vector<double> speeds;
  std::int64_t step = 0;
  for (int i = 0; i < 5; ++i) speeds.push_back(tokens_per_second(loader, step, last_step));
  std::sort(speeds.begin(), speeds.end());
  std::printf("| %s | **%.0f** | %.0f .. %.0f |\n", name, speeds[2] / 1e6, speeds[0] / 1e6, speeds[4] / 1e6);
}

// As the kernel names it.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "not named by the system";
}

OrderedSamples row(const char* plugin, const std::string& path, bool shuffled) {
  using strata::config::DataOrder;
  return {open_tokens(plugin, path), shuffled ? DataOrder::Shuffled : DataOrder::Sequential, {seq_len, 0, 1}};
}

void run(std::int64_t bytes) {
  const TemporaryFolder folder;
  const std::int64_t narrow = bytes / 2, wide = bytes / 4;
  write_tokens<std::uint16_t>(folder / "raw.bin", {}, narrow);
  write_tokens<std::uint16_t>(folder / "gpt2.bin", llmc_header(20240520, 1, narrow), narrow);
  write_tokens<std::uint32_t>(folder / "llama3.bin", llmc_header(20240801, 7, wide), wide);
  write_tokens<std::uint16_t>(folder / "megatron.bin", {}, narrow);
  write_index(folder / "megatron.idx", narrow);
  std::printf("Processor: %s. Median of five, each of one second of processor time.\n\n", processor().c_str());
  std::printf("| format, order | million tokens/s | slowest .. fastest |\n|---|---|---|\n");
  measure("nanogpt u16, sequential", row("nanogpt", folder / "raw.bin", false));
  measure("nanogpt u16, shuffled", row("nanogpt", folder / "raw.bin", true));
  measure("llm.c u16, shuffled", row("llm_c", folder / "gpt2.bin", true));
  measure("llm.c u32, shuffled", row("llm_c", folder / "llama3.bin", true));
  measure("megatron u16, shuffled", row("megatron", folder / "megatron", true));
  measure("megatron u16, own (sequences of 600 tokens on average)",
          own_order("megatron", folder / "megatron", {seq_len, 0, 1}));
}

}  // namespace

int main(int count, char* words[]) {
  const std::int64_t mebibytes = count > 1 ? std::atoll(words[1]) : 256;
  if (count > 2 || mebibytes < 1 || mebibytes > 2048) {
    std::fprintf(stderr, "usage: loader_bench [MIB]   with 1 to 2048 mebibytes a file\n");
    return 2;
  }
  try {
    run(mebibytes << 20);
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "loader_bench: %s\n", error.what());
    return error.exit_status();
  }
  return 0;
}
