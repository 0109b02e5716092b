#include "tools/data/data_command.hpp"

#include <nlohmann/json.hpp>
#include <strata/error.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "config/defaults.hpp"
#include "data/documents.hpp"
#include "data/samples.hpp"
#include "plugins/engine_plugins.hpp"
#include "plugins/plugin_call.hpp"
#include "text/counted.hpp"
#include "text/formatted.hpp"
#include "text/size.hpp"
#include "tools/chosen/chosen_plugin.hpp"
#include "tools/command/command.hpp"
#include "tools/data/pack.hpp"
#include "tools/data/token_statistics.hpp"
#include "tools/plugins/plugins.hpp"
#include "tools/ranks/host_resources.hpp"
#include "tools/tokenizer/tokenizer.hpp"

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
    err_ << what_ << ": " << 100 * done / total << "%" << std::endl;
  }

 private:
  std::ostream& err_;
  std::string what_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

void check_seq_len(std::int64_t seq_len) {
  if (seq_len >= 1) return;
  throw UserError("--seq-len is {}; it must be at least 1", seq_len);
}

// The plugin whose format the files show, or the default of data.plugin.
std::string plugin_for(plugins::PluginRegistry& registry, const std::string& path) {
  std::vector<std::string> names;
  for (const plugins::FoundPlugin* found : usable_plugins(registry)) {
    if (found->manifest.kind != PluginKind::DataSource) continue;
    const std::unique_ptr<PluginContext> context = plugins::asking_context(*found);
    const auto plugin = registry.create<DataSource>(found->manifest.name, *context);
    try {
      const bool known = plugins::plugin_call(plugins::full_name(found->manifest), "recognizes()",
                                              [&] { return plugin->recognizes(path); });
      if (known) names.push_back(found->manifest.name);
    } catch (const UserError&) {  // a missing file: opening it reports that
    }
    plugin->shutdown();
  }
  if (names.empty()) return config::find(config::read_defaults(), "data.plugin")->text;
  if (names.size() > 1)
    throw UserError(Place{path}, "data/{} and data/{} both recognize this file; choose one with --plugin", names[0],
                    names[1]);
  return names.front();
}

// A file and the plugin that reads it.
class OpenFile {
 public:
  OpenFile(plugins::PluginRegistry& registry, const DataFile& file)
      : plugin_(registry, PluginKind::DataSource, file.plugin.empty() ? plugin_for(registry, file.path) : file.plugin,
                options_of(file.settings)) {}
  data::TokenSource open(const std::string& path) { return {plugin_.make<DataSource>(), plugin_.name(), path}; }

 private:
  ChosenPlugin plugin_;
};

// The token of the tokenizer's family, unless its template ends with it already.
void set_own_end(const std::string& file, PackOptions& options) {
  const std::optional<std::uint32_t> end = options.tokenizer->document_end();
  if (!end) {
    throw UserError(Place{file},
                    "has no unique document end: it must add exactly one of <|endoftext|> and <|end_of_text|>; give "
                    "--document-end ID or --document-end none");
  }
  const std::vector<std::uint32_t>& behind = options.tokenizer->behind();
  options.line_end = options.file_end = behind.empty() || behind.back() != *end ? end : std::nullopt;
}

void set_document_end(const std::string& text, const std::string& tokenizer, PackOptions& options) {
  if (text == "auto") return options.tokenizer ? set_own_end(tokenizer, options) : void();
  options.line_end.reset();
  if (text == "none") return;
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw UserError("--document-end is '{}'; it must be none, auto or a token id from 0 to 4294967295", text);
  }
  options.line_end = options.file_end = id;
}

int threads_of(int wanted) {
  if (wanted < 0) throw UserError("--threads is {}; it must be at least 1", wanted);
  return wanted > 0 ? wanted : ranks::host_resources().cores;
}

// The samples of a file and how many of their targets count.
struct SampleCount {
  std::int64_t samples = 0;
  std::int64_t targets = 0;
};

std::optional<SampleCount> count_samples(const data::TokenSource& source, const DataInfoOptions& options,
                                         std::ostream& err) {
  if (!options.seq_len) return {};
  if (!options.document_end) {
    const std::int64_t samples = source.sample_count(*options.seq_len);
    return SampleCount{samples, samples * *options.seq_len};
  }
  Progress progress(err, "finding documents");
  const data::DocumentSamples found(source, *options.seq_len, *options.document_end,
                                    [&](std::int64_t tokens) { progress(tokens, source.token_count()); });
  return SampleCount{found.count(), found.targets()};
}

void write_json(const data::TokenSource& source, const DataInfoOptions& options,
                const std::optional<SampleCount>& count, const TokenStatistics& statistics, std::ostream& out) {
  nlohmann::ordered_json object{{"path", options.file.path},
                                {"plugin", source.plugin_name()},
                                {"files", source.files().size()},
                                {"tokens", source.token_count()},
                                {"token_type", source.files().front().type},
                                {"smallest_id", statistics.smallest},
                                {"largest_id", statistics.largest},
                                {"distinct_ids", statistics.distinct},
                                {"unigram_entropy", statistics.unigram_entropy}};
  if (count) {
    object["seq_len"] = *options.seq_len;
    object["samples"] = count->samples;
    object["targets"] = count->targets;
    if (options.document_end) object["document_end"] = *options.document_end;
  }
  for (const auto& [name, number] : source.facts()) object[name] = number;
  out << object.dump() << "\n";
}

void write_text(const data::TokenSource& source, const DataInfoOptions& options,
                const std::optional<SampleCount>& count, const TokenStatistics& statistics, std::ostream& out) {
  const auto line = [&](std::string name) -> std::ostream& {
    name.resize(std::max<std::size_t>(name.size() + 1, 17), ' ');
    return out << "\n  " << name;
  };
  out << options.file.path;
  line("plugin") << source.plugin_name();
  if (source.files().size() > 1) out << ", " << source.files().size() << " files";
  line("tokens") << source.token_count() << " (" << source.files().front().type << ")";
  for (const auto& [name, number] : source.facts()) line(name) << number;
  if (count) line("samples") << count->samples << " of seq_len " << *options.seq_len;
  if (count && options.document_end) {
    const auto positions = static_cast<double>(count->samples) * static_cast<double>(*options.seq_len);
    out << ", each of one document; " << count->targets << " targets count, "
        << text::formatted("%.1f", 100.0 * static_cast<double>(count->targets) / positions) << "%";
  }
  line("ids") << statistics.smallest << " to " << statistics.largest << ", " << statistics.distinct << " distinct";
  line("unigram entropy") << text::formatted("%.6f", statistics.unigram_entropy)
                          << " nats per token (the loss of a model that predicts each token by its frequency alone)\n";
}

std::vector<std::uint32_t> ids_of(const std::vector<std::int64_t>& tokens) {
  std::vector<std::uint32_t> ids;
  for (const std::int64_t token : tokens) {
    if (token < 0 || token > UINT32_MAX) throw UserError("the file contains {}, which is not a token id", token);
    ids.push_back(static_cast<std::uint32_t>(token));
  }
  return ids;
}

std::string printable(const std::string& bytes) {
  return nlohmann::json(bytes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The text of tokens, as a part of a line, or without a tokenizer their bytes; empty when one is
// not a byte.
std::string text_of(const std::vector<std::int64_t>& tokens, const tokenizer::Tokenizer* tokenizer) {
  if (tokenizer) return "  as text: " + printable(tokenizer->decode(ids_of(tokens)));
  std::string bytes;
  for (const std::int64_t token : tokens) {
    if (token < 0 || token > 255) return "";
    bytes += static_cast<char>(token);
  }
  return "  as bytes: " + printable(bytes);
}

}  // namespace

int data_pack(const DataPackOptions& options, std::ostream& out, std::ostream& err) {
  PackOptions pack;
  const bool wide_name = options.output.ends_with(".u32") || options.output.ends_with(".u32.bin");
  pack.token_bytes = (options.width.empty() ? wide_name : options.width == "u32") ? 4 : 2;
  pack.existing = options.force ? data::Existing::Replace : data::Existing::Refuse;
  if (options.as_is) pack.reading = Reading::AsIs;
  if (!options.jsonl_key.empty()) {
    pack.reading = Reading::Lines;
    pack.jsonl_key = options.jsonl_key;
  }
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::error_code none;
  if (std::filesystem::equivalent(options.tokenizer, options.output, none))
    throw UserError(Place{options.output}, "is the tokenizer; name another file to write the tokens to");
  if (!options.tokenizer.empty()) {
    tokenizer = std::make_unique<tokenizer::Tokenizer>(options.tokenizer);
    pack.tokenizer = tokenizer.get();
    pack.threads = threads_of(options.threads);
    for (const std::string& note : tokenizer->notes()) err << "warning: " << options.tokenizer << ": " << note << "\n";
  }
  set_document_end(options.document_end, options.tokenizer, pack);
  Progress progress(err, "packing");
  const PackResult result = pack_text(options.inputs, options.output, pack,
                                      [&](std::int64_t done, std::int64_t total) { progress(done, total); });
  out << options.output << ": " << result.tokens << " tokens (u" << 8 * pack.token_bytes << ", "
      << text::format_bytes(result.tokens * pack.token_bytes) << ", "
      << (tokenizer ? "by " + options.tokenizer : "bytes as tokens") << ") from " << text::counted(result.files, "file")
      << ", " << text::counted(result.documents, "document");
  if (result.skipped > 0)
    out << "; " << text::counted(result.skipped, "other file")
        << " in the folders not packed: not text, hidden, or a link";
  if (result.left_out > 0)
    err << "warning: omitted, as by Hugging Face's library: " << result.left_out << " bytes of the texts, for which "
        << options.tokenizer << " has no token\n";
  out << "\ninspect it with: strata data info " << options.output << " --seq-len 512\n";
  return 0;
}

int data_info(plugins::PluginRegistry& registry, const DataInfoOptions& options, std::ostream& out, std::ostream& err) {
  if (options.seq_len) check_seq_len(*options.seq_len);
  OpenFile file(registry, options.file);
  const data::TokenSource source = file.open(options.file.path);
  const std::optional<SampleCount> count = count_samples(source, options, err);
  Progress progress(err, "reading");
  const TokenStatistics statistics =
      statistics_of(source, [&](std::int64_t tokens) { progress(tokens, source.token_count()); });
  (options.format == "json" ? write_json : write_text)(source, options, count, statistics, out);
  return 0;
}

int data_show(plugins::PluginRegistry& registry, const DataShowOptions& options, std::ostream& out) {
  check_seq_len(options.seq_len);
  const config::DataOrder order = choice<config::DataOrder>(STRATA_DATA_ORDERS, options.order);
  const auto require = [](const char* option, std::int64_t value, std::int64_t minimum) {
    if (value < minimum) throw UserError("{} is {}; the minimum is {}", option, value, minimum);
  };
  require("--sample", options.position, 0);
  require("--count", options.count, 1);
  require("--samples", options.samples, 0);
  if (order == config::DataOrder::Own && options.document_end)
    throw UserError(
        "--document-end is given and --order is own: the plugin's own order decides which tokens a sample holds; "
        "choose the order sequential or shuffled, or leave --document-end out");
  OpenFile file(registry, options.file);
  const data::OrderedSamples samples(file.open(options.file.path), order,
                                     {options.seq_len, options.samples, options.seed}, options.document_end);
  const bool goes_on = order != config::DataOrder::Own && options.samples > 0;  // with the next epoch
  const std::int64_t count = goes_on ? options.samples : samples.count();
  if (options.position >= count || options.count > count - options.position) {
    throw UserError(Place{options.file.path},
                    "--sample is {} and --count {}, and the order has {} samples, 0 to {}; give smaller numbers, or "
                    "the run's total number of samples as --samples",
                    options.position, options.count, count, count - 1);
  }
  std::unique_ptr<const tokenizer::Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer = std::make_unique<tokenizer::Tokenizer>(options.tokenizer);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(options.seq_len) + 1);
  std::vector<std::uint8_t> is_target(tokens.size());
  const bool some_count = options.document_end || samples.source().has_mask();
  for (std::int64_t position = options.position; position < options.position + options.count; ++position) {
    samples.read(position, tokens.data(), is_target.data());
    const std::int64_t counted = std::count(is_target.begin() + 1, is_target.end(), 1);
    if (options.format == "json") {
      nlohmann::ordered_json line{{"position", position}, {"sample", samples.sample(position)}, {"tokens", tokens}};
      if (some_count) line["targets"] = counted;
      if (samples.source().has_mask()) line["is_target"] = is_target;
      if (tokenizer) line["text"] = tokenizer->decode(ids_of(tokens));
      out << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
      continue;
    }
    out << "position " << position << ": sample " << samples.sample(position) << ", " << options.seq_len
        << " inputs and one more for the last target";
    if (some_count) out << "; " << counted << " targets count";
    out << "\n ";
    for (const std::int64_t token : tokens) out << " " << token;
    const std::string text = text_of(tokens, tokenizer.get());
    out << "\n" << text << (text.empty() ? "" : "\n");
  }
  return 0;
}

}  // namespace strata::cli
