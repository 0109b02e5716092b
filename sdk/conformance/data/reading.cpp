#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "data/written_files.hpp"
#include "runner/process_facts.hpp"

namespace strata::conformance::data_checks {

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

void order_as_declared(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  const WrittenFiles files(*plugin);
  files.write(Ids(20, 5));
  const std::unique_ptr<DataSet> set = files.open();
  const bool has = set->own_order({4, 0, 1}) != nullptr, declared = subject.can(Capability::OwnOrder);
  require(has || !declared, "the manifest declares own_order, but own_order() returns null");
  require(declared || !has,
          "own_order() returns an order, but the manifest does not declare own_order, so no config can "
          "select it");
}

}  // namespace strata::conformance::data_checks
