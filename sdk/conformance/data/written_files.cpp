#include "conformance/data/written_files.hpp"
#include "data/temporary_folder.hpp"

#include <stdlib.h>
#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>

namespace strata::conformance {

WrittenFiles::WrittenFiles(const DataSource& plugin)
    : plugin_(plugin), folder_(data::make_temporary_folder("strata-kit")), path_(folder_ + "/set") {}

WrittenFiles::~WrittenFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> WrittenFiles::write(const Ids& ids) const {
  plugin_.write(path_, ids);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  require(!files.empty(), "write(" + path_ + ") wrote no file in that folder");
  std::sort(files.begin(), files.end());
  return files;
}

std::unique_ptr<DataSet> WrittenFiles::open() const {
  std::unique_ptr<DataSet> set = plugin_.open(path_);
  require(set != nullptr, "open() returns null");
  return set;
}

Ids all_of(const DataSet& set) {
  Ids ids(static_cast<std::size_t>(set.token_count()), -1);
  set.copy(0, std::ssize(ids), ids.data());
  return ids;
}

std::string tokens(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " token" : " tokens");
}

}  // namespace strata::conformance
