#pragma once
#include <strata/data_source.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

using Ids = std::vector<std::int64_t>;

// A temporary folder for a data plugin's files; the destructor removes it.
class WrittenFiles {
 public:
  explicit WrittenFiles(const DataSource& plugin);
  WrittenFiles(const WrittenFiles&) = delete;
  WrittenFiles& operator=(const WrittenFiles&) = delete;
  ~WrittenFiles();

  const std::string& path() const { return path_; }  // path that the plugin writes and opens
  const std::string& folder() const { return folder_; }
  // Writes these ids; returns the files that appeared in the folder.
  std::vector<std::string> write(const Ids& ids) const;
  std::unique_ptr<DataSet> open() const;

 private:
  const DataSource& plugin_;
  std::string folder_;
  std::string path_;
};

// Returns all tokens of a data set.
Ids all_of(const DataSet& set);
// Returns "12 tokens".
std::string tokens(std::int64_t count);

// True if `work` throws an `Error`; throws Failure "`what` ..." for another exception.
template <class Error, class Work>
bool throws(const std::string& what, Work&& work) {
  try {
    work();
    return false;
  } catch (const Error&) {
    return true;
  } catch (const std::exception& error) {
    throw Failure(what + " throws another class of exception: " + error.what());
  }
}

}  // namespace strata::conformance
