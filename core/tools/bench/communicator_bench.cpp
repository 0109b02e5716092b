// Times a communicator's collectives between processes. Floor: a copy of the bytes that each rank must send in the best
// algorithm.
#include <ATen/ops/zeros.h>

#include "text/size.hpp"
#include "tools/bench/kinds.hpp"
#include "tools/bench/streams.hpp"

namespace strata::bench {

namespace {

// Send: to the next rank, and receives from the one before.
void run(Collective collective, Group& ranks, const at::Tensor& whole, const at::Tensor& part,
         const at::Tensor& other) {
  if (collective != Collective::Send) return start(collective, ranks, whole, part, other).wait();
  Pending received = ranks.receive(other, (ranks.rank() + ranks.size() - 1) % ranks.size());
  Pending sent = ranks.send(whole, (ranks.rank() + 1) % ranks.size());
  received.wait();
  sent.wait();
}

}  // namespace

std::vector<Row> bench_communicator(Group& ranks, const Sizes& sizes, const InterleavedTimer& timer) {
  std::vector<Row> rows;
  for (const std::int64_t size : sizes) {
    const std::int64_t elements = std::max<std::int64_t>(size / 4 / ranks.size(), 1);
    // Zeros, so that sums do not grow.
    const at::Tensor whole = at::zeros({elements * ranks.size()}), other = at::zeros({elements * ranks.size()});
    const at::Tensor part = at::zeros({elements});
    const auto bytes = static_cast<std::int64_t>(whole.nbytes());
    for (const Collective collective :
         {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather, Collective::Broadcast,
          Collective::Reduce, Collective::AllToAll, Collective::Send}) {
      const std::int64_t sent = logical_bytes(collective, bytes, ranks.size());
      const Streams copy = Streams::of_copy(sent);
      rows.push_back(timer.time(
          {.name = collective == Collective::Send ? "send and receive" : to_string(collective),
           .size = text::format_bytes(bytes),
           .floor = "a copy of the " + text::format_bytes(sent) + " a rank must send",
           .work = static_cast<double>(sent),
           .work_unit = "B"},
          [&] { run(collective, ranks, whole, part, other); }, copy.passes()));
    }
  }
  return rows;
}

}  // namespace strata::bench
