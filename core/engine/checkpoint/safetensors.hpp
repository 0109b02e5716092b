// The safetensors format: 8 bytes header length (little endian), a JSON header {name: {dtype, shape, data_offsets:
// [begin, end)}} with an optional "__metadata__" of strings, then the tensors' bytes. Both classes work by ranges of
// elements through a buffer of a few MiB: no tensor is ever held whole.
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

// Name, dtype and shape of a tensor.
struct TensorSpec {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;  // empty: one element
};

// Returns the number of elements. Throws Bug when the product does not fit 64 bits.
std::int64_t element_count(const std::vector<std::int64_t>& shape);

// True if a tensor's name matches one of these shell globs.
bool matches_any(const std::string& name, const std::vector<std::string>& patterns);
std::uint64_t bytes_of(const TensorSpec& spec);
// Returns "[50304, 128]".
std::string format_shape(const std::vector<std::int64_t>& shape);

// Returns the format's name of a dtype: "F32". Throws Bug for a dtype that the format lacks.
std::string format_dtype(at::ScalarType dtype);
// Returns the dtype of a name, if known.
std::optional<at::ScalarType> parse_dtype(std::string_view name);

// Fills the contiguous `destination`, on any device, with elements of `dtype` from byte `offset` on, converting to its
// dtype. Blocks. Throws EnvironmentError when the disk fails.
void read_elements(const data::InputFile& file, std::uint64_t offset, at::ScalarType dtype,
                   const at::Tensor& destination);

// A tensor in a file.
struct TensorEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // first byte, from the start of the file; any alignment
};

// A file and its tensors; open only while it is read. The header is checked whole: its length (at most 100 MB, the
// format's own cap), JSON, known dtypes, a range of exactly shape x dtype for each tensor, and ranges that tile the
// data area: an overlap, a hole or bytes after the last tensor are refused, as the format's own library does. [any
// thread]
class SafetensorsFile {
 public:
  // Reads the header. Throws UserError "PATH: ..." for a malformed file, and the errors of data::InputFile.
  explicit SafetensorsFile(const std::string& path) : SafetensorsFile(data::InputFile(path)) {}
  explicit SafetensorsFile(const data::InputFile& file);
  // Describes a file of `size` bytes with this header (SafetensorsWriter::header), without reading the file.
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
  // Opens the file, for read_range() of many ranges. Throws EnvironmentError when the file has another size
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

// Writes a file by ranges in any order. The layout is that of the format's own library (wider dtypes first, then by
// name; header padded with spaces to 8 bytes), so equal tensors give equal bytes. The file gets its name in finish()
// and is removed if the writer is destroyed before. [one thread]
class SafetensorsWriter {
 public:
  // Reserves the whole size on the disk. Throws UserError for a path that exists or cannot be made, Bug for a duplicate
  // name or a dtype the format lacks, EnvironmentError for a full disk.
  SafetensorsWriter(const std::string& path, const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata);

  // Writes elements [begin, begin + source.numel()) of a tensor; `source` is read in row-major order, may be on any
  // device and is converted to the tensor's dtype. Blocks. Throws Bug for an unknown name, a range outside or elements
  // written before.
  void write_range(const std::string& name, std::int64_t begin, const at::Tensor& source);
  // Transposes a matrix announced as [a, b] that was written whole, row by row, as [b, a]. Holds one such matrix in
  // memory. Throws Bug for elements that were never written.
  void transpose(const std::string& name);
  // Completes the file. Throws Bug, naming one, if elements were never written.
  void finish();

  // Returns the tensors' names in the order of the file. Writing in this order, each from its begin, gives the checksum
  // without a second reading.
  const std::vector<std::string>& order() const { return order_; }
  std::uint64_t bytes() const { return bytes_; }  // bytes of the whole file
  // Returns the file's first bytes: the header's length and the header.
  const std::string& header() const { return header_; }
  // Returns the checksum of the whole file. Throws Bug when it was written in another order.
  std::uint64_t checksum() const;
  // Flushes written bytes to the disk, so that finish() has little to wait for.
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
  std::uint64_t summed_ = 0;  // bytes in checksum_, from the file's begin
};

}  // namespace strata::checkpoint
