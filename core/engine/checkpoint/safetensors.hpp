// The safetensors format: 8 bytes header length (little endian), a JSON header {name: {dtype, shape, data_offsets:
// [begin, end)}} with an optional "__metadata__" of strings, then the tensors' bytes. Both classes work by ranges of
// elements through a buffer of a few MiB: no tensor, let alone a model, is ever held whole.
#pragma once
#include <ATen/core/Tensor.h>

#include <boost/icl/interval_set.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checksum.hpp"
#include "data/file.hpp"

namespace strata::checkpoint {

// What a tensor is called and looks like.
struct TensorSpec {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;  // empty: one element
};

// Throws Bug when the product does not fit 64 bits.
std::int64_t element_count(const std::vector<std::int64_t>& shape);

// Whether a tensor's name fits one of these shell globs.
bool matches_any(const std::string& name, const std::vector<std::string>& patterns);
std::uint64_t bytes_of(const TensorSpec& spec);
// "[50304, 128]"
std::string format_shape(const std::vector<std::int64_t>& shape);

// The format's name of a dtype: "F32". Throws Bug for a dtype that the format lacks.
std::string format_dtype(at::ScalarType dtype);
// The dtype of that name, if known.
std::optional<at::ScalarType> parse_dtype(std::string_view name);

// Fills the contiguous `destination`, on any device, with as many elements of `dtype` from byte `offset` on, converting
// to its dtype. Blocks. Throws EnvironmentError when the disk fails.
void read_elements(const data::InputFile& file, std::uint64_t offset, at::ScalarType dtype,
                   const at::Tensor& destination);

// A tensor in a file.
struct TensorEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // of its first byte, from the start of the file; of any alignment
};

// A file and what it holds; open only while it is read. The header is checked whole: its length (at most 100 MB, the
// format's own cap), JSON, known dtypes, a range of exactly shape x dtype for each tensor, and ranges that tile the
// data area: an overlap, a hole or bytes after the last tensor are refused, as the format's own library does. [any
// thread]
class SafetensorsFile {
 public:
  // Throws UserError "PATH: ..." for whatever is wrong, and what data::InputFile throws.
  explicit SafetensorsFile(const std::string& path) : SafetensorsFile(data::InputFile(path)) {}
  explicit SafetensorsFile(const data::InputFile& file);
  // A file of `size` bytes with this header, as SafetensorsWriter::header gives it, without a look at the file.
  SafetensorsFile(std::string path, const std::string& header, std::uint64_t size);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Copies elements [begin, end) of a tensor, in row-major order, into the contiguous `destination` of end - begin
  // elements, on any device, converting to its dtype. Blocks. Throws Bug for an unknown name or range, EnvironmentError
  // when the disk fails.
  void read_range(const std::string& name, std::int64_t begin, std::int64_t end, const at::Tensor& destination) const {
    read_range(open(), name, begin, end, destination);
  }
  // The same from what open() gave, for who reads many ranges. Throws EnvironmentError when the file has another size
  // now.
  data::InputFile open() const;
  void read_range(const data::InputFile& file, const std::string& name, std::int64_t begin, std::int64_t end,
                  const at::Tensor& destination) const;

 private:
  void parse(const std::string& header);
  void add(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape, std::uint64_t begin,
           std::uint64_t end);
  void check_tiling() const;

  std::string path_;
  std::uint64_t size_ = 0;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file by ranges in any order. The layout is the format's own library's (wider dtypes first, then by name;
// header padded with spaces to 8 bytes), so that the same tensors give the same bytes. The file gets its name in
// finish() and is removed when the writer is dropped before. [one thread]
class SafetensorsWriter {
 public:
  // Takes the whole size from the disk. Throws UserError for a path that exists or cannot be made, Bug for a name given
  // twice or a dtype the format lacks, EnvironmentError for a full disk.
  SafetensorsWriter(const std::string& path, const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata);

  // Writes elements [begin, begin + source.numel()) of a tensor; `source` is read in row-major order, may be on any
  // device and is converted to the tensor's dtype. Blocks. Throws Bug for an unknown name, a range outside or elements
  // written before.
  void write_range(const std::string& name, std::int64_t begin, const at::Tensor& source);
  // Turns a matrix around that was written whole, row by row, in the other shape: [b, a] of one announced as [a, b].
  // One such matrix is in memory meanwhile. Throws Bug for elements that were never written.
  void transpose(const std::string& name);
  // Throws Bug, naming one, when there are elements that were never written.
  void finish();

  // The tensors' names in the order of the file. Written in this order, each from its begin, the file has a checksum
  // that costs no second reading.
  const std::vector<std::string>& order() const { return order_; }
  std::uint64_t bytes() const { return bytes_; }  // of the whole file
  // The file's first bytes: the header's length and the header.
  const std::string& header() const { return header_; }
  // Of the whole file. Throws Bug when it was written in another order.
  std::uint64_t checksum() const;
  // Brings what was written so far to the disk, so that finish() has little to wait for.
  void flush();

 private:
  struct Target {
    TensorEntry entry;
    boost::icl::interval_set<std::int64_t> written;
  };

  void check_whole(const std::string& name, const Target& target) const;
  void put(std::uint64_t offset, const void* source, std::size_t bytes);

  data::OutputFile file_;
  std::map<std::string, Target> targets_;
  std::vector<std::string> order_;
  std::string header_;
  std::uint64_t bytes_ = 0;
  Checksum checksum_;
  std::uint64_t summed_ = 0;  // bytes in checksum_: from the file's begin
};

}  // namespace strata::checkpoint
