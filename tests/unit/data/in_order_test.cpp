#include "tools/data/in_order.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>

#include "catch.hpp"

using strata::cli::InOrder;

TEST_CASE("outputs come in the order of their inputs") {
  for (const int threads : {1, 2, 5}) {
    std::atomic<int> made = 0;
    InOrder<int, int> work(threads, [&] {
      ++made;
      return [](int input) {
        std::this_thread::sleep_for(std::chrono::microseconds(input % 7 == 0 ? 900 : 10));
        return 2 * input;
      };
    });
    CHECK(made == threads);
    int next = 0, taken = 0;
    while (taken < 200) {
      while (next < 200 && !work.full()) work.put(next++);
      CHECK(work.take() == 2 * taken++);
    }
    CHECK(work.empty());
  }
}

TEST_CASE("an error comes in its order too, and later outputs are dropped") {
  for (const int threads : {1, 3}) {
    InOrder<std::string, int> work(threads, [] {
      return [](const std::string& input) { return input.empty() ? throw std::runtime_error("empty") : 1; };
    });
    const bool several = threads > 1;
    work.put("a");
    CHECK(work.full() == !several);
    if (several) work.put("");
    CHECK(work.take() == 1);
    if (!several) work.put("");
    CHECK_THROWS_WITH(work.take(), "empty");
    work.put("never taken");
  }
}
