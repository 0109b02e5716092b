#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "data/written_files.hpp"
#include "runner/process_facts.hpp"

namespace strata::conformance::data_checks {

void reads_what_it_wrote(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  std::mt19937_64 random = subject.random("data.reads_what_it_wrote");
  for (const std::int64_t count : {1, 2, 3, 7, 255, 256, 257, 4'095, 65'537, 300'001}) {
    const WrittenFiles files(*plugin);
    const Ids ids = some_ids(count, random);
    files.write(ids);
    const std::unique_ptr<DataSet> set = files.open();
    std::int64_t sum = 0;
    for (const TokenFileInfo& file : set->files()) {
      sum += file.tokens;
      require(std::filesystem::exists(file.path), "files() names " + file.path + ", which does not exist");
      require(file.tokens >= 0 && !file.type.empty(), "files() gives " + tokens(file.tokens) + " of type '" +
                                                          file.type +
                                                          "'; it must give the number of tokens and their type");
    }
    require(sum == count, "write() got " + tokens(count) + ", but open() finds " + std::to_string(sum));
    require(all_of(*set) == ids, tokens(count) + " are read back as other tokens");
  }
}

void any_range(Subject& subject) {
  constexpr std::int64_t count = 20'000, untouched = -7;
  const auto plugin = subject.make<DataSource>();
  const auto other = subject.make<DataSource>({}, 1, {1, 2, 1});
  std::mt19937_64 random = subject.random("data.any_range");
  const WrittenFiles files(*plugin);
  const Ids ids = some_ids(count, random);
  files.write(ids);
  const std::unique_ptr<DataSet> set = files.open(), theirs = other->open(files.path());
  for (int i = 0; i < 400; ++i) {
    const auto first = static_cast<std::int64_t>(random() % (count + 1));
    const auto longest =
        static_cast<std::uint64_t>(i % 4 == 0 ? count - first : std::min(count - first, std::int64_t{9}));
    const auto length = static_cast<std::int64_t>(random() % (longest + 1));
    Ids read(static_cast<std::size_t>(length) + 2, untouched);
    const std::unique_ptr<DataSet>& of = i % 2 == 0 ? set : theirs;
    of->copy(first, length, read.data() + 1);
    Ids again(static_cast<std::size_t>(length));
    of->copy(first, length, again.data());
    const std::string range = "copy(" + std::to_string(first) + ", " + std::to_string(length) + ")";
    require(read.front() == untouched && read.back() == untouched, range + " writes outside its destination");
    for (std::int64_t at = 0; at < length; ++at)
      require(read[static_cast<std::size_t>(at) + 1] == ids[static_cast<std::size_t>(first + at)],
              range + (i % 2 == 0 ? "" : " on another rank") + " gives token " + std::to_string(first + at) +
                  " with another id than was written");
    require(std::equal(again.begin(), again.end(), read.begin() + 1), range + " gives other tokens the second time");
  }
}

void outside_the_row(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  const WrittenFiles files(*plugin);
  files.write({1, 2, 3, 4});
  const std::unique_ptr<DataSet> set = files.open();
  for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {-1, 1}, {4, 1}, {0, 5}, {3, 2}, {0, -1}, {5, 0}, {INT64_MAX, 1}}) {
    const std::string range = "copy(" + std::to_string(first) + ", " + std::to_string(count) + ") of 4 tokens";
    Ids read(16);
    require(throws<Bug>(range, [&] { set->copy(first, count, read.data()); }),
            range + " is accepted; it must throw Bug");
  }
}

void large_ids(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  int read = 0;
  for (const std::int64_t id : {std::int64_t{0}, std::int64_t{126}, std::int64_t{128}, std::int64_t{255},
                                std::int64_t{256}, std::int64_t{50'256}, std::int64_t{65'535}, std::int64_t{65'536},
                                std::int64_t{200'000}, std::int64_t{INT32_MAX}, std::int64_t{1} << 40}) {
    const WrittenFiles files(*plugin);
    const Ids ids{1, id, 2};
    if (throws<UserError>("write() of id " + std::to_string(id), [&] { files.write(ids); })) continue;
    ++read;
    require(all_of(*files.open()) == ids, "id " + std::to_string(id) + " is read back as another id");
  }
  require(read >= 2, "write() refuses ids below 128, which every format can store");
}

void replaces(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  std::mt19937_64 random = subject.random("data.replaces");
  const WrittenFiles files(*plugin);
  for (const std::int64_t count : {100, 3, 50}) {
    const Ids ids = some_ids(count, random);
    files.write(ids);
    require(all_of(*files.open()) == ids,
            tokens(count) + " written over an existing file are read back as other tokens");
  }
}

void settings(Subject& subject) {
  if (subject.manifest().options.empty()) throw Skip("the plugin has no options");
  std::mt19937_64 random = subject.random("data.settings");
  const Ids ids = some_ids(300, random);
  for (const fakes::OptionTexts& setting : subject.settings()) {
    std::optional<fakes::LoadedPlugin<DataSource>> plugin;
    try {
      plugin.emplace(subject.make<DataSource>(setting));
    } catch (const UserError&) {
      continue;
    }
    const WrittenFiles files(**plugin);
    Ids read;
    const bool refused = throws<UserError>("with " + to_string(setting) + ": write() and open()", [&] {
      files.write(ids);
      read = all_of(*files.open());
    });
    require(refused || read == ids, "with " + to_string(setting) + " the tokens read differ from those written");
  }
}

void recognizes(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  const WrittenFiles files(*plugin);
  const std::string text = files.folder() + "/text.md", none = files.folder() + "/none.bin";
  for (const char* content : {"", "A text in plain words, which are no tokens of any format.\n"}) {
    std::ofstream(text, std::ios::trunc) << content;
    require(!plugin->recognizes(text),
            "recognizes() claims a text file; it must claim only files that identify "
            "themselves as its format");
  }
  bool taken = false;
  throws<UserError>("recognizes() of a missing file", [&] { taken = plugin->recognizes(none); });
  require(!taken, "recognizes() claims a missing file");
}

void leaks_nothing(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  const WrittenFiles files(*plugin);
  files.write({1, 2, 3, 4, 5});
  const auto round = [&] {
    for (int i = 0; i < 50; ++i) all_of(*files.open());
  };
  round();
  const int before = open_files_of_this_process();
  round();
  const int after = open_files_of_this_process();
  require(after <= before, "50 calls of open(): the number of open files grew from " + std::to_string(before) + " to " +
                               std::to_string(after));
}

}  // namespace strata::conformance::data_checks
