#include <ATen/ops/zeros.h>
#include <signal.h>
#include <strata/error.hpp>

#include <regex>
#include <thread>

#include "communicator/checks.hpp"
#include "communicator/rank_processes.hpp"

namespace strata::conformance::communicator_checks {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string text_of(double seconds) {
  return std::to_string(seconds).substr(0, 4) + " s";
}

// What `act` throws; Failure where it returns, throws something else than EnvironmentError or takes longer than
// `limit`.
std::string error_within(double limit, const std::string& what, const std::function<void()>& act) {
  const Clock::time_point begin = Clock::now();
  std::string text;
  try {
    act();
  } catch (const EnvironmentError& error) {
    text = error.what();
  } catch (const std::exception& error) {
    throw Failure(what + " threw something else than EnvironmentError: " + error.what());
  }
  require(!text.empty(), what + " returned without an error");
  require(seconds_since(begin) <= limit, what + " ended after " + text_of(seconds_since(begin)) + " with '" + text +
                                             "'; within " + text_of(limit) +
                                             " it must have, the timeout and what a busy machine adds");
  return text;
}

// A communicator whose rank is gone when the others connect.
class Absent final : public Communicator {
 public:
  explicit Absent(const Shared& done) : done_(done) {}
  std::vector<std::string> device_types() const override { return {"cpu"}; }
  std::string unavailable() const override { return ""; }
  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                            const GroupSetup& /*setup*/) override {
    done_.wait_for(0);
    throw EnvironmentError("this rank does not connect");
  }

 private:
  const Shared& done_;
};

}  // namespace

void deadline(Subject& subject) {
  require_usable(subject);
  const Shared done;
  on_rank_processes(
      subject, {.ranks = 2, .timeout = std::chrono::seconds(1), .limit = std::chrono::seconds(14)},
      [&](const RankProcess& process) {
        struct Tried {
          std::string name;
          std::function<Pending(Group&, const at::Tensor&)> start;
        };
        const std::vector<Tried> tried{
            {"all_reduce",
             [](Group& group, const at::Tensor& tensor) { return group.all_reduce(tensor, ReduceOperation::Sum); }},
            {"broadcast", [](Group& group, const at::Tensor& tensor) { return group.broadcast(tensor, 1); }},
            {"receive", [](Group& group, const at::Tensor& tensor) { return group.receive(tensor, 1); }}};
        std::vector<std::unique_ptr<CheckedGroup>> groups;
        for (const Tried& one : tried) groups.push_back(process.group("for " + one.name, {0, 1}));
        for (const auto& group : groups) group->barrier();
        if (process.rank == 1) return done.wait_for(0);
        for (std::size_t i = 0; i < tried.size(); ++i) {
          const at::Tensor tensor = at::zeros({1000});
          const std::string what = tried[i].name + " with a rank that does not call it, the timeout being 1 s,";
          // The engine's own deadline, for a backend that has none, comes 2 s behind the timeout.
          const std::string text = error_within(2.8, what, [&] { tried[i].start(*groups[i], tensor).wait(); });
          const std::string own = text.substr(text.find("): ") == std::string::npos ? 0 : text.find("): ") + 3);
          require(std::regex_search(own, std::regex("\\b(rank|peer) 1\\b")),
                  what + " ended with '" + text + "'; the backend's exception names the rank it waited for: rank 1");
        }
        done[0].store(1);
      });
}

void connect_has_a_deadline(Subject& subject) {
  require_usable(subject);
  const Shared done;
  Launch launch{.ranks = 2, .timeout = std::chrono::seconds(1), .limit = std::chrono::seconds(12)};
  launch.in_place_of_plugin = [&](int rank) -> std::unique_ptr<Communicator> {
    return rank == 1 ? std::make_unique<Absent>(done) : nullptr;
  };
  on_rank_processes(subject, launch, [&](const RankProcess& process) {
    if (process.rank == 1) {
      try {
        process.world();
      } catch (const EnvironmentError&) {
      }
      return;
    }
    error_within(4.0, "connect() to a rank that does not come, the timeout being 1 s,", [&] { process.world(); });
    done[0].store(1);
  });
}

void lost_peer(Subject& subject) {
  require_usable(subject);
  constexpr int ranks = 3;
  on_rank_processes(
      subject,
      {.ranks = ranks, .timeout = std::chrono::seconds(3), .limit = std::chrono::seconds(20), .killed = ranks - 1},
      [&](const RankProcess& process) {
        const auto group = process.world();
        const at::Tensor tensor = at::zeros({1 << 16});
        group->all_reduce(tensor, ReduceOperation::Sum).wait();
        if (process.rank == ranks - 1) raise(SIGKILL);
        error_within(6.0, "an all_reduce with a rank that was killed, the timeout being 3 s,",
                     [&] { group->all_reduce(tensor, ReduceOperation::Sum).wait(); });
      });
}

void shutdown_does_not_wait(Subject& subject) {
  require_usable(subject);
  const Shared done;
  on_rank_processes(subject, {.ranks = 2, .timeout = std::chrono::seconds(8), .limit = std::chrono::seconds(30)},
                    [&](const RankProcess& process) {
                      auto group = process.world();
                      group->barrier();
                      if (process.rank == 1) return done.wait_for(0);
                      const at::Tensor sum = at::zeros({100'000}), received = at::zeros({100'000});
                      // A Pending that goes waits for its operation; as in a run that ends by an error, these never do.
                      auto* const kept = new std::vector<Pending>;
                      kept->push_back(group->all_reduce(sum, ReduceOperation::Sum));
                      kept->push_back(group->receive(received, 1));
                      std::this_thread::sleep_for(std::chrono::milliseconds(100));
                      const Clock::time_point begin = Clock::now();
                      group.reset();
                      const double taken = seconds_since(begin);
                      done[0].store(1);
                      require(taken < 3.0, "shutdown() with an all_reduce and a receive under way took " +
                                               text_of(taken) +
                                               " while the other rank did not come, the timeout being 8 s; it ends "
                                               "what is under way and does not wait for peers");
                    });
}

}  // namespace strata::conformance::communicator_checks
