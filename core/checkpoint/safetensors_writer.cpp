#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.hpp"
#include "checkpoint/safetensors_dtype.hpp"

namespace strata::checkpoint {
namespace {

const FormatDtype* format_dtype(at::ScalarType dtype) {
  const FormatDtype* known = find_dtype([&](const FormatDtype& entry) { return entry.dtype == dtype; });
  strata_check(known != nullptr, "a dtype that safetensors lacks");
  return known;
}

// The 8 bytes of length and the header, padded so that the data starts at a multiple of 8.
std::string format_header(const std::vector<TensorSpec>& tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t begin = 0;
  for (const TensorSpec& spec : tensors) {
    const std::uint64_t end = begin + bytes_of(spec);
    header[spec.name] = {
        {"dtype", format_dtype(spec.dtype)->name}, {"shape", spec.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

// Adds [begin, end) to disjoint ranges, joining it with its neighbours. Returns whether it overlaps one.
bool overlaps_or_joins(std::map<std::int64_t, std::int64_t>& ranges, std::int64_t begin, std::int64_t end) {
  auto next = ranges.lower_bound(begin);
  if (next != ranges.end() && next->first < end) return true;
  if (next != ranges.begin()) {
    const auto previous = std::prev(next);
    if (previous->second > begin) return true;
    if (previous->second == begin) {
      begin = previous->first;
      ranges.erase(previous);
    }
  }
  if (next != ranges.end() && next->first == end) {
    end = next->second;
    ranges.erase(next);
  }
  ranges[begin] = end;
  return false;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<TensorSpec>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  std::vector<TensorSpec> sorted = tensors;
  std::sort(sorted.begin(), sorted.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const FormatDtype* left = format_dtype(a.dtype);
    const FormatDtype* right = format_dtype(b.dtype);
    return left != right ? left < right : a.name < b.name;
  });
  const std::string header = format_header(sorted, metadata);
  std::uint64_t offset = header.size();
  for (const TensorSpec& spec : sorted) {
    const bool added = targets_.try_emplace(spec.name, Target{{spec.dtype, spec.shape, offset}, {}}).second;
    if (!added || spec.name == "__metadata__") throw Bug(path + ": two tensors of the name " + spec.name);
    order_.push_back(spec.name);
    offset += bytes_of(spec);
  }
  bytes_ = offset;
  file_.reserve(offset);
  put(0, header.data(), header.size());
}

void SafetensorsWriter::put(std::uint64_t offset, const void* source, std::size_t bytes) {
  file_.write_at(offset, source, bytes);
  if (offset != summed_) return;
  checksum_.add(source, bytes);
  summed_ += bytes;
}

void SafetensorsWriter::write_range(const std::string& name, std::int64_t begin, const at::Tensor& source) {
  const auto found = targets_.find(name);
  if (found == targets_.end()) throw Bug(file_.path() + ": was not announced to hold a tensor " + name);
  auto& [entry, written] = found->second;
  const std::int64_t count = source.numel();
  strata_check(source.is_contiguous(), "SafetensorsWriter::write_range: the source is contiguous");
  strata_check(begin >= 0 && begin <= element_count(entry.shape) - count,
               "SafetensorsWriter::write_range: no such range");
  if (count == 0) return;
  if (overlaps_or_joins(written, begin, begin + count)) throw Bug(file_.path() + ": elements written twice in " + name);
  const auto width = static_cast<std::int64_t>(c10::elementSize(entry.dtype));
  const std::uint64_t offset = entry.offset + static_cast<std::uint64_t>(begin * width);
  if (source.is_cpu() && source.scalar_type() == entry.dtype) {
    put(offset, source.const_data_ptr(), static_cast<std::size_t>(count * width));
    return;
  }
  const c10::NoGradGuard no_grad;
  const std::int64_t chunk = std::min(staging_bytes / width, count);
  const at::Tensor staging = at::empty({chunk}, entry.dtype);
  const at::Tensor flat = source.view({-1});
  for (std::int64_t at = 0; at < count; at += chunk) {
    const std::int64_t now = std::min(chunk, count - at);
    staging.narrow(0, 0, now).copy_(flat.narrow(0, at, now));
    put(offset + static_cast<std::uint64_t>(at * width), staging.const_data_ptr(),
        static_cast<std::size_t>(now * width));
  }
}

void SafetensorsWriter::finish() {
  for (const auto& [name, target] : targets_) {
    const std::int64_t count = element_count(target.entry.shape);
    const auto& written = target.written;
    const bool whole =
        count == 0 || (written.size() == 1 && written.begin()->first == 0 && written.begin()->second == count);
    if (!whole) throw Bug(file_.path() + ": elements of " + name + " were never written");
  }
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
