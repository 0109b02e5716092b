// Drawn files of a data plugin, read in drawn ranges and by drawn orders, and damaged.
#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <list>
#include <optional>
#include <set>

#include "conformance/data/written_files.hpp"
#include "conformance/drawn/search.hpp"

namespace strata::conformance {

namespace {

using Instance = fakes::LoadedPlugin<DataSource>;

std::string text_of(const SampleRequest& request) {
  return format("seq_len {}, {} samples, seed {}", request.seq_len, request.samples, request.seed);
}

// Files, what they hold, and the data set as two ranks have it.
struct Written {
  WrittenFiles files;
  std::vector<std::string> names;
  Ids ids;
  std::unique_ptr<DataSet> set, theirs;

  explicit Written(const DataSource& plugin) : files(plugin) {}
};

// A file with other bytes, until this ends.
class OtherBytes {
 public:
  explicit OtherBytes(std::string file) : file_(std::move(file)) {
    std::ifstream whole(file_, std::ios::binary);
    whole_.assign(std::istreambuf_iterator<char>(whole), {});
  }
  OtherBytes(const OtherBytes&) = delete;
  OtherBytes& operator=(const OtherBytes&) = delete;
  ~OtherBytes() { put(whole_); }
  const std::string& whole() const { return whole_; }
  std::string name() const { return std::filesystem::path(file_).filename().string(); }
  void put(const std::string& bytes) const { std::ofstream(file_, std::ios::binary | std::ios::trunc) << bytes; }

 private:
  std::string file_, whole_;
};

class Course {
 public:
  Course(const DataSource& plugin, const DataSource& other, Draws& draws)
      : plugin_(plugin), other_(other), draws_(draws) {}

  // Ids of `bits` bits, over the old file; false if the plugin refuses them.
  bool write(int bits) {
    Written& into = draws_.chance(3) && !written_.empty() ? pick() : written_.emplace_back(plugin_);
    const auto count = static_cast<std::size_t>(into.ids.empty() || draws_.chance(2)
                                                    ? draws_.size(draws_.chance(6) ? 1 << 17 : 1 << 10)
                                                    : std::ssize(into.ids));
    into.set.reset();
    into.theirs.reset();
    into.ids.resize(count);
    for (std::int64_t& id : into.ids)
      id = bits == 0 ? static_cast<std::int64_t>(mixed(next_++) % 127)
                     : static_cast<std::int64_t>(mixed(next_++) >> (64 - bits));
    if (throws<UserError>("write() of " + tokens(std::ssize(into.ids)),
                          [&] { into.names = into.files.write(into.ids); })) {
      written_.remove_if([&](const Written& one) { return &one == &into; });
      return false;
    }
    into.set = into.files.open();
    into.theirs = other_.open(into.files.path());
    std::int64_t sum = 0;
    for (const TokenFileInfo& file : into.set->files()) {
      sum += file.tokens;
      require(std::filesystem::exists(file.path), "files() names " + file.path + ", which does not exist");
      require(file.tokens >= 0 && !file.type.empty(), "files() gives " + tokens(file.tokens) + " of type '" +
                                                          file.type +
                                                          "'; it must give the number of tokens and their type");
    }
    require(sum == std::ssize(into.ids),
            format("write() got {}, but open() finds {}", tokens(std::ssize(into.ids)), sum));
    return true;
  }

  void read() {
    if (written_.empty()) return;
    constexpr std::int64_t untouched = -7;
    const Written& from = pick();
    const std::int64_t all = std::ssize(from.ids), first = draws_.between(0, all);
    const std::int64_t count =
        draws_.chance(3) ? draws_.between(0, all - first) : std::min(all - first, draws_.size(16));
    const bool is_other = draws_.chance(2);
    Ids read(static_cast<std::size_t>(count) + 2, untouched), again(static_cast<std::size_t>(count));
    const DataSet& set = is_other ? *from.theirs : *from.set;
    set.copy(first, count, read.data() + 1);
    set.copy(first, count, again.data());
    const std::string range =
        format("copy({}, {}) of {}{}", first, count, tokens(all), is_other ? " on another rank" : "");
    require(read.front() == untouched && read.back() == untouched, range + " writes outside its destination");
    require(std::equal(again.begin(), again.end(), read.begin() + 1), range + " gives other tokens the second time");
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t found = read[static_cast<std::size_t>(i) + 1],
                         wanted = from.ids[static_cast<std::size_t>(first + i)];
      require(found == wanted, format("{} gives token {} as id {}; {} was written", range, first + i, found, wanted));
    }
  }

  // One bit for each token: the same in every range, every time and on every rank.
  void read_mask() {
    if (written_.empty()) return;
    constexpr std::uint8_t untouched = 77;
    const Written& from = pick();
    const DataSet& set = draws_.chance(2) ? *from.theirs : *from.set;
    if (!set.has_mask()) return;
    const std::int64_t all = std::ssize(from.ids), first = draws_.between(0, all - 1);
    const std::int64_t count = draws_.between(1, all - first);
    Mask whole(from.ids.size()), part(static_cast<std::size_t>(count) + 2, untouched);
    from.set->copy_mask(0, all, whole.data());
    set.copy_mask(first, count, part.data() + 1);
    const std::string range = "copy_mask(" + std::to_string(first) + ", " + std::to_string(count) + ") of " +
                              tokens(all) + (&set == from.theirs.get() ? " on another rank" : "");
    require(part.front() == untouched && part.back() == untouched, range + " writes outside its destination");
    for (std::int64_t i = 0; i < count; ++i) {
      const int found = part[static_cast<std::size_t>(i) + 1], wanted = whole[static_cast<std::size_t>(first + i)];
      require(found <= 1,
              format("{} gives {} for token {}; it must be 1 for a target and 0 for a token that the loss ignores",
                     range, found, first + i));
      require(found == wanted, format("{} gives {} for token {}, and copy_mask() of the whole row gives {}", range,
                                      found, first + i, wanted));
    }
    const std::string outside = format("copy_mask({}, 1) of {}", all, tokens(all));
    require(throws<Bug>(outside, [&] { set.copy_mask(all, 1, part.data()); }),
            outside + " is accepted; it must throw Bug");
  }

  void read_outside() {
    if (written_.empty()) return;
    const Written& of = pick();
    const std::int64_t all = std::ssize(of.ids);
    const auto [first, count] = draws_.pick<std::pair<std::int64_t, std::int64_t>>(
        {{-1, 1}, {all, 1}, {0, all + 1}, {all - 1, 2}, {0, -1}, {all + 1, 0}, {INT64_MAX, 1}});
    const std::string range = format("copy({}, {}) of {}", first, count, tokens(std::ssize(of.ids)));
    Ids read(of.ids.size() + 4);
    require(throws<Bug>(range, [&, first = first, count = count] { of.set->copy(first, count, read.data()); }),
            range + " is accepted; it must throw Bug");
  }

  // One of its files is cut, emptied or holds other bytes: refused, or read as what is there.
  void damage() {
    if (written_.empty()) return;
    const Written& of = pick();
    const OtherBytes file(draws_.pick(of.names));
    const std::string& whole = file.whole();
    const auto size = static_cast<std::int64_t>(whole.size());
    std::string damaged = whole;
    const bool is_cut = draws_.chance(2);
    const std::int64_t at = draws_.between(0, draws_.chance(2) ? std::min<std::int64_t>(40, size - 1) : size - 1);
    if (is_cut) damaged.resize(static_cast<std::size_t>(at));
    const bool with_ones = draws_.chance(3);
    for (std::int64_t byte = at; !is_cut && byte < std::min(size, at + draws_.size(8)); ++byte)
      damaged[static_cast<std::size_t>(byte)] = static_cast<char>(with_ones ? 0xff : mixed(next_++));
    file.put(damaged);
    const std::string what =
        file.name() + (is_cut ? ", cut from " + std::to_string(size) + " to " + std::to_string(at) + " bytes: open()"
                              : " with other bytes from byte " + std::to_string(at) + " on: open()");
    std::unique_ptr<DataSet> set;
    if (throws<UserError>(what, [&] { set = of.files.open(); })) return;
    require(!damaged.empty() && set->token_count() >= 1, what + " accepts it, and there are no tokens");
    Ids read;
    try {
      read = all_of(*set);
    } catch (const std::exception& error) {
      throw Failure(what + " accepts it, but its tokens cannot be read: " + error.what());
    }
    require(!is_cut || (read.size() < of.ids.size() && std::equal(read.begin(), read.end(), of.ids.begin())),
            what + " accepts it, but its tokens are not the first ones that were written");
  }

  void cut_while_open() {
    if (written_.empty()) return;
    const Written& of = pick();
    const std::unique_ptr<DataSet> set = of.files.open();
    const OtherBytes file(draws_.pick(of.names));
    const std::size_t left = draws_.chance(2) ? file.whole().size() / 2 : 0;
    file.put(file.whole().substr(0, left));
    const std::string what = format("reading all tokens, after {} was cut to {} bytes", file.name(), left);
    Ids read;
    const bool refused = throws<EnvironmentError>(what, [&] { read = all_of(*set); });
    require(refused || read == of.ids, what + ", gives wrong tokens; it must throw an EnvironmentError");
  }

  // Files that are not the plugin's data.
  void read_others() const {
    const WrittenFiles none(plugin_);
    std::string text;
    try {
      none.open();
    } catch (const UserError& error) {
      text = error.what();
    } catch (const std::exception& error) {
      throw Failure(std::string("open() of a missing file must throw a UserError; it threw ") + error.what());
    }
    require(!text.empty(), "open() accepts a missing file");
    require(text.find(none.path()) != std::string::npos,
            "open() of a missing file: the message '" + text + "' does not name " + none.path());
    bool taken = false;
    throws<UserError>("recognizes() of a missing file", [&] { taken = plugin_.recognizes(none.path()); });
    require(!taken, "recognizes() claims a missing file");
    const std::string words = none.folder() + "/text.md";
    std::ofstream(words) << (draws_.chance(2) ? "" : "A text in plain words, which are no tokens of any format.\n");
    require(!plugin_.recognizes(words),
            "recognizes() claims a text file; it must claim only files that identify themselves as its format");
  }

  // As a run on two ranks reads it, and as one that is resumed anywhere.
  void order(bool is_declared) {
    if (written_.empty()) return;
    const Written& of = pick();
    SampleRequest request{draws_.size(std::max<std::int64_t>(std::ssize(of.ids) - 1, 1)), 0,
                          static_cast<std::uint64_t>(draws_.size(std::int64_t{1} << 32))};
    const std::int64_t an_epoch = std::max<std::int64_t>((std::ssize(of.ids) - 1) / request.seq_len, 1);
    if (an_epoch > 2000) return;
    if (draws_.chance(2)) request.samples = draws_.between(1, 3 * an_epoch);
    const std::string what = text_of(request) + " of " + tokens(std::ssize(of.ids)) + ": ";
    std::unique_ptr<Samples> order;
    if (throws<UserError>(what + "own_order()", [&] { order = of.set->own_order(request); })) return;
    require((order != nullptr) == is_declared,
            what + (is_declared ? "own_order() returns null, but the manifest declares own_order"
                                : "own_order() gives an order, but the manifest does not declare own_order"));
    if (!is_declared) return;
    const std::int64_t count = order->count();
    require(count >= std::max<std::int64_t>(request.samples, 1),
            what + "the order has " + std::to_string(count) + " samples; a run needs at least as many as it asks for");
    std::vector<bool> seen(static_cast<std::size_t>(count));
    for (std::int64_t position = 0; position < count; ++position) {
      const std::string where = format("{}position {}", what, position);
      const std::int64_t sample = order->sample(position);
      require(sample >= 0 && sample < count, format("{} is sample {} of {}", where, sample, count));
      require(!seen[static_cast<std::size_t>(sample)],
              format("{} is sample {}, which the order has already had", where, sample));
      seen[static_cast<std::size_t>(sample)] = true;
    }
    for (const std::int64_t position : {std::int64_t{-1}, count})
      require(throws<Bug>(what + "sample(" + std::to_string(position) + ")", [&] { order->sample(position); }),
              what + "sample(" + std::to_string(position) + ") of " + std::to_string(count) +
                  " is accepted; it must throw Bug");
    const std::unique_ptr<Samples> again = of.set->own_order(request), far = of.theirs->own_order(request);
    require(again != nullptr && far != nullptr && again->count() == count && far->count() == count,
            what + "a second order has another number of samples");
    const std::set<std::int64_t> known(of.ids.begin(), of.ids.end());
    for (auto asked = draws_.between(1, 20); asked > 0; --asked) {
      const std::int64_t position = draws_.between(0, count - 1);
      const auto [read, mask] = sample_of(*order, position, request.seq_len);
      const std::string where = format("{}position {}", what, position);
      require(std::ranges::all_of(read, [&](std::int64_t id) { return known.contains(id); }),
              where + " holds a token that was not written; a sample is seq_len + 1 tokens of the data");
      require(std::ranges::all_of(mask, [](int is_target) { return is_target <= 1; }),
              where + " has a mask of other numbers than 0 and 1");
      const auto is_same = [&, &read = read, &mask = mask](const Samples& other) {
        return other.sample(position) == order->sample(position) &&
               sample_of(other, position, request.seq_len) == std::pair(read, mask);
      };
      require(is_same(*order) && is_same(*again), where + " gives another sample the second time");
      require(is_same(*far), where + " gives another sample on another rank");
    }
  }

 private:
  using Mask = std::vector<std::uint8_t>;

  static std::pair<Ids, Mask> sample_of(const Samples& order, std::int64_t position, std::int64_t seq_len) {
    Ids read(static_cast<std::size_t>(seq_len) + 1, -1);
    Mask mask(read.size(), 1);
    order.read(position, read.data(), mask.data());
    return {read, mask};
  }

  Written& pick() {
    auto at = written_.begin();
    std::advance(at, draws_.between(0, std::ssize(written_) - 1));
    return *at;
  }

  const DataSource& plugin_;
  const DataSource& other_;
  Draws& draws_;
  std::list<Written> written_;
  std::uint64_t next_ = 1;
};

bool carry_out(Subject& subject, Draws& draws, const Tell& tell) {
  const fakes::OptionTexts options = draws.options(subject.manifest().options);
  std::optional<Instance> plugin, other;
  try {
    plugin.emplace(subject.make<DataSource>(options));
    other.emplace(subject.make<DataSource>(options, 1, MeshShape{{Axis::Data, 2}}));
  } catch (const UserError&) {
    return false;  // it takes other options
  }
  Course course(**plugin, **other, draws);
  // Every format holds ids below 127; of more bits, a plugin may refuse to write them.
  const int bits = draws.chance(2) ? static_cast<int>(draws.between(8, 40)) : 0;
  std::string said =
      "options: " + to_string(options) + "; ids of " + (bits == 0 ? "0 to 126" : std::to_string(bits) + " bits") + ";";
  static const char* const names[] = {" write",  " read",           " read by own order",      " read outside",
                                      " damage", " cut while open", " read what is not there", " read the mask"};
  tell(said += " write");
  if (!course.write(bits)) {
    require(bits > 0 || !options.empty(), "write() refuses ids below 127, which every format can store");
    return false;
  }
  for (auto calls = draws.between(0, 12); calls > 0; --calls) {
    const std::vector<int> often{1, 0, 1, 2, 2, 3, 4, 4, 5, 6, 7};
    const int call = draws.pick(often);
    tell(said += names[call]);
    if (call == 0) course.write(bits);
    if (call == 1) course.read();
    if (call == 2) course.order(subject.can(Capability::OwnOrder));
    if (call == 3) course.read_outside();
    if (call == 4) course.damage();
    if (call == 5) course.cut_while_open();
    if (call == 6) course.read_others();
    if (call == 7) course.read_mask();
  }
  return true;
}

}  // namespace

std::vector<Case> data_cases() {
  return {{"data.drawn",
           "Tokens are read back as they were written, in any ranges and on any rank, an own order has each sample "
           "once, the same on every rank and from any position on, and what is missing, damaged or outside is refused.",
           [](Subject& subject) { search(subject, "data.drawn", 250, carry_out); }, std::chrono::seconds(300), true}};
}

}  // namespace strata::conformance
