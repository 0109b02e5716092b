#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/toolbox/token_files.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <vector>

#include "megatron_index.hpp"
#include "megatron_order.hpp"

namespace {

using namespace strata;
using megatron::MegatronIndex;
using megatron::MegatronOrder;
using toolbox::TokenFile;
using toolbox::TokenFiles;
using toolbox::TokenType;

STRATA_NO_OPTIONS(MegatronOptions)

class MegatronSamples final : public Samples {
 public:
  MegatronSamples(const DataSet& set, const MegatronIndex& index, const SampleRequest& request)
      : set_(set), index_(index), seq_len_(request.seq_len), order_(index, seq_len_, request.samples, request.seed) {}

  std::int64_t count() const override { return order_.samples(); }

  std::int64_t sample(std::int64_t position) const override {
    strata_check(position >= 0 && position < count(), "MegatronSamples: a position outside the order");
    return order_.shuffle_index()[static_cast<std::size_t>(position)];
  }

  // A sample's tokens may span several sequences.
  void read(std::int64_t position, std::int64_t* tokens, std::uint8_t* /*is_target*/) const override {
    index_.check_not_cut();
    auto [entry, offset] = order_.sample_index()[static_cast<std::size_t>(sample(position))];
    for (std::int64_t left = seq_len_ + 1; left > 0; ++entry) {
      const std::int64_t sequence = order_.document_index()[static_cast<std::size_t>(entry)];
      const std::int64_t count = std::min(left, index_.length(sequence) - offset);
      set_.copy(index_.first_token(sequence) + offset, count, tokens);
      tokens += count;
      left -= count;
      offset = 0;
    }
  }

 private:
  const DataSet& set_;
  const MegatronIndex& index_;
  std::int64_t seq_len_;
  MegatronOrder order_;
};

class MegatronDataSet final : public TokenFiles {
 public:
  MegatronDataSet(std::unique_ptr<const MegatronIndex> index, std::vector<TokenFile> tokens)
      : TokenFiles(std::move(tokens)), index_(std::move(index)) {}

  std::vector<std::pair<std::string, std::int64_t>> facts() const override {
    return {{"sequences", index_->sequences()}, {"documents", index_->documents()}};
  }
  std::unique_ptr<Samples> own_order(const SampleRequest& request) const override {
    return std::make_unique<MegatronSamples>(*this, *index_, request);
  }

 private:
  std::unique_ptr<const MegatronIndex> index_;
};

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// PREFIX, from PREFIX, PREFIX.bin or PREFIX.idx.
std::string prefix_of(const std::string& path) {
  const bool suffixed = path.ends_with(".bin") || path.ends_with(".idx");
  return suffixed && !exists(path + ".idx") ? path.substr(0, path.size() - 4) : path;
}

class Megatron final : public DataSource {
 public:
  Megatron(PluginContext& /*context*/, const MegatronOptions& /*options*/) {}

  std::unique_ptr<DataSet> open(const std::string& path) const override {
    const std::string prefix = prefix_of(path);
    if (!exists(prefix + ".idx") && toolbox::is_pattern(path))
      throw UserError(Place{path},
                      "is a pattern; the data plugin megatron takes one PREFIX, for PREFIX.bin and PREFIX.idx");
    auto index = std::make_unique<const MegatronIndex>(prefix + ".idx");
    InputFile file(prefix + ".bin");
    const std::uint64_t wanted = static_cast<std::uint64_t>(index->token_count()) * toolbox::bytes_of(index->type());
    if (file.size() != wanted) {
      throw UserError(Place{file.path()},
                      "holds {} bytes, but {} gives {} {} tokens, which are {} bytes; one of the files may be "
                      "truncated, or from another data set",
                      file.size(), index->path(), index->token_count(), toolbox::to_string(index->type()), wanted);
    }
    std::vector<TokenFile> tokens;
    tokens.emplace_back(std::move(file), index->type());
    return std::make_unique<MegatronDataSet>(std::move(index), std::move(tokens));
  }

  bool recognizes(const std::string& path) const override {
    return path.ends_with(".idx") || exists(prefix_of(path) + ".idx");
  }

  // Every token is a sequence and a document of its own.
  void write(const std::string& path, const std::vector<std::int64_t>& tokens) const override {
    const auto count = static_cast<std::int64_t>(tokens.size());
    std::string header("MMIDIDX\0\0\1\0\0\0\0\0\0\0\4", 18);  // version 1, type i32
    const auto append = [&header](const auto& values) {
      header.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
    };
    std::vector<std::int64_t> offsets(tokens.size()), boundaries(tokens.size() + 1);
    for (std::size_t i = 0; i < tokens.size(); ++i) offsets[i] = static_cast<std::int64_t>(4 * i);
    std::iota(boundaries.begin(), boundaries.end(), 0);
    append(std::vector<std::int64_t>{count, count + 1});
    append(std::vector<std::int32_t>(tokens.size(), 1));
    append(offsets);
    const std::string prefix = prefix_of(path);
    toolbox::write_token_file(prefix + ".idx", TokenType::I64, boundaries, header);
    toolbox::write_token_file(prefix + ".bin", TokenType::I32, tokens);
  }
};

}  // namespace

STRATA_PLUGIN(Megatron, MegatronOptions)
