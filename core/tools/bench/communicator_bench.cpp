// Times a communicator's collectives between processes. Floor: a copy of the bytes that each rank must send in the best
// algorithm.
#include <ATen/ops/zeros.h>

#include "text/size.hpp"
#include "tools/bench/kinds.hpp"
#include "tools/bench/streams.hpp"

namespace strata::bench {

namespace {

struct Call {
  Collective collective;
  std::string name;
  std::function<void()> run;
};

// Sums, as in training, of zeros, so that values do not grow.
std::vector<Call> calls_on(Group& ranks, const at::Tensor& whole, const at::Tensor& other, const at::Tensor& part) {
  const int next = (ranks.rank() + 1) % ranks.size(), previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
  return {
      {Collective::AllReduce, "all_reduce", [&ranks, whole] { ranks.all_reduce(whole, ReduceOperation::Sum).wait(); }},
      {Collective::ReduceScatter, "reduce_scatter",
       [&ranks, whole, part] { ranks.reduce_scatter(part, whole, ReduceOperation::Sum).wait(); }},
      {Collective::AllGather, "all_gather", [&ranks, whole, part] { ranks.all_gather(whole, part).wait(); }},
      {Collective::Broadcast, "broadcast", [&ranks, whole] { ranks.broadcast(whole, 0).wait(); }},
      {Collective::Reduce, "reduce", [&ranks, whole] { ranks.reduce(whole, 0, ReduceOperation::Sum).wait(); }},
      {Collective::AllToAll, "all_to_all", [&ranks, whole, other] { ranks.all_to_all(other, whole).wait(); }},
      {Collective::Send, "send and receive",
       [&ranks, whole, other, next, previous] {
         Pending received = ranks.receive(other, previous);
         Pending sent = ranks.send(whole, next);
         received.wait();
         sent.wait();
       }},
  };
}

}  // namespace

std::vector<Row> bench_communicator(Group& ranks, const Sizes& sizes, const InterleavedTimer& timer) {
  std::vector<Row> rows;
  for (const std::int64_t size : sizes) {
    const std::int64_t elements = std::max<std::int64_t>(size / 4 / ranks.size(), 1);
    const at::Tensor whole = at::zeros({elements * ranks.size()}), other = at::zeros({elements * ranks.size()});
    const at::Tensor part = at::zeros({elements});
    const auto bytes = static_cast<std::int64_t>(whole.nbytes());
    for (const Call& call : calls_on(ranks, whole, other, part)) {
      const std::int64_t sent = logical_bytes(call.collective, bytes, ranks.size());
      const Streams copy = Streams::of_copy(sent);
      Row row;
      row.name = call.name;
      row.size = config::format_bytes(bytes);
      row.floor = "a copy of the " + config::format_bytes(sent) + " a rank must send";
      row.work = static_cast<double>(sent);
      row.work_unit = "B";
      rows.push_back(timer.time(std::move(row), call.run, copy.passes()));
    }
  }
  return rows;
}

}  // namespace strata::bench
