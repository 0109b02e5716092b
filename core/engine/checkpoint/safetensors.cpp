#include "checkpoint/safetensors.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "text/json.hpp"
#include "text/printable.hpp"

namespace strata::checkpoint {
namespace {

struct FormatDtype {
  std::string_view name;
  at::ScalarType dtype;
};

// In the order in which the format's own library lays tensors out. Its types of less than a byte are unknown here.
constexpr std::array<FormatDtype, 17> format_dtypes{{{"U64", at::kUInt64},
                                                     {"I64", at::kLong},
                                                     {"F64", at::kDouble},
                                                     {"C64", at::kComplexFloat},
                                                     {"F32", at::kFloat},
                                                     {"U32", at::kUInt32},
                                                     {"I32", at::kInt},
                                                     {"BF16", at::kBFloat16},
                                                     {"F16", at::kHalf},
                                                     {"U16", at::kUInt16},
                                                     {"I16", at::kShort},
                                                     {"F8_E8M0", at::kFloat8_e8m0fnu},
                                                     {"F8_E4M3", at::kFloat8_e4m3fn},
                                                     {"F8_E5M2", at::kFloat8_e5m2},
                                                     {"I8", at::kChar},
                                                     {"U8", at::kByte},
                                                     {"BOOL", at::kBool}}};

// An entry of the table above, or null.
template <typename Matches>
const FormatDtype* find_dtype(Matches matches) {
  const auto found = std::find_if(format_dtypes.begin(), format_dtypes.end(), matches);
  return found == format_dtypes.end() ? nullptr : &*found;
}

// Conversions go through a buffer of this size.
constexpr std::int64_t staging_bytes = std::int64_t{4} << 20;
constexpr std::uint64_t header_limit = 100'000'000;
constexpr std::size_t header_values = std::size_t{1} << 22;  // of half a million tensors

std::uint64_t read_header_length(const data::InputFile& file) {
  if (file.size() < 8) {
    throw UserError(Place{file.path()},
                    "holds {} bytes; a safetensors file starts with the 8 bytes of its header's length", file.size());
  }
  std::uint64_t length = 0;
  file.read_at(0, &length, sizeof length);
  if (length > header_limit) {
    throw UserError(Place{file.path()},
                    "claims a header of {} bytes, and the format allows {}; it is not a safetensors file", length,
                    header_limit);
  }
  if (length > file.size() - 8) {
    throw UserError(Place{file.path()},
                    "claims a header of {} bytes, and the file ends {} bytes after its length; it may be truncated",
                    length, file.size() - 8);
  }
  return length;
}

// The error in a header's entry, with the tensor's name.
[[noreturn]] void refuse(const std::string& path, const std::string& name, const std::string& what) {
  throw UserError(Place{path}, "tensor '{}' {}", text::one_line(name), what);
}

const FormatDtype* known_dtype(at::ScalarType dtype) {
  const FormatDtype* known = find_dtype([&](const FormatDtype& entry) { return entry.dtype == dtype; });
  strata_check(known != nullptr, "a dtype that safetensors lacks");
  return known;
}

std::uint64_t offset_of(const TensorEntry& entry, std::int64_t element) {
  return entry.offset + static_cast<std::uint64_t>(element) * c10::elementSize(entry.dtype);
}

// Calls `move` for contiguous values and memory of this dtype on the host for them, part by part, with the bytes before
// the part. The two are one tensor, to which a copy is nothing, where the values are of this kind already.
void in_dtype(const at::Tensor& values, at::ScalarType dtype,
              const std::function<void(std::uint64_t at, const at::Tensor& part, const at::Tensor& in_file)>& move) {
  const c10::NoGradGuard no_grad;
  const at::Tensor flat = values.view({-1});
  if (flat.is_cpu() && flat.scalar_type() == dtype) return move(0, flat, flat);
  const std::size_t width = c10::elementSize(dtype);
  const std::int64_t chunk = std::min(staging_bytes / static_cast<std::int64_t>(width), flat.numel());
  const at::Tensor staging = at::empty({chunk}, dtype);
  for (std::int64_t at = 0; at < flat.numel(); at += chunk) {
    const std::int64_t now = std::min(chunk, flat.numel() - at);
    move(static_cast<std::uint64_t>(at) * width, flat.narrow(0, at, now), staging.narrow(0, 0, now));
  }
}

// The 8 bytes of length and the header, padded so that the data starts at a multiple of 8.
std::string format_header(const std::vector<TensorSpec>& tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t begin = 0;
  for (const TensorSpec& spec : tensors) {
    const std::uint64_t end = begin + bytes_of(spec);
    header[spec.name] = {
        {"dtype", known_dtype(spec.dtype)->name}, {"shape", spec.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    strata_check(size >= 0 && !__builtin_mul_overflow(count, size, &count), "a shape whose size does not fit 64 bits");
  }
  return count;
}

std::uint64_t bytes_of(const TensorSpec& spec) {
  return static_cast<std::uint64_t>(element_count(spec.shape)) * c10::elementSize(spec.dtype);
}

std::string format_dtype(at::ScalarType dtype) {
  return std::string(known_dtype(dtype)->name);
}

std::optional<at::ScalarType> parse_dtype(std::string_view name) {
  const FormatDtype* known = find_dtype([&](const FormatDtype& entry) { return entry.name == name; });
  return known == nullptr ? std::nullopt : std::optional(known->dtype);
}

std::string format_shape(const std::vector<std::int64_t>& shape) {
  return fmt::format("{}", shape);
}

SafetensorsFile::SafetensorsFile(const data::InputFile& file) : path_(file.path()), size_(file.size()) {
  std::string bytes(read_header_length(file), '\0');
  file.read_at(8, bytes.data(), bytes.size());
  parse(bytes);
}

SafetensorsFile::SafetensorsFile(std::string path, const std::string& header, std::uint64_t size)
    : path_(std::move(path)), size_(size) {
  strata_check(header.size() >= 8 && size >= header.size(), "a header has a length, and the file is as long");
  parse(header.substr(8));
}

void SafetensorsFile::parse(const std::string& bytes) {
  const std::string& path = path_;
  data_begin_ = 8 + bytes.size();
  const text::JsonDocument header(bytes, {path, "its header"}, {header_limit, header_values});
  for (const auto& [name, value] : header.object().members()) {
    if (name == "__metadata__") {
      if (value.json().is_null()) continue;
      for (const auto& [key, note] : value.members()) metadata_[key] = note.text();
      continue;
    }
    const std::vector<text::JsonValue> offsets = value["data_offsets"].elements();
    value["data_offsets"].check(offsets.size() == 2, "it must be the pair [begin, end)");
    add(name, value["dtype"].text(), value["shape"].shape(), static_cast<std::uint64_t>(offsets[0].count()),
        static_cast<std::uint64_t>(offsets[1].count()));
  }
  check_tiling();
}

void SafetensorsFile::add(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape,
                          std::uint64_t begin, std::uint64_t end) {
  const FormatDtype* known = find_dtype([&](const FormatDtype& entry) { return entry.name == dtype; });
  if (known == nullptr) refuse(path(), name, "is of dtype " + text::one_line(dtype) + ", which is not supported");
  auto bytes = static_cast<std::int64_t>(c10::elementSize(known->dtype));  // signed, as everything that counts elements
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) refuse(path(), name, "has a shape of more than 2^63 bytes");
  }
  if (begin > end || end - begin != static_cast<std::uint64_t>(bytes)) {
    refuse(path(), name,
           fmt::format("lies in bytes {} to {}, and {} {} takes {}", begin, end, dtype, format_shape(shape), bytes));
  }
  if (end > size_ - data_begin_) {
    refuse(
        path(), name,
        fmt::format("ends at byte {} of the data, which has {}; the file may be truncated", end, size_ - data_begin_));
  }
  tensors_[name] = {known->dtype, std::move(shape), data_begin_ + begin};
}

void SafetensorsFile::check_tiling() const {
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string>> ranges;  // begin, end, tensor
  for (const auto& [name, entry] : tensors_)
    ranges.emplace_back(entry.offset, entry.offset + bytes_of({name, entry.dtype, entry.shape}), name);
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t expected = data_begin_;
  for (const auto& [begin, end, name] : ranges) {
    if (begin != expected) {
      refuse(path(), name,
             std::string(begin < expected ? "overlaps the one before it" : "leaves a hole before it") + ", at byte " +
                 std::to_string(begin - data_begin_) + " of the data");
    }
    expected = end;
  }
  if (expected != size_) {
    throw UserError(Place{path()}, "has {} bytes after its last tensor", size_ - expected);
  }
}

data::InputFile SafetensorsFile::open() const {
  data::InputFile file(path_);
  if (file.size() != size_)
    throw EnvironmentError(
        "{}: was changed while in use: it had {} bytes and now has {}; do not modify files while a run reads them",
        path_, size_, file.size());
  return file;
}

void SafetensorsFile::read_range(const data::InputFile& file, const std::string& name, std::int64_t begin,
                                 std::int64_t end, const at::Tensor& destination) const {
  const auto found = tensors_.find(name);
  strata_check(found != tensors_.end(), "SafetensorsFile::read_range: no such tensor");
  const TensorEntry& entry = found->second;
  strata_check(0 <= begin && begin <= end && end <= element_count(entry.shape),
               "SafetensorsFile::read_range: no such range");
  strata_check(destination.numel() == end - begin && destination.is_contiguous(),
               "SafetensorsFile::read_range: the destination is contiguous and as long as the range");
  read_elements(file, offset_of(entry, begin), entry.dtype, destination);
}

void read_elements(const data::InputFile& file, std::uint64_t offset, at::ScalarType dtype,
                   const at::Tensor& destination) {
  in_dtype(destination, dtype, [&](std::uint64_t at, const at::Tensor& part, const at::Tensor& in_file) {
    file.read_at(offset + at, in_file.mutable_data_ptr(), in_file.nbytes());
    part.copy_(in_file);
  });
}

bool matches_any(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<TensorSpec>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  std::vector<TensorSpec> sorted = tensors;
  std::sort(sorted.begin(), sorted.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const FormatDtype* left = known_dtype(a.dtype);
    const FormatDtype* right = known_dtype(b.dtype);
    return left != right ? left < right : a.name < b.name;
  });
  header_ = format_header(sorted, metadata);
  std::uint64_t offset = header_.size();
  for (const TensorSpec& spec : sorted) {
    const bool added = targets_.try_emplace(spec.name, Target{{spec.dtype, spec.shape, offset}, {}}).second;
    if (!added || spec.name == "__metadata__") throw Bug("{}: two tensors named {}", path, spec.name);
    order_.push_back(spec.name);
    offset += bytes_of(spec);
  }
  bytes_ = offset;
  file_.reserve(offset);
  put(0, header_.data(), header_.size());
}

void SafetensorsWriter::put(std::uint64_t offset, const void* source, std::size_t bytes) {
  file_.write_at(offset, source, bytes);
  if (offset != summed_) return;
  checksum_.add(source, bytes);
  summed_ += bytes;
}

void SafetensorsWriter::write_range(const std::string& name, std::int64_t begin, const at::Tensor& source) {
  const auto found = targets_.find(name);
  if (found == targets_.end()) throw Bug("{}: tensor {} was not declared", file_.path(), name);
  auto& [entry, written] = found->second;
  const std::int64_t count = source.numel();
  strata_check(source.is_contiguous(), "SafetensorsWriter::write_range: the source is contiguous");
  strata_check(begin >= 0 && begin <= element_count(entry.shape) - count,
               "SafetensorsWriter::write_range: no such range");
  if (count == 0) return;
  const auto range = boost::icl::interval<std::int64_t>::right_open(begin, begin + count);
  if (boost::icl::intersects(written, range)) throw Bug("{}: elements written twice in {}", file_.path(), name);
  written += range;
  const std::uint64_t offset = offset_of(entry, begin);
  in_dtype(source, entry.dtype, [&](std::uint64_t at, const at::Tensor& part, const at::Tensor& in_file) {
    in_file.copy_(part);
    put(offset + at, in_file.const_data_ptr(), in_file.nbytes());
  });
}

void SafetensorsWriter::check_whole(const std::string& name, const Target& target) const {
  const bool whole = boost::icl::length(target.written) == element_count(target.entry.shape);
  if (!whole) throw Bug("{}: elements of {} were never written", file_.path(), name);
}

void SafetensorsWriter::transpose(const std::string& name) {
  const Target& target = targets_.at(name);
  check_whole(name, target);
  const std::vector<std::int64_t>& shape = target.entry.shape;
  const at::Tensor written = at::empty({shape.at(1), shape.at(0)}, target.entry.dtype);
  file_.read_at(target.entry.offset, written.mutable_data_ptr(), written.nbytes());
  const at::Tensor turned = written.t().contiguous();
  summed_ = std::min(summed_, target.entry.offset);  // the checksum of the bytes rewritten below is outdated
  file_.write_at(target.entry.offset, turned.const_data_ptr(), turned.nbytes());
}

void SafetensorsWriter::finish() {
  for (const auto& [name, target] : targets_) check_whole(name, target);
  file_.finish();
}

std::uint64_t SafetensorsWriter::checksum() const {
  strata_check(summed_ == bytes_, "SafetensorsWriter::checksum: the file was written in its order");
  return checksum_.value();
}

void SafetensorsWriter::flush() {
  file_.flush();
}

}  // namespace strata::checkpoint
