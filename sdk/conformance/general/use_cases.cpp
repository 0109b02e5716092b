// The case on what a plugin changes of what everything in its process shares.
#include <filesystem>

#include "general/general_cases.hpp"
#include "general/rank_threads.hpp"
#include "general/uses.hpp"
#include "runner/process_facts.hpp"

namespace strata::conformance {

namespace {

constexpr int first_steps = 10, steps = 50;
constexpr std::int64_t bytes_a_step = 16 << 10;      // of malloc: what a leak of less hides in
constexpr std::int64_t resident_a_step = 512 << 10;  // the same of pages that malloc does not count
constexpr std::chrono::seconds patience_of_steps{50}, patience_of_shutdown{10};

void require_same(const Facts& before, const Facts& after, const std::string& who) {
  for (const auto& [name, value] : before)
    require(after.at(name) == value,
            who + " changed " + name + " from " + value + " to " + after.at(name) +
                "; everything else in the process shares it, so put it back before you return");
}

// An empty working folder, so that a file with a relative path shows.
class Folder {
 public:
  Folder() : before_(std::filesystem::current_path()) {
    std::string name = (std::filesystem::temp_directory_path() / "strata_after_use_XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "the kit cannot make a folder at " + name + "; set TMPDIR");
    std::filesystem::current_path(folder_ = name);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
    std::filesystem::remove_all(folder_, ignored);
  }
  void check() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      throw Failure("it wrote the file " + entry.path().filename().string() +
                    " into the working folder, which is the user's");
  }

 private:
  std::filesystem::path before_, folder_;
};

void use_changes_nothing_else(Subject& subject) {
  const std::string name = full_name(subject.manifest());
  const Use use = use_of(subject);
  const Folder folder;
  RankThreads threads(use.ranks);
  const auto go = [&](int times) {
    threads.run(name + ": a step", patience_of_steps, [&](int rank) {
      const Facts before = facts_of_this_thread();
      for (int i = 0; i < times; ++i) use.step(rank);
      require_same(before, facts_of_this_thread(), "a step");
    });
  };
  const Facts at_first = facts_of_this_process();
  threads.run(name + ": its constructor", patience_of_steps, use.begin);
  go(first_steps);  // what is made once and kept
  const Facts before = facts_of_this_process();
  const int open = open_files_of_this_process(), running = threads_of_this_process();
  const std::optional<std::int64_t> allocated = allocated_bytes();
  const std::int64_t resident = resident_bytes();
  go(steps);
  const std::string after = std::to_string(steps) + " steps ";
  require_same(before, facts_of_this_process(), after);
  folder.check();
  require(open_files_of_this_process() <= open,
          after + "left " + std::to_string(open_files_of_this_process() - open) + " files open");
  require(threads_of_this_process() <= running,
          after + "left " + std::to_string(threads_of_this_process() - running) + " threads running");
  const std::int64_t more = allocated ? *allocated_bytes() - *allocated : 0;
  require(more < steps * bytes_a_step, after + "left " + std::to_string(more) + " bytes allocated");
  const std::int64_t pages = resident_bytes() - resident;
  require(pages < steps * resident_a_step, after + "left " + std::to_string(pages) + " bytes more in memory");
  threads.run(name + ": shutdown()", patience_of_shutdown, use.end);
  require_same(at_first, facts_of_this_process(), "a run from the constructor to shutdown()");
}

}  // namespace

std::vector<Case> use_cases() {
  return {
      {"general.after_use",
       "Steps leave no memory, thread, file, signal handler, rounding mode or other setting of the process behind, and "
       "shutdown() after them returns within seconds.",
       use_changes_nothing_else},
  };
}

}  // namespace strata::conformance
