#include "cli/data_command.hpp"

#include <nlohmann/json.hpp>
#include <strata/error.hpp>

#include <chrono>
#include <cstdio>
#include <optional>
#include <ostream>

#include "config/size.hpp"
#include "data/pack.hpp"
#include "data/token_file.hpp"

namespace strata::cli {
namespace {

data::TokenWidth width_or(const std::string& text, const std::string& path) {
  return text.empty() ? data::token_width_of(path) : data::parse_token_width(text);
}

// Says how far long work has come, every two seconds and not before two have passed.
class Progress {
 public:
  Progress(std::ostream& err, std::string what) : err_(err), what_(std::move(what)) {}

  void operator()(std::int64_t done, std::int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::seconds(2)) return;
    last_ = now;
    err_ << what_ << ": " << 100 * done / total << "% of " << config::format_bytes(total) << std::endl;
  }

 private:
  std::ostream& err_;
  std::string what_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

int data_pack(const DataPackOptions& options, std::ostream& out, std::ostream& err) {
  const data::TokenWidth width = width_or(options.width, options.output);
  Progress progress(err, "packing");
  const data::PackResult result = data::pack_text(
      options.inputs, options.output, width, options.force ? data::Existing::Replace : data::Existing::Refuse,
      [&](std::int64_t done, std::int64_t total) { progress(done, total); });
  out << options.output << ": " << result.tokens << " tokens (" << data::to_string(width) << ", "
      << config::format_bytes(result.tokens * static_cast<std::int64_t>(width)) << ", bytes as tokens) from "
      << result.files << " files";
  if (result.skipped > 0) out << "; " << result.skipped << " others in the folders are no text, hidden or links";
  out << "\nlook at it: strata data info " << options.output << " --seq-len 512\n";
  return 0;
}

int data_info(const DataInfoOptions& options, std::ostream& out, std::ostream& err) {
  if (options.seq_len < 1) {
    throw UserError("--seq-len is " + std::to_string(options.seq_len) + "; it must be at least 1");
  }
  if (options.format != "text" && options.format != "json") {
    throw UserError("--format is '" + options.format + "'; it must be text or json");
  }
  const data::TokenFile file(options.file, width_or(options.width, options.file));
  const std::int64_t samples = file.sample_count(options.seq_len);
  const auto width = static_cast<std::int64_t>(file.width());
  Progress progress(err, "reading");
  const data::TokenStatistics statistics =
      file.statistics([&](std::int64_t tokens) { progress(tokens * width, file.token_count() * width); });
  if (options.format == "json") {
    out << nlohmann::ordered_json{{"path", options.file},
                                  {"tokens", file.token_count()},
                                  {"width", data::to_string(file.width())},
                                  {"seq_len", options.seq_len},
                                  {"samples", samples},
                                  {"smallest_id", statistics.smallest},
                                  {"largest_id", statistics.largest},
                                  {"distinct_ids", statistics.distinct},
                                  {"unigram_entropy", statistics.unigram_entropy}}
               .dump()
        << "\n";
    return 0;
  }
  char entropy[32];
  std::snprintf(entropy, sizeof entropy, "%.6f", statistics.unigram_entropy);
  out << options.file << "\n  tokens           " << file.token_count() << " (" << data::to_string(file.width()) << ", "
      << config::format_bytes(file.token_count() * width) << ")\n  samples          " << samples << " of seq_len "
      << options.seq_len << "\n  ids              " << statistics.smallest << " to " << statistics.largest << ", "
      << statistics.distinct << " distinct\n  unigram entropy  " << entropy
      << " nats a token (the loss of a model that only knows how frequent each token is)\n";
  return 0;
}

}  // namespace strata::cli
