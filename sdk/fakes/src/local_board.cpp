#include "local_board.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/maximum.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <vector>

namespace strata::fakes {

namespace {

bool is_pair(Collective collective) {
  return collective == Collective::Send || collective == Collective::Receive;
}

at::Tensor part_of(const at::Tensor& tensor, int rank, int size) {
  const std::int64_t elements = tensor.numel() / size;
  return tensor.view(-1).narrow(0, rank * elements, elements);
}

// Sums in rank order, 16-bit formats in fp32 and rounded once, as the gloo communicator does.
at::Tensor reduce_in_rank_order(const std::vector<at::Tensor>& parts, ReduceOperation reduction) {
  const at::ScalarType dtype = parts.front().scalar_type();
  const bool narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
  at::Tensor result = parts.front().to(narrow ? at::kFloat : dtype, false, true);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const at::Tensor next = parts[i].to(result.scalar_type());
    result = reduction == ReduceOperation::Sum ? result.add(next) : at::maximum(result, next);
  }
  return result.to(dtype);
}

// The source of a member's bytes: its input, or its only tensor.
const at::Tensor& source_of(const Operation& operation) {
  return operation.input.defined() ? operation.input : operation.output;
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.detach().view(-1).view(at::kByte);
}

at::Tensor copy_of(const at::Tensor& tensor) {
  return tensor.defined() ? bytes_of(tensor).clone() : at::Tensor();
}

// [Note: Movement::AtWait] Copies what the call gives, then fills what it will get with ones. An all_gather in place
// gives a range of its output: that range stays, as inputs may be read while they travel.
void hold_back(Call& call, int rank) {
  const Operation& operation = call.operation;
  const Collective collective = operation.collective;
  const bool gives = collective != Collective::Receive && collective != Collective::Barrier;
  const bool gets = collective != Collective::Send && collective != Collective::Barrier &&
                    !(collective == Collective::Broadcast && operation.peer == rank);
  if (gives) call.given = source_of(operation).detach().clone();
  if (gets) bytes_of(operation.output).fill_(0xFF);
  if (collective == Collective::AllGather) operation.input.detach().copy_(call.given);
  call.input_bytes = copy_of(operation.input);
  call.output_bytes = copy_of(operation.output);
}

void check_untouched(const Call& call) {
  const auto check = [&](const at::Tensor& now, const at::Tensor& then, const char* role) {
    if (now.defined() && !at::equal(bytes_of(now), then))
      throw Bug("{}: its {} was written between its start and its wait()", call.text, role);
  };
  check(call.operation.input, call.input_bytes, "input");
  check(call.operation.output, call.output_bytes, call.operation.input.defined() ? "output" : "tensor");
}

std::string terms_of(const Operation& operation) {
  std::string text = is_pair(operation.collective) ? "send/receive" : to_string(operation.collective);
  if (operation.output.defined())
    text += format(" of {} {}", operation.output.numel(), c10::toString(operation.output.scalar_type()));
  if (!is_pair(operation.collective) && operation.peer >= 0) text += format(" with root {}", operation.peer);
  return text + (operation.reduction == ReduceOperation::Max ? " by maximum" : "");
}

at::Tensor given_by(const Meeting& meeting, int rank) {
  const Call& call = meeting.calls.at(rank);
  return call.given.defined() ? call.given : source_of(call.operation);
}

void check(const Meeting& meeting) {
  const Call& first = meeting.calls.begin()->second;
  for (const auto& [rank, call] : meeting.calls)
    if (call.terms != first.terms)
      throw Bug("members call different operations: {} is {}, {} is {}", first.text, first.terms, call.text,
                call.terms);
}

at::Tensor sum_of(const Meeting& meeting) {
  std::vector<at::Tensor> inputs;
  for (const auto& [from, call] : meeting.calls) inputs.push_back(given_by(meeting, from));
  return reduce_in_rank_order(inputs, meeting.calls.begin()->second.operation.reduction);
}

}  // namespace

std::shared_ptr<Meeting> Board::join(int rank, Call call) {
  const std::lock_guard lock(mutex_);
  const c10::NoGradGuard no_grad;  // bytes move: a receiver may have made its buffer a leaf of a graph
  const Operation operation = call.operation;
  call.terms = terms_of(operation);
  std::string pair;
  if (operation.collective == Collective::Send) pair = format("{}>{}", rank, operation.peer);
  if (operation.collective == Collective::Receive) pair = format("{}>{}", operation.peer, rank);
  const Key key{pair, operation.number};
  std::shared_ptr<Meeting>& place = meetings_[key];
  if (place == nullptr) place = std::make_shared<Meeting>();
  const std::shared_ptr<Meeting> meeting = place;
  if (movement_ == Movement::AtWait) hold_back(call, rank);
  meeting->calls.emplace(rank, std::move(call));
  if (meeting->calls.size() < (is_pair(operation.collective) ? 2 : static_cast<std::size_t>(size_))) return meeting;
  meetings_.erase(key);
  try {
    check(*meeting);
    if (operation.collective == Collective::AllReduce || operation.collective == Collective::Reduce)
      meeting->sum = sum_of(*meeting);
    if (movement_ == Movement::AtStart)
      for (const auto& [to, one] : meeting->calls) move(*meeting, to);
  } catch (...) {
    meeting->error = std::current_exception();
  }
  meeting->complete = true;
  changed_.notify_all();
  return meeting;
}

void Board::wait(Meeting& meeting, int rank) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience_, [&] { return meeting.complete || given_up_; });
  if (meeting.error != nullptr) std::rethrow_exception(meeting.error);
  const Call& call = meeting.calls.at(rank);
  if (meeting.complete) {
    if (movement_ == Movement::AtStart) return;
    const c10::NoGradGuard no_grad;
    check_untouched(call);
    return move(meeting, rank);
  }
  std::string missing;
  for (int other = 0; other < size_; ++other)
    if (!meeting.calls.contains(other)) missing += format(" {}", other);
  if (is_pair(call.operation.collective)) missing = format(" {}", call.operation.peer);
  throw EnvironmentError("{}: not started by rank{}{}", call.text, missing,
                         patience_.count() == 0 ? "; in one thread, start it on every rank before waiting" : "");
}

// Brings rank `to` what it gets. An input that another member gets its own bytes over is read before, or not
// overwritten by it.
void Board::move(const Meeting& meeting, int to) const {
  const Operation& operation = meeting.calls.at(to).operation;
  const at::Tensor& output = operation.output;
  const auto each = [&](const auto& work) {
    for (const auto& [from, call] : meeting.calls) work(from);
  };
  switch (operation.collective) {
    case Collective::AllGather:
      each([&](int from) { part_of(output, from, size_).copy_(given_by(meeting, from).view(-1)); });
      return;
    case Collective::AllToAll:
      each([&](int from) { part_of(output, from, size_).copy_(part_of(given_by(meeting, from), to, size_)); });
      return;
    case Collective::ReduceScatter: {
      std::vector<at::Tensor> inputs;
      each([&](int from) { inputs.push_back(part_of(given_by(meeting, from), to, size_)); });
      output.view(-1).copy_(reduce_in_rank_order(inputs, operation.reduction));
      return;
    }
    case Collective::AllReduce:
      output.copy_(meeting.sum);
      return;
    case Collective::Reduce:
      if (to == operation.peer) output.copy_(meeting.sum);
      return;
    case Collective::Broadcast:
      if (to != operation.peer) output.copy_(given_by(meeting, operation.peer));
      return;
    case Collective::Receive:
      output.view(-1).copy_(given_by(meeting, operation.peer).view(-1));
      return;
    case Collective::Send:
    case Collective::Barrier:
      return;
  }
}

}  // namespace strata::fakes
