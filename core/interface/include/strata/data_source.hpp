// A data plugin reads files as one sequence of token ids (the row), and may define its own order of samples
// (`data.order: own`). The engine handles batches, ranks, resuming, and the orders sequential and shuffled. Read files
// with <strata/input_file.hpp>; <strata/toolbox/token_files.hpp> has data sets of integer files.
#pragma once
#include <strata/plugin.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata {

// A token file.
struct TokenFileInfo {
  std::string path;
  std::int64_t tokens = 0;
  std::string type;  // type of one token in the file: "u16"
};

// The inputs that an order may depend on. Equal on all ranks and after a resume.
struct SampleRequest {
  std::int64_t seq_len = 0;  // inputs per sample
  std::int64_t samples = 0;  // number in the whole run; 0: one epoch
  std::uint64_t seed = 0;    // train.seed
};

// Samples in an order. A sample is seq_len + 1 tokens: the first seq_len are inputs, the last seq_len targets. A pure
// function of the data set and the request. Positions and numbers are 0 to count() - 1; others throw Bug. [any rank]
class STRATA_EXPORT Samples {
 public:
  virtual ~Samples();
  // Returns the number of positions, at least SampleRequest::samples.
  virtual std::int64_t count() const = 0;
  // Returns the number of the sample at `position`. Each number has exactly one position.
  virtual std::int64_t sample(std::int64_t position) const = 0;
  // Writes the seq_len + 1 tokens of the sample at `position` to `tokens`. Writes to `is_target`, also seq_len + 1 long
  // and filled with ones before the call, 0 for each token that the loss ignores. Blocks. Throws as DataSet::copy and
  // DataSet::copy_mask do.
  virtual void read(std::int64_t position, std::int64_t* tokens, std::uint8_t* is_target) const = 0;
};

// A sequence (row) of token ids stored in files. [any rank]
class STRATA_EXPORT DataSet {
 public:
  virtual ~DataSet();
  // Returns the files, at least one, in the order of their tokens in the row.
  virtual std::vector<TokenFileInfo> files() const = 0;
  // Returns the number of tokens in all files.
  std::int64_t token_count() const;
  // Writes tokens [first, first + count) of the row to `destination`. Blocks. Throws Bug for a range outside the row,
  // EnvironmentError if the disk fails or a file was truncated after it was opened.
  virtual void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const = 0;
  // True if some tokens are context that the model reads and is not trained to predict, such as the prompts of a
  // conversation. False unless overridden: every token is a target of the one before it.
  virtual bool has_mask() const;
  // Writes for each of the tokens [first, first + count) of the row 1 if it is a target, 0 if the loss ignores it.
  // Called only if has_mask(). Blocks. Throws as copy() does, and UserError if the mask in the file is malformed.
  virtual void copy_mask(std::int64_t first, std::int64_t count, std::uint8_t* is_target) const;
  // Returns further counts that `strata data info` prints: {"documents", 12}.
  virtual std::vector<std::pair<std::string, std::int64_t>> facts() const;
  // Returns the order of `data.order: own`, for plugins that declare the capability own_order; otherwise null. The data
  // set outlives it. Throws UserError for a request that the order cannot fulfil.
  virtual std::unique_ptr<Samples> own_order(const SampleRequest& request) const;
};

class STRATA_EXPORT DataSource : public Plugin {
 public:
  ~DataSource() override;
  // Opens the data at data.path. Throws UserError "FILE: ..." for files that are missing, of another format, truncated
  // or without tokens. Errors in the format must be found here, not when tokens are read. [any rank]
  virtual std::unique_ptr<DataSet> open(const std::string& path) const = 0;
  // True if the files at `path` identify themselves as this format, by a magic number or an accompanying file; `strata
  // data info` selects the plugin by it. False unless overridden.
  virtual bool recognizes(const std::string& path) const;
  // Writes files that open(path) reads as these tokens, replacing existing ones. The conformance kit uses it.
  virtual void write(const std::string& path, const std::vector<std::int64_t>& tokens) const = 0;
};

}  // namespace strata
