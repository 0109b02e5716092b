#include <ATen/ops/full.h>

#include <set>
#include <thread>

#include "communicator/checks.hpp"
#include "communicator/rank_processes.hpp"

namespace strata::conformance::communicator_checks {

namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

at::Tensor filled(std::int64_t elements, std::int64_t value) {
  return at::full({elements}, value, at::TensorOptions().dtype(at::kFloat));
}

// Throws Failure unless every element is `value`.
void all_equal(const at::Tensor& tensor, std::int64_t value, const std::string& what) {
  require(tensor.eq(value).all().item<bool>(), what + ": the output differs from what the ranks sent");
}

}  // namespace

void says_where_it_works(Subject& subject) {
  const auto plugin = subject.make<Communicator>();
  const std::string reason = plugin->unavailable();
  require(reason.find('\n') == std::string::npos && (reason.empty() || reason.size() > 10),
          "unavailable() is '" + reason + "'; it must be empty, or one sentence on one line");
  const std::vector<std::string> types = plugin->device_types();
  require(!types.empty(), "device_types() is empty; it must list the device types of the tensors, e.g. cpu or cuda");
  require(std::set<std::string>(types.begin(), types.end()).size() == types.size(),
          "device_types() lists a type twice");
  for (const std::string& type : types) {
    try {
      const at::Device device(type);
      require(!device.has_index() && !device.is_meta(),
              "device_types() holds '" + type + "'; it must list device types without an index");
    } catch (const c10::Error&) {
      throw Failure("device_types() holds '" + type + "', which is no device type of libtorch");
    }
  }
}

void starting_does_not_block(Subject& subject) {
  require_usable(subject);
  on_rank_processes(subject, {.ranks = 2, .timeout = std::chrono::seconds(6)}, [&](const RankProcess& process) {
    constexpr std::int64_t elements = 1 << 20;
    const auto group = process.world();
    group->barrier();
    if (process.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    const std::int64_t begin = now_ms();
    const at::Tensor received = filled(elements, -1), sum = filled(elements, process.rank),
                     copy = filled(elements, process.rank);
    std::vector<Pending> pending;
    pending.push_back(group->send(filled(elements, 7 + process.rank), 1 - process.rank));
    pending.push_back(group->receive(received, 1 - process.rank));
    pending.push_back(group->all_reduce(sum, ReduceOperation::Sum));
    pending.push_back(group->broadcast(copy, 1));
    const std::int64_t taken = now_ms() - begin;
    require(process.rank == 1 || taken < 1000,
            "starting a send, a receive, an all_reduce and a broadcast of 4 MiB took " + std::to_string(taken) +
                " ms while the other rank was 2 s late; only wait() may block the host");
    for (Pending& each : pending) each.wait();
    all_equal(received, 8 - process.rank, "receive");
    all_equal(sum, 1, "all_reduce");
    all_equal(copy, 1, "broadcast");
  });
}

void barrier_waits(Subject& subject) {
  require_usable(subject);
  constexpr int ranks = 3, rounds = 4;
  const Shared came;
  on_rank_processes(subject, {.ranks = ranks}, [&](const RankProcess& process) {
    const auto group = process.world();
    for (int round = 0; round < rounds; ++round) {
      if (process.rank == round % ranks) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      came[round * ranks + process.rank].store(1);
      group->barrier();
      for (int other = 0; other < ranks; ++other)
        require(came[round * ranks + other].load() == 1, "rank " + std::to_string(process.rank) +
                                                             " left a barrier before rank " + std::to_string(other) +
                                                             " entered it");
    }
  });
}

}  // namespace strata::conformance::communicator_checks
