// Files of u16 token ids, and an order of its own in which samples of few different tokens come before samples of many.
// What decides a data plugin is open (where the tokens are) and own_order (which sample comes when);
// <strata/data_source.hpp> is the contract. Batches, ranks and resuming are the engine's.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/token_files.hpp>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

namespace {

using namespace strata;
using namespace strata::toolbox;

#define DATA_OPTIONS(OPTION) \
  OPTION(boolean, hardest_first, false, "", "", "Start with the samples that have the most different tokens.")
STRATA_OPTIONS(Options, DATA_OPTIONS)

// The row of tokens is the toolbox's: all files of a pattern, one behind the other.
class EasyFirst final : public TokenFiles {
 public:
  EasyFirst(std::vector<TokenFile> files, bool hardest_first)
      : TokenFiles(std::move(files)), hardest_first_(hardest_first) {}

  // A pure function of the files and the request, so that every rank and every resumed run sees the same samples. A run
  // of several epochs takes them one behind the other, each in this order.
  std::unique_ptr<Samples> own_order(const SampleRequest& request) const override {
    const std::int64_t epoch = RowSamples::per_epoch(*this, request.seq_len);
    std::vector<std::pair<std::int64_t, std::int64_t>> ranked;  // how hard, and the number of the sample
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(request.seq_len) + 1);
    for (std::int64_t sample = 0; sample < epoch; ++sample) {
      copy(sample * request.seq_len, request.seq_len + 1, tokens.data());
      const std::int64_t distinct = std::ssize(std::set<std::int64_t>(tokens.begin(), tokens.end()));
      ranked.emplace_back(hardest_first_ ? -distinct : distinct, sample);
    }
    std::sort(ranked.begin(), ranked.end());
    std::vector<std::int64_t> order;
    do {
      const std::int64_t begin = std::ssize(order);
      for (const auto& [difficulty, sample] : ranked) order.push_back(begin + sample);
    } while (std::ssize(order) < request.samples);
    return std::make_unique<RowSamples>(*this, request.seq_len, std::move(order));
  }

 private:
  bool hardest_first_;
};

class Curriculum final : public DataSource {
 public:
  Curriculum(PluginContext& /*context*/, const Options& options) : hardest_first_(options.hardest_first) {}

  // A format with a header checks it here and gives the begin of the tokens: TokenFile(file, type, header_bytes).
  std::unique_ptr<DataSet> open(const std::string& path) const override {
    const auto open_file = [](InputFile file) { return TokenFile(std::move(file), TokenType::U16); };
    return std::make_unique<EasyFirst>(open_files(path, open_file), hardest_first_);
  }
  void write(const std::string& path, const std::vector<std::int64_t>& tokens) const override {
    write_token_file(path, TokenType::U16, tokens);
  }

 private:
  bool hardest_first_;
};

}  // namespace

STRATA_PLUGIN(Curriculum, Options, DATA_OPTIONS)
