#include "tools/commands/data_command.hpp"

#include <nlohmann/json.hpp>
#include <strata/error.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <ostream>
#include <utility>

#include "data/samples.hpp"
#include "data/token_format.hpp"
#include "text/size.hpp"
#include "tools/data/pack.hpp"

namespace strata::cli {
namespace {

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

void check_choice(const char* option, const std::string& value, const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  std::string list;
  for (const std::string& choice : choices) list += (list.empty() ? "" : " or ") + choice;
  throw UserError(std::string(option) + " is '" + value + "'; it must be " + list);
}

void check_seq_len(std::int64_t seq_len) {
  if (seq_len >= 1) return;
  throw UserError("--seq-len is " + std::to_string(seq_len) + "; it must be at least 1");
}

data::TokenSource open(const DataFile& file) {
  const std::string format = file.format.empty() ? data::detect_format(file.path) : file.format;
  check_choice("--data-format", format, data::token_formats());
  if (file.width.empty()) return data::open_tokens(format, file.path);
  if (data::states_its_type(format)) {
    throw UserError(Place{file.path}, "--width is " + file.width + ", and a file of the format " + format +
                                          " says the type of its tokens itself; leave it out");
  }
  return data::open_tokens(format, file.path, data::parse_token_type(file.width));
}

void set_document_end(const std::string& text, data::PackOptions& options) {
  if (text == "auto") return;
  options.line_end.reset();
  if (text == "none") return;
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw UserError("--document-end is '" + text + "'; it must be none, auto or a token's id from 0 to 4294967295");
  }
  options.line_end = options.file_end = id;
}

std::string type_and_size(const data::TokenSource& source) {
  const auto width = static_cast<std::int64_t>(data::bytes_of(source.type()));
  return std::string(data::to_string(source.type())) + ", " + config::format_bytes(source.token_count() * width);
}

void write_json(const data::TokenSource& source, const DataInfoOptions& options, std::optional<std::int64_t> samples,
                const data::TokenStatistics& statistics, std::ostream& out) {
  nlohmann::ordered_json object{{"path", options.file.path},
                                {"format", source.format()},
                                {"files", source.files().size()},
                                {"tokens", source.token_count()},
                                {"width", data::to_string(source.type())},
                                {"smallest_id", statistics.smallest},
                                {"largest_id", statistics.largest},
                                {"distinct_ids", statistics.distinct},
                                {"unigram_entropy", statistics.unigram_entropy}};
  if (samples) {
    object["seq_len"] = *options.seq_len;
    object["samples"] = *samples;
  }
  if (source.index() != nullptr) {
    object["sequences"] = source.index()->sequences();
    object["documents"] = source.index()->documents();
  }
  out << object.dump() << "\n";
}

void write_text(const data::TokenSource& source, const DataInfoOptions& options, std::optional<std::int64_t> samples,
                const data::TokenStatistics& statistics, std::ostream& out) {
  char entropy[32];
  std::snprintf(entropy, sizeof entropy, "%.6f", statistics.unigram_entropy);
  out << options.file.path << "\n  format           " << source.format();
  if (source.files().size() > 1) out << ", " << source.files().size() << " files";
  out << "\n  tokens           " << source.token_count() << " (" << type_and_size(source) << ")\n";
  if (source.index() != nullptr) {
    out << "  sequences        " << source.index()->sequences() << " in " << source.index()->documents()
        << " documents\n";
  }
  if (samples) out << "  samples          " << *samples << " of seq_len " << *options.seq_len << "\n";
  out << "  ids              " << statistics.smallest << " to " << statistics.largest << ", " << statistics.distinct
      << " distinct\n  unigram entropy  " << entropy
      << " nats a token (the loss of a model that only knows how frequent each token is)\n";
}

std::unique_ptr<const data::Samples> samples_of(const DataShowOptions& options) {
  data::TokenSource source = open(options.file);
  if (options.order == "megatron") {
    if (source.index() == nullptr) {
      throw UserError(Place{options.file.path},
                      "--order is megatron, which orders the sequences that an .idx file names, and the format " +
                          source.format() + " has none; choose sequential or shuffled");
    }
    return std::make_unique<data::MegatronSamples>(std::move(source), options.seq_len, options.samples, options.seed);
  }
  const std::int64_t count = source.sample_count(options.seq_len);
  const data::SampleOrder order = options.order == "shuffled" ? data::SampleOrder::shuffled(count, options.seed)
                                                              : data::SampleOrder::sequential(count);
  return std::make_unique<data::RowSamples>(std::move(source), options.seq_len, order);
}

// The bytes that tokens are, made fit to print; empty when one is no byte.
std::string text_of(const std::vector<std::int64_t>& tokens) {
  std::string bytes;
  for (const std::int64_t token : tokens) {
    if (token < 0 || token > 255) return "";
    bytes += static_cast<char>(token);
  }
  return nlohmann::json(bytes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

int data_pack(const DataPackOptions& options, std::ostream& out, std::ostream& err) {
  data::PackOptions pack;
  pack.type = options.width.empty() ? data::token_type_of(options.output) : data::parse_token_type(options.width);
  pack.existing = options.force ? data::Existing::Replace : data::Existing::Refuse;
  pack.jsonl_key = options.jsonl_key;
  set_document_end(options.document_end, pack);
  Progress progress(err, "packing");
  const data::PackResult result = data::pack_text(
      options.inputs, options.output, pack, [&](std::int64_t done, std::int64_t total) { progress(done, total); });
  out << options.output << ": " << result.tokens << " tokens (" << data::to_string(pack.type) << ", "
      << config::format_bytes(result.tokens * static_cast<std::int64_t>(data::bytes_of(pack.type)))
      << ", bytes as tokens) from " << result.files << " files, " << result.documents << " documents";
  if (result.skipped > 0) out << "; " << result.skipped << " others in the folders are no text, hidden or links";
  out << "\nlook at it: strata data info " << options.output << " --seq-len 512\n";
  return 0;
}

int data_info(const DataInfoOptions& options, std::ostream& out, std::ostream& err) {
  if (options.seq_len) check_seq_len(*options.seq_len);
  check_choice("--format", options.format, {"text", "json"});
  const data::TokenSource source = open(options.file);
  std::optional<std::int64_t> samples;
  if (options.seq_len) samples = source.sample_count(*options.seq_len);
  const auto width = static_cast<std::int64_t>(data::bytes_of(source.type()));
  Progress progress(err, "reading");
  const data::TokenStatistics statistics =
      source.statistics([&](std::int64_t tokens) { progress(tokens * width, source.token_count() * width); });
  (options.format == "json" ? write_json : write_text)(source, options, samples, statistics, out);
  return 0;
}

int data_show(const DataShowOptions& options, std::ostream& out) {
  check_seq_len(options.seq_len);
  check_choice("--format", options.format, {"text", "json"});
  check_choice("--order", options.order, {"sequential", "shuffled", "megatron"});
  if (options.position < 0 || options.count < 1 || options.samples < 0) {
    throw UserError("--sample and --samples count from 0, and --count from 1");
  }
  const std::unique_ptr<const data::Samples> samples = samples_of(options);
  const bool goes_on = options.order != "megatron" && options.samples > 0;  // with the next epoch
  const std::int64_t count = goes_on ? options.samples : samples->count();
  if (options.position >= count || options.count > count - options.position) {
    throw UserError(Place{options.file.path}, "the order holds " + std::to_string(count) + " samples, 0 to " +
                                                  std::to_string(count - 1) +
                                                  "; --samples is how many a run takes in all");
  }
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(options.seq_len) + 1);
  for (std::int64_t position = options.position; position < options.position + options.count; ++position) {
    samples->read(position, tokens.data());
    if (options.format == "json") {
      out << nlohmann::ordered_json{{"position", position}, {"sample", samples->sample(position)}, {"tokens", tokens}}
                 .dump()
          << "\n";
      continue;
    }
    out << "position " << position << ": sample " << samples->sample(position) << ", " << options.seq_len
        << " inputs and one more as the last target\n ";
    for (const std::int64_t token : tokens) out << " " << token;
    const std::string text = text_of(tokens);
    out << "\n" << (text.empty() ? "" : "  as bytes: " + text + "\n");
  }
  return 0;
}

}  // namespace strata::cli
