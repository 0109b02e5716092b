#include "checkpoint/ranges.hpp"

#include <algorithm>

namespace strata::checkpoint {
namespace {

constexpr std::size_t most_open = 256;

// In rank order, as checkpoint.json lists them.
std::vector<SavedFile> shards_among(const std::vector<SavedFile>& files) {
  std::vector<SavedFile> shards;
  std::ranges::copy_if(files, std::back_inserter(shards), [](const SavedFile& file) { return is_shard(file.name); });
  return shards;
}

RangeIndex open_index(const std::filesystem::path& folder, const std::vector<SavedFile>& files,
                      const std::vector<SavedParameter>& parameters) {
  const std::vector<SavedFile> shards = shards_among(files);
  if (std::ranges::find(files, index_file_name, &SavedFile::name) != files.end()) {
    std::vector<std::uint64_t> bytes;
    for (const SavedFile& shard : shards) bytes.push_back(shard.bytes);
    return {folder, std::move(bytes), parameters};
  }
  std::vector<SafetensorsFile> headers;
  for (const SavedFile& shard : shards) {
    const data::InputFile file = open_saved(folder / shard.name);
    try {
      headers.emplace_back(file);
    } catch (const UserError& error) {
      throw DamagedCheckpoint(error.what());
    }
  }
  return {folder, headers, parameters};
}

}  // namespace

RangeSource::RangeSource(const std::filesystem::path& folder, const std::vector<SavedFile>& files,
                         const std::vector<SavedParameter>& parameters)
    : folder_(folder), shards_(shards_among(files)), index_(open_index(folder, files, parameters)) {}

const data::InputFile& RangeSource::opened(std::int64_t shard) const {
  const auto found = std::ranges::find_if(open_, [&](const auto& file) { return file.first == shard; });
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
    return open_.front().second;
  }
  if (open_.size() == most_open) open_.pop_back();
  const SavedFile& saved = shards_.at(static_cast<std::size_t>(shard));
  const std::filesystem::path path = folder_ / saved.name;
  try {
    open_.emplace_front(shard, open_saved(path));
  } catch (const EnvironmentError&) {
    if (open_.empty()) throw;
    open_.clear();  // there may be too many
    open_.emplace_front(shard, open_saved(path));
  }
  const data::InputFile& file = open_.front().second;
  if (file.size() != saved.bytes)
    throw EnvironmentError(
        "{}: was changed while in use: it had {} bytes and now has {}; do not modify files while a run reads them",
        path.string(), saved.bytes, file.size());
  return file;
}

void RangeSource::read(const std::string& parameter, const std::string& state, std::int64_t begin, std::int64_t end,
                       const at::Tensor& destination) const {
  const RangeIndex::State& stored = index_.state(parameter, state);
  strata_check(destination.dim() == 1 && destination.numel() == end - begin,
               "RangeSource::read: the destination is as long as the range");
  if (!stored.cut) return read_part(index_.ranges(parameter, state, 0), stored.dtype, begin, end, destination);
  const std::int64_t block = stored.block;
  stored.cut->for_each_run_of_whole(
      begin * block, std::min(end * block, stored.cut->whole_elements()), [&](const ParameterCut::Run& run) {
        const std::int64_t first = run.in_part / block, count = (run.elements + block - 1) / block;
        read_part(index_.ranges(parameter, state, run.part), stored.dtype, first, first + count,
                  destination.narrow(0, run.whole / block - begin, count));
      });
}

void RangeSource::read_part(const StoredRanges& known, at::ScalarType dtype, std::int64_t begin, std::int64_t end,
                            const at::Tensor& destination) const {
  if (begin == end) return;
  auto range = std::ranges::upper_bound(known, begin, {}, &StoredRange::begin);
  const auto check = [&](bool holds) {
    if (!holds)
      throw UserError(
          "the checkpoint does not hold elements {} to {} of a parameter's state; another version of its plugins saved "
          "it",
          begin, end);
  };
  check(range != known.begin() && begin >= 0);
  const auto width = static_cast<std::int64_t>(c10::elementSize(dtype));
  for (--range; begin < end; ++range) {
    check(range != known.end());
    const std::int64_t stop = std::min(end, range->end);
    const std::int64_t length = stop - begin;
    if (length == 0) continue;  // an empty range in the file
    read_elements(opened(range->shard), static_cast<std::uint64_t>(range->offset + (begin - range->begin) * width),
                  dtype, destination.narrow(0, destination.numel() - (end - begin), length));
    begin = stop;
  }
}

}  // namespace strata::checkpoint
