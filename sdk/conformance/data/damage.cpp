#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "data/written_files.hpp"

namespace strata::conformance::data_checks {

namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Opens and reads what there is; nothing when it is refused.
std::optional<Ids> read_or_refuse(const WrittenFiles& files, const std::string& what) {
  std::unique_ptr<DataSet> set;
  if (throws<UserError>(what + ": open()", [&] { set = files.open(); })) return {};
  try {
    require(set->token_count() >= 1, what + ": open() accepts it as a data set without tokens");
    return all_of(*set);
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    throw Failure(what + ": open() accepts it, but its tokens cannot be read: " + error.what());
  }
}

}  // namespace

void no_file(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  const WrittenFiles files(*plugin);
  try {
    files.open();
  } catch (const UserError& error) {
    require(std::string(error.what()).find(files.path()) != std::string::npos,
            "open() of a missing file: the message '" + std::string(error.what()) + "' does not name " + files.path());
    return;
  } catch (const std::exception& error) {
    throw Failure(std::string("open() of a missing file must throw a UserError; it threw ") + error.what());
  }
  throw Failure("open() accepts a missing file");
}

void empty_file(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  const WrittenFiles files(*plugin);
  for (const std::string& file : files.write({1, 2, 3})) {
    const std::string whole = bytes_of(file);
    put(file, "");
    const std::string what = std::filesystem::path(file).filename().string() + ", emptied";
    require(throws<UserError>(what + ": open()", [&] { files.open(); }), what + ": open() accepts it");
    put(file, whole);
  }
}

void cut_files(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  std::mt19937_64 random = subject.random("data.cut_files");
  const WrittenFiles files(*plugin);
  const Ids ids = some_ids(60, random);
  for (const std::string& file : files.write(ids)) {
    const std::string whole = bytes_of(file);
    const std::size_t step = std::max<std::size_t>(1, whole.size() / 150);
    for (std::size_t size = 1; size < whole.size(); size += step) {
      put(file, whole.substr(0, size));
      const std::string what = std::filesystem::path(file).filename().string() + ", cut from " +
                               std::to_string(whole.size()) + " to " + std::to_string(size) + " bytes";
      const std::optional<Ids> read = read_or_refuse(files, what);
      if (!read) continue;
      require(read->size() < ids.size() && std::equal(read->begin(), read->end(), ids.begin()),
              what + ": open() accepts it, but its tokens are not the first ones that were written");
    }
    put(file, whole);
  }
}

void cut_while_open(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  std::mt19937_64 random = subject.random("data.cut_while_open");
  const WrittenFiles files(*plugin);
  const Ids ids = some_ids(30'000, random);
  const std::size_t count = files.write(ids).size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string file = files.write(ids)[i];
    for (const std::uintmax_t size : {std::filesystem::file_size(file) / 2, std::uintmax_t{0}}) {
      const std::unique_ptr<DataSet> set = files.open();
      std::filesystem::resize_file(file, size);
      const std::string what = "reading all tokens, after " + std::filesystem::path(file).filename().string() +
                               " was cut to " + std::to_string(size) + " bytes";
      Ids read;
      const bool refused = throws<EnvironmentError>(what, [&] { read = all_of(*set); });
      require(refused || read == ids, what + ", gives wrong tokens; it must throw an EnvironmentError");
      files.write(ids);
    }
  }
}

void damaged_files(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  std::mt19937_64 random = subject.random("data.damaged_files");
  const WrittenFiles files(*plugin);
  for (const std::string& file : files.write(some_ids(60, random))) {
    const std::string whole = bytes_of(file);
    for (int i = 0; i < 300; ++i) {
      std::string damaged = whole;
      // Headers stand in front.
      const std::size_t at = random() % std::min<std::size_t>(i % 2 == 0 ? 40 : whole.size(), whole.size());
      const std::size_t bytes = std::min<std::size_t>(std::size_t{1} << random() % 4, whole.size() - at);
      for (std::size_t byte = at; byte < at + bytes; ++byte)
        damaged[byte] = static_cast<char>(i % 3 == 0 ? 0xff : random());
      put(file, damaged);
      read_or_refuse(files, std::filesystem::path(file).filename().string() + " with random bytes from byte " +
                                std::to_string(at) + " on");
    }
    put(file, whole);
  }
}

}  // namespace strata::conformance::data_checks
