#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <vector>

#include "unit/communicator/scenario.hpp"

using strata::CheckedGroup;
using strata::Pending;
using strata::ReduceOperation;

namespace {

// What `rank` brings to a test: values whose sums round differently in every order.
at::Tensor input_of(int rank, std::int64_t elements, at::ScalarType dtype) {
  const at::Tensor index = at::arange(elements, at::kDouble);
  const at::Tensor values = index.mul(0.7).add(rank * 1.3).sin().mul(1.0 + 1000.0 * rank * rank);
  return values.to(dtype);
}

// In rank order; 16-bit formats in fp32, rounded once.
at::Tensor reduced(const std::vector<at::Tensor>& inputs, ReduceOperation reduction) {
  const at::ScalarType dtype = inputs.front().scalar_type();
  const at::ScalarType wide = dtype == at::kBFloat16 || dtype == at::kHalf ? at::kFloat : dtype;
  at::Tensor result = inputs.front().to(wide);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const at::Tensor next = inputs[rank].to(wide);
    result = reduction == ReduceOperation::Sum ? result.add(next) : at::maximum(result, next);
  }
  return result.to(dtype);
}

struct Case {
  CheckedGroup& group;
  std::int64_t elements;  // of a part
  at::ScalarType dtype;

  int rank() const { return group.rank(); }
  int size() const { return group.size(); }
  std::vector<at::Tensor> inputs(std::int64_t count) const {
    std::vector<at::Tensor> all;
    for (int member = 0; member < size(); ++member) all.push_back(input_of(member, count, dtype));
    return all;
  }
  at::Tensor part(const at::Tensor& whole, int member) const { return whole.narrow(0, member * elements, elements); }
  at::Tensor empty(std::int64_t count) const { return at::full({count}, 77, at::TensorOptions().dtype(dtype)); }
  void equal(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) const {
    expect(found.equal(wanted), what + " of " + std::to_string(elements) + " " + c10::toString(dtype) + " on " +
                                    std::to_string(size()) + " ranks equals the naive computation");
  }

  void gather() const {
    const at::Tensor wanted = at::cat(inputs(elements));
    const at::Tensor output = empty(size() * elements);
    group.all_gather(output, input_of(rank(), elements, dtype)).wait();
    equal(output, wanted, "all_gather");
    const at::Tensor place = empty(size() * elements);
    part(place, rank()).copy_(input_of(rank(), elements, dtype));
    group.all_gather(place, part(place, rank())).wait();
    equal(place, wanted, "all_gather in place");
  }

  void exchange() const {
    const std::vector<at::Tensor> all = inputs(size() * elements);
    const at::Tensor output = empty(size() * elements);
    group.all_to_all(output, all[static_cast<std::size_t>(rank())]).wait();
    for (int from = 0; from < size(); ++from)
      equal(part(output, from), part(all[static_cast<std::size_t>(from)], rank()), "all_to_all");
  }

  void broadcast() const {
    for (int root = 0; root < size(); ++root) {
      const at::Tensor tensor = rank() == root ? input_of(root, elements, dtype) : empty(elements);
      group.broadcast(tensor, root).wait();
      equal(tensor, input_of(root, elements, dtype), "broadcast from rank " + std::to_string(root));
    }
  }

  // Everyone sends to both neighbours before anyone receives.
  void pairs() const {
    if (size() == 1) return;
    const int next = (rank() + 1) % size();
    const int last = (rank() + size() - 1) % size();
    const at::Tensor mine = input_of(rank(), elements, dtype);
    const at::Tensor twice = mine.add(mine);
    Pending forward = group.send(mine, next);
    Pending second = group.send(twice, next);
    Pending backward = group.send(mine, last);
    const std::vector<at::Tensor> received{empty(elements), empty(elements), empty(elements)};
    Pending from_last = group.receive(received[0], last);
    Pending again = group.receive(received[1], last);
    Pending from_next = group.receive(received[2], next);
    for (Pending* pending : {&from_next, &again, &from_last, &backward, &second, &forward}) pending->wait();
    const at::Tensor theirs = input_of(last, elements, dtype);
    // On 2 ranks both neighbours are one: its three messages arrive in the order in which they were sent.
    equal(received[0], theirs, "receive");
    equal(received[1], theirs.add(theirs), "second receive");
    equal(received[2], input_of(next, elements, dtype), "receive from the next rank");
  }

  void reduce(ReduceOperation reduction) const {
    const at::Tensor wanted = reduced(inputs(elements), reduction);
    const at::Tensor tensor = input_of(rank(), elements, dtype);
    group.all_reduce(tensor, reduction).wait();
    equal(tensor, wanted, "all_reduce");
    for (int root = 0; root < size(); ++root) {
      const at::Tensor local = input_of(rank(), elements, dtype);
      group.reduce(local, root, reduction).wait();
      if (rank() == root) equal(local, wanted, "reduce");
    }
    const at::Tensor whole = reduced(inputs(size() * elements), reduction);
    const at::Tensor input = input_of(rank(), size() * elements, dtype);
    const at::Tensor output = empty(elements);
    group.reduce_scatter(output, input, reduction).wait();
    equal(output, part(whole, rank()), "reduce_scatter");
    group.reduce_scatter(part(input, rank()), input, reduction).wait();
    equal(part(input, rank()), part(whole, rank()), "reduce_scatter in place");
  }
};

}  // namespace

void check_collectives(CheckedGroup& group) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt})
    for (const std::int64_t elements : {0, 1, 1001, 70001}) {
      if (elements > 1001 && dtype != at::kFloat && dtype != at::kBFloat16) continue;
      const Case test{group, elements, dtype};
      test.gather();
      test.exchange();
      test.broadcast();
      test.pairs();
      test.reduce(ReduceOperation::Sum);
      test.reduce(ReduceOperation::Max);
    }
  // formats that are moved, not summed
  for (const at::ScalarType dtype : {at::kByte, at::kFloat8_e4m3fn}) {
    const at::Tensor input = at::full({5}, group.rank() + 1, at::kByte).view(dtype);
    const at::Tensor output = at::zeros({5 * group.size()}, at::kByte).view(dtype);
    group.all_gather(output, input).wait();
    for (int rank = 0; rank < group.size(); ++rank)
      expect(output.view(at::kByte).narrow(0, rank * 5, 5).eq(rank + 1).all().item<bool>(),
             "all_gather of single bytes");
  }
  // a NaN anywhere is not lost in a maximum
  const at::Tensor flags = at::zeros({4});
  if (group.rank() == group.size() - 1) flags.narrow(0, 2, 1).fill_(std::numeric_limits<float>::quiet_NaN());
  group.all_reduce(flags, ReduceOperation::Max).wait();
  expect(flags.isnan().sum().item<std::int64_t>() == 1, "a NaN survives a maximum");
}

void check_equal_bits(CheckedGroup& group) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const std::int64_t part = 300'007;
    const at::Tensor input = input_of(group.rank(), part * group.size(), dtype);
    const at::Tensor all_reduced = input.clone();
    group.all_reduce(all_reduced, ReduceOperation::Sum).wait();
    const at::Tensor reduced_to_first = input.clone();
    group.reduce(reduced_to_first, 0, ReduceOperation::Sum).wait();
    if (group.rank() == 0) expect(reduced_to_first.equal(all_reduced), "reduce gives the bits of all_reduce");
    const at::Tensor scattered = at::empty({part}, input.options());
    group.reduce_scatter(scattered, input, ReduceOperation::Sum).wait();
    const at::Tensor gathered = at::empty(input.sizes(), input.options());
    group.all_gather(gathered, scattered).wait();
    expect(gathered.equal(all_reduced), "reduce_scatter and all_gather give the bits of all_reduce");
    const at::Tensor first = all_reduced.clone();
    group.broadcast(first, 0).wait();
    expect(first.equal(all_reduced), "all ranks hold equal bits");
  }
}

namespace {

// A message whose elements all differ from each other and from those of messages with other tags, so that one that is
// stale, swapped, shifted or written in part is not taken for it. Whole numbers, exact in fp32.
at::Tensor message(std::int64_t tag, std::int64_t elements) {
  return at::arange(elements, at::kFloat).add(static_cast<double>(tag * elements));
}

}  // namespace

void check_many_in_flight(CheckedGroup& group) {
  const int rank = group.rank();
  const int size = group.size();
  constexpr int rounds = 20;
  const std::int64_t elements = 20011;
  std::vector<at::Tensor> sums;
  std::vector<at::Tensor> parts;
  std::vector<at::Tensor> received;
  std::vector<Pending> pending;
  for (int round = 0; round < rounds; ++round) {
    sums.push_back(message(rank + round, elements));
    pending.push_back(group.all_reduce(sums.back(), ReduceOperation::Sum));
    parts.push_back(at::full({elements * size}, -1, at::kFloat));
    pending.push_back(group.all_gather(parts.back(), message(100 * rank + round, elements)));
    received.push_back(at::zeros({elements}));
    if (size > 1) {
      pending.push_back(group.receive(received.back(), (rank + 1) % size));
      pending.push_back(group.send(message(100 * rank + round, elements), (rank + size - 1) % size));
    }
  }
  // One longer than what a communicator buffers.
  const std::int64_t many = 400'009;
  const at::Tensor long_message = at::zeros({many});
  if (size > 1) {
    pending.push_back(group.receive(long_message, (rank + 1) % size));
    pending.push_back(group.send(message(rank, many), (rank + size - 1) % size));
  }
  for (std::size_t i = pending.size(); i-- > 0;) pending[i].wait();
  if (size > 1) expect(long_message.equal(message((rank + 1) % size, many)), "a long message");
  for (int round = 0; round < rounds; ++round) {
    const auto index = static_cast<std::size_t>(round);
    const at::Tensor sum = at::arange(elements, at::kFloat)
                               .mul(size)
                               .add(static_cast<double>(elements * (size * (size - 1) / 2 + size * round)));
    expect(sums[index].equal(sum), "the sum of a round in flight");
    for (int from = 0; from < size; ++from)
      expect(parts[index].narrow(0, from * elements, elements).equal(message(100 * from + round, elements)),
             "the parts of a round");
    if (size > 1)
      expect(received[index].equal(message(100 * ((rank + 1) % size) + round, elements)), "the message of a round");
  }
}
