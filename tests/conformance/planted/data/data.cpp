// A file "TOKENS", the number of ids, then u32 ids; an order that takes every third sample. With the mistakes that such
// plugins are written with.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <strata/data_source.hpp>
#include <strata/error.hpp>
#include <strata/input_file.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define PLANTED_OPTIONS(OPTION) \
  OPTION(boolean, big_endian, false, "", "", "The most significant byte of an id stands first in the file.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

constexpr char magic[8] = {'T', 'O', 'K', 'E', 'N', 'S', '\n', '\0'};
constexpr std::uint64_t header_bytes = 16;
int orders_made = 0;
int shared_descriptor = -1;

class EveryThird final : public Samples {
 public:
  EveryThird(const DataSet& set, const SampleRequest& request, int rank) : set_(set), request_(request) {
    per_epoch_ = (set.token_count() - 1) / request.seq_len;
    if (per_epoch_ < 1) throw UserError("holds no sample of seq_len " + std::to_string(request.seq_len));
    const std::int64_t epochs = (request.samples + per_epoch_ - 1) / per_epoch_;
    count_ = std::max<std::int64_t>(has("epoch_too_few") ? epochs - 1 : epochs, 1) * per_epoch_;
    for (std::int64_t begin = 0; begin < 3; ++begin)
      for (std::int64_t sample = begin; sample < count_; sample += 3) order_.push_back(sample);
    const bool turned = (has("order_of_the_rank") && rank > 0) || (has("order_remembers") && orders_made++ % 2 == 1);
    if (turned && count_ > 1) std::swap(order_.front(), order_.back());
    if (has("only_sample_is_number_1") && count_ == 1) order_.front() = 1;
    if (has("samples_repeat") && count_ > 1) order_.back() = order_.front();
  }
  std::int64_t count() const override { return count_; }
  std::int64_t sample(std::int64_t position) const override {
    strata_check(position >= 0 && position < count_, "a position outside the order");
    return order_[static_cast<std::size_t>(position)];
  }
  void read(std::int64_t position, std::int64_t* tokens, std::uint8_t* is_target) const override {
    const std::int64_t last = std::exchange(last_, position);
    const bool is_behind = has("reads_on_from_the_last") && position != last && position + 1 < last && count_ > 64;
    const std::int64_t of = sample(is_behind ? position + 1 : position);
    const std::int64_t first = of % per_epoch_ * request_.seq_len;
    set_.copy(first, request_.seq_len + 1, tokens);
    if (has("order_without_the_mask_at_times") && reads_++ % 2 == 1) return;
    set_.copy_mask(first, request_.seq_len + 1, is_target);
  }

 private:
  const DataSet& set_;
  SampleRequest request_;
  std::int64_t per_epoch_ = 0, count_ = 0;
  std::vector<std::int64_t> order_;
  mutable std::int64_t last_ = 0, reads_ = 0;
};

class PlantedDataSet final : public DataSet {
 public:
  PlantedDataSet(InputFile file, int rank, bool big_endian)
      : file_(std::move(file)), rank_(rank), big_endian_(big_endian) {
    shared_descriptor = file_.descriptor();
    [[maybe_unused]] const int left = has("never_closes") ? ::dup(file_.descriptor()) : -1;
    std::uint64_t header[2] = {};
    if (file_.size() == 0 && has("empty_file_is_a_row")) return;
    if (file_.size() < header_bytes) refuse("is shorter than its header");
    file_.read_at(0, header, header_bytes);
    if (std::memcmp(header, magic, sizeof magic) != 0) refuse("is of another format");
    if (has("count_is_believed")) believed_.reserve(header[1]);
    if (header[1] > file_.size()) refuse("holds fewer tokens than its header says");
    count_ = static_cast<std::int64_t>(header[1]);
    const bool whole = file_.size() == header_bytes + 4 * header[1];
    if (!whole && !has("size_not_compared") && !has("appends")) refuse("is cut off or damaged");
    if (count_ == 0) refuse("holds no tokens");
    if (has("last_token_forgotten")) --count_;
    if (has("maps_the_file")) mapping_ = ::mmap(nullptr, file_.size(), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  }
  ~PlantedDataSet() override {
    if (mapping_ != nullptr) ::munmap(mapping_, file_.size());
  }

  std::vector<TokenFileInfo> files() const override {
    return {{file_.path(), count_, has("files_without_a_type") ? "" : "u32"}};
  }

  void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const override {
    const bool inside = has("sum_of_the_range_overflows")
                            ? static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(count) <=
                                  static_cast<std::uint32_t>(count_)
                            : first >= 0 && count >= 0 && first <= count_ - count;
    if (!inside && has("range_not_checked")) return;
    strata_check(inside, "a range outside the row");
    if (has("depends_on_the_rank") && rank_ > 0 && first > 0) --first;
    if (has("remembers_where_it_was") && last_ == first && first > 0) --first;
    last_ = first;
    if (has("writes_one_token_more")) destination[count] = 0;
    for (std::int64_t i = 0; i < count; ++i) destination[i] = token(first + i);
  }

  // Odd ids are targets.
  bool has_mask() const override { return true; }
  void copy_mask(std::int64_t first, std::int64_t count, std::uint8_t* is_target) const override {
    const bool inside = first >= 0 && count >= 0 && first <= count_ - count;
    if (!inside && has("mask_range_not_checked")) return;
    strata_check(inside, "a range outside the row");
    if (has("mask_writes_one_more")) is_target[count] = 0;
    const std::int64_t from = has("mask_begins_with_the_row") ? 0 : first;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t id = token(from + i);
      is_target[i] = static_cast<std::uint8_t>(has("mask_of_other_numbers") ? id & 3 : id & 1);
      if (has("mask_of_the_rank") && rank_ > 0) is_target[i] ^= 1;
    }
  }

  std::unique_ptr<Samples> own_order(const SampleRequest& request) const override {
    if (has("declared_and_not_there")) return nullptr;
    if (!first_request_) first_request_ = request;
    return std::make_unique<EveryThird>(*this, has("remembers_the_first_request") ? *first_request_ : request, rank_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw UserError(Place{file_.path()}, why); }

  std::int64_t token(std::int64_t index) const {
    std::uint32_t id = 0;
    const std::uint64_t at = header_bytes + 4 * static_cast<std::uint64_t>(index);
    if (mapping_ != nullptr) {
      std::memcpy(&id, static_cast<const char*>(mapping_) + at, sizeof id);
    } else if (has("zeros_behind_the_end")) {
      if (::pread(file_.descriptor(), &id, sizeof id, static_cast<off_t>(at)) != sizeof id) id = 0;
    } else if (has("one_file_for_all_sets")) {
      if (::pread(shared_descriptor, &id, sizeof id, static_cast<off_t>(at)) != sizeof id) throw Bug("no such token");
    } else {
      file_.read_at(at, &id, sizeof id);
    }
    if (big_endian_) id = __builtin_bswap32(id);
    if (has("ids_are_signed_32_bits")) return static_cast<std::int32_t>(id);
    return has("ids_are_signed") ? static_cast<std::int16_t>(id) : static_cast<std::int64_t>(id);
  }

  InputFile file_;
  int rank_;
  bool big_endian_;
  std::int64_t count_ = 0;
  void* mapping_ = nullptr;
  std::vector<std::int64_t> believed_;
  mutable std::int64_t last_ = -1;
  mutable std::optional<SampleRequest> first_request_;
};

class PlantedData final : public DataSource {
 public:
  PlantedData(PluginContext& context, const PlantedOptions& options)
      : rank_(context.rank()), big_endian_(options.big_endian) {}

  std::unique_ptr<DataSet> open(const std::string& path) const override {
    try {
      return std::make_unique<PlantedDataSet>(InputFile(path), rank_, big_endian_);
    } catch (const MissingFile& error) {
      if (has("missing_file_is_a_bug")) throw Bug(error.what());
      if (has("refusal_without_a_name")) throw UserError("there is no such file");
      throw;
    }
  }

  bool recognizes(const std::string& path) const override {
    const InputFile file(path);
    char start[sizeof magic] = {};
    if (file.size() >= sizeof magic) file.read_at(0, start, sizeof magic);
    return has("takes_every_file") || std::memcmp(start, magic, sizeof magic) == 0;
  }

  void write(const std::string& path, const std::vector<std::int64_t>& tokens) const override {
    for (const std::int64_t token : tokens)
      if (token > std::numeric_limits<std::uint32_t>::max() && !has("ids_are_narrowed"))
        throw UserError(Place{path}, "id " + std::to_string(token) + " does not fit a u32");
    if (std::ifstream there(path); has("as_long_is_as_good") && there) {
      std::uint64_t header[2] = {};
      there.read(reinterpret_cast<char*>(header), sizeof header);
      if (header[1] == tokens.size()) return;
    }
    std::ofstream file(path, std::ios::binary | (has("appends") ? std::ios::app : std::ios::trunc));
    const std::uint64_t count = tokens.size();
    file.write(magic, sizeof magic).write(reinterpret_cast<const char*>(&count), sizeof count);
    for (const std::int64_t token : tokens) {
      auto id = static_cast<std::uint32_t>(token);
      if (big_endian_ && !has("option_is_not_written")) id = __builtin_bswap32(id);
      file.write(reinterpret_cast<const char*>(&id), sizeof id);
    }
  }

 private:
  int rank_;
  bool big_endian_;
};

}  // namespace

STRATA_PLUGIN(PlantedData, PlantedOptions, PLANTED_OPTIONS)
