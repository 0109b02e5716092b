// A data plugin turns files into one row of token ids, and may have an order of its own in which samples are taken from
// it. Batches, ranks, the general orders and resuming are the engine's. Files are read with <strata/input_file.hpp>;
// <strata/toolbox/token_files.hpp> is a data set made of files of integers.
#pragma once
#include <strata/plugin.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata {

// A file that tokens are read from.
struct TokenFileInfo {
  std::string path;
  std::int64_t tokens = 0;
  std::string type;  // of one token in the file: "u16"
};

// What an order may depend on. Equal on all ranks and after a resume.
struct SampleRequest {
  std::int64_t seq_len = 0;  // inputs of a sample
  std::int64_t samples = 0;  // that the run takes in all; 0: one epoch
  std::uint64_t seed = 0;    // train.seed
};

// Samples in an order. A sample is seq_len + 1 tokens: the first seq_len are inputs, the last seq_len targets. A pure
// function of the data set and the request. Positions and numbers are 0 to count() - 1; others are a Bug. [any rank]
class STRATA_EXPORT Samples {
 public:
  virtual ~Samples();
  // At least SampleRequest::samples.
  virtual std::int64_t count() const = 0;
  // The number of the sample at `position`. Each number stands at one position.
  virtual std::int64_t sample(std::int64_t position) const = 0;
  // Writes the seq_len + 1 tokens of that sample. Throws as DataSet::copy does.
  virtual void read(std::int64_t position, std::int64_t* destination) const = 0;
};

// One row of token ids that lies in files. [any rank]
class STRATA_EXPORT DataSet {
 public:
  virtual ~DataSet();
  // At least one, in the order of their tokens in the row.
  virtual std::vector<TokenFileInfo> files() const = 0;
  // Of all files.
  std::int64_t token_count() const;
  // Writes tokens [first, first + count) of the row to `destination`. Blocks. Throws Bug for a range outside the row,
  // EnvironmentError when the disk fails or a file was cut after it was opened.
  virtual void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const = 0;
  // What `strata data info` prints of this data set beside its tokens: {"documents", 12}.
  virtual std::vector<std::pair<std::string, std::int64_t>> facts() const;
  // `data.order: own`, for plugins that declare the capability own_order; null for others. The data set outlives it.
  // Throws UserError for a request that the order cannot fulfil.
  virtual std::unique_ptr<Samples> own_order(const SampleRequest& request) const;
};

class STRATA_EXPORT DataSource : public Plugin {
 public:
  ~DataSource() override;
  // Opens what data.path names. Throws UserError "FILE: ..." for files that are not there, are of another format, were
  // cut or hold no token; what is wrong with the format is found here and not when tokens are read. [any rank]
  virtual std::unique_ptr<DataSet> open(const std::string& path) const = 0;
  // Whether the files at `path` show that they are of this format, by a magic number or a file beside them: so
  // `strata data info` finds the plugin. False unless overridden.
  virtual bool recognizes(const std::string& path) const;
  // Writes files that open(path) reads as these tokens; replaces what is there. The conformance kit tests with them.
  virtual void write(const std::string& path, const std::vector<std::int64_t>& tokens) const = 0;
};

}  // namespace strata
