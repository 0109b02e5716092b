#include <ATen/ops/zeros.h>
#include <signal.h>
#include <unistd.h>
#include <strata/error.hpp>

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

// The text of the EnvironmentError that `act` throws. Throws Failure if `act` returns, throws another exception or
// takes longer than `limit`.
std::string error_within(double limit, const std::string& what, const std::function<void()>& act) {
  const Clock::time_point begin = Clock::now();
  std::string text;
  try {
    act();
  } catch (const EnvironmentError& error) {
    text = error.what();
  } catch (const std::exception& error) {
    throw Failure(what + " must throw an EnvironmentError; it threw " + error.what());
  }
  require(!text.empty(), what + " returned without an error");
  require(seconds_since(begin) <= limit, what + " failed after " + text_of(seconds_since(begin)) +
                                             "; it must fail within " + text_of(limit) +
                                             " (with room for a busy machine). The error: " + text);
  return text;
}

// A communicator that never connects, as if its rank had died.
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

namespace {
struct Tried {
  std::string name;
  std::function<Pending(Group&, const at::Tensor&)> start;
};
const std::vector<Tried>& tried() {
  static const std::vector<Tried> operations{
      {"all_reduce",
       [](Group& group, const at::Tensor& tensor) { return group.all_reduce(tensor, ReduceOperation::Sum); }},
      {"broadcast", [](Group& group, const at::Tensor& tensor) { return group.broadcast(tensor, 1); }},
      {"a message from rank 1", [](Group& group, const at::Tensor& tensor) {
         return group.rank() == 1 ? group.send(tensor, 0) : group.receive(tensor, 1);
       }}};
  return operations;
}
}  // namespace

void waits_for_a_slow_peer(Subject& subject) {
  require_usable(subject);
  on_rank_processes(subject, {.ranks = 2, .timeout = std::chrono::seconds(1), .limit = std::chrono::seconds(40)},
                    [&](const RankProcess& process) {
                      const auto group = process.world();
                      for (const Tried& one : tried()) {
                        const at::Tensor tensor = at::zeros({1000});
                        if (process.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
                        try {
                          one.start(*group, tensor).wait();
                        } catch (const EnvironmentError& error) {
                          throw Failure(one.name +
                                        " with a rank that computed for 2.5 s failed after the timeout of 1 s: " +
                                        error.what() + "; waits must have no timeout: the engine calls abort()");
                        }
                      }
                    });
}

void abort_ends_waits(Subject& subject) {
  require_usable(subject);
  const Shared stopped;
  on_rank_processes(subject, {.ranks = 2, .limit = std::chrono::seconds(25), .killed = 1},
                    [&](const RankProcess& process) {
                      std::vector<std::unique_ptr<CheckedGroup>> groups;
                      for (const Tried& one : tried()) groups.push_back(process.group("for " + one.name, {0, 1}));
                      for (const auto& group : groups) group->barrier();
                      if (process.rank == 1) {
                        stopped[0].store(getpid());
                        raise(SIGSTOP);
                        return;
                      }
                      std::vector<at::Tensor> tensors;
                      std::vector<Pending> pending;
                      for (std::size_t i = 0; i < tried().size(); ++i) {
                        tensors.push_back(at::zeros({1000}));
                        pending.push_back(tried()[i].start(*groups[i], tensors.back()));
                      }
                      // The engine takes three seconds to call a rank stopped, and calls abort() for all groups then.
                      for (std::size_t i = 0; i < tried().size(); ++i)
                        error_within(i == 0 ? 10.0 : 2.0, tried()[i].name + " with a stopped rank, after abort(),",
                                     [&] { pending[i].wait(); });
                      kill(static_cast<pid_t>(stopped[0].load()), SIGKILL);
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
    error_within(4.0, "connect() with a missing rank and a timeout of 1 s", [&] { process.world(); });
    done[0].store(1);
  });
}

void lost_peer(Subject& subject) {
  require_usable(subject);
  constexpr int ranks = 3;
  on_rank_processes(subject, {.ranks = ranks, .limit = std::chrono::seconds(20), .killed = ranks - 1},
                    [&](const RankProcess& process) {
                      const auto group = process.world();
                      const at::Tensor tensor = at::zeros({1 << 16});
                      group->all_reduce(tensor, ReduceOperation::Sum).wait();
                      if (process.rank == ranks - 1) raise(SIGKILL);
                      error_within(6.0, "an all_reduce with a killed rank",
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
                      // The destructor of a Pending waits for its operation. These are leaked, as in a run that ends by
                      // an error.
                      auto* const kept = new std::vector<Pending>;
                      kept->push_back(group->all_reduce(sum, ReduceOperation::Sum));
                      kept->push_back(group->receive(received, 1));
                      std::this_thread::sleep_for(std::chrono::milliseconds(100));
                      const Clock::time_point begin = Clock::now();
                      group.reset();
                      const double taken = seconds_since(begin);
                      done[0].store(1);
                      require(taken < 3.0, "shutdown() during an all_reduce and a receive took " + text_of(taken) +
                                               " while the other rank was absent; it must cancel "
                                               "pending operations and not wait for peers");
                    });
}

}  // namespace strata::conformance::communicator_checks
