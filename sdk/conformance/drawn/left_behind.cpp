#include "conformance/drawn/left_behind.hpp"

#include <strata/format.hpp>

#include <stdlib.h>

#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "conformance/runner/case.hpp"
#include "conformance/runner/process_facts.hpp"
#include "data/temporary_folder.hpp"

namespace strata::conformance {

namespace {

constexpr int first_runs = 4, runs = 12, rounds = 5;
constexpr std::int64_t bytes_a_run = 16 << 10;      // of malloc: what a leak of less hides in
constexpr std::int64_t resident_a_run = 512 << 10;  // the same of pages that malloc does not count

// Threads take a moment to end.
int threads_in_the_end(int wanted) {
  for (int tries = 0; tries < 100 && threads_of_this_process() > wanted; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return threads_of_this_process();
}

}  // namespace

WorkingFolder::WorkingFolder() : folder_(data::make_temporary_folder("strata-worlds")) {}

WorkingFolder::~WorkingFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void WorkingFolder::check() const {
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    throw Failure("it wrote the file " + entry.path().filename().string() +
                  " into the working folder, which is the user's");
}

void require_nothing_left(const std::function<void()>& run) {
  const int threads = threads_of_this_process();
  for (int i = 0; i < first_runs; ++i) run();  // what is made once and kept
  // A leak is there in every round; what threads keep of malloc's memory once they have ended is in some.
  std::string found = "at first";
  for (int round = 0; round < rounds && !found.empty(); ++round) {
    const int running = threads_in_the_end(threads), open = open_files_of_this_process();
    const std::optional<std::int64_t> allocated = allocated_bytes();
    const std::int64_t resident = resident_bytes();
    for (int i = 0; i < runs; ++i) run();
    const int more_threads = threads_in_the_end(running) - running, more_files = open_files_of_this_process() - open;
    const std::int64_t more = allocated ? *allocated_bytes() - *allocated : 0, pages = resident_bytes() - resident;
    found = more_threads > 0                 ? std::to_string(more_threads) + " threads running"
            : more_files > 0                 ? std::to_string(more_files) + " files open"
            : more >= runs * bytes_a_run     ? std::to_string(more) + " bytes allocated"
            : pages >= runs * resident_a_run ? std::to_string(pages) + " bytes more in memory"
                                             : "";
  }
  require(found.empty(), format("{} runs, each with instances of its own, left {}", runs, found));
}

}  // namespace strata::conformance
