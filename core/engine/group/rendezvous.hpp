// Meetings and comparisons of ranks through keys of the run's store. The number of calls grows linearly with the
// number of ranks: a counter holds the number of arrivals, and missing ranks are searched for only in a long
// wait.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace c10d {
class Store;
}

namespace strata::group {

class Rendezvous {
 public:
  // Callbacks. `waits(place, missing)` is called in a long wait, whenever the missing ranks change. `look()` is called
  // between two checks, and may throw to end the wait. `differ(cause)` is called when ranks differ, and returns the
  // cause that all of them report.
  struct Hooks {
    std::function<void(const std::string& place, const std::vector<int>& missing)> waits;
    std::function<void()> look;
    std::function<std::string(const std::string& cause)> differ;
  };
  Rendezvous(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Hooks hooks)
      : store_(std::move(store)), rank_(rank), size_(size), hooks_(std::move(hooks)) {}

  // Waits until all members have reached `place`. Use each place once. [collective over `members`]
  void meet(const std::string& place, const std::vector<int>& members);
  // Compares `text`, whose parts end with semicolons, with rank 0's. If it differs, throws EnvironmentError with the
  // first different part and the remedy, on rank 0 and on the ranks that differ. `what` is used once. [collective over
  // the run]
  void agree(const std::string& what, const std::string& text, const std::string& remedy);
  // Returns how this rank's text differs from another rank's: "rank 0 has A, rank 1 has B"; empty if equal.
  using FindDifference = std::function<std::string(int other_rank, const std::string& other)>;
  // Compares a text whose differences `find_difference` describes, as agree() does. [collective over the run]
  void agree(const std::string& what, const std::string& text, const std::string& remedy,
             const FindDifference& find_difference);

 private:
  using KeyOf = std::function<std::string(int rank)>;
  void arrive(const std::string& base, std::size_t members);
  void wait(const std::string& place, const std::function<bool()>& come, std::vector<int> members, const KeyOf& key_of,
            const std::function<void(int came)>& took = {});
  void compare(const std::string& what, const std::string& others, int other, const std::string& remedy,
               const FindDifference& find_difference);

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  Hooks hooks_;
};

}  // namespace strata::group
