#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>
#include <strata/fakes/local_group.hpp>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

namespace strata::fakes {

namespace {

// One rank's call, as the others see it.
struct Call {
  Operation operation;
  std::string text;   // describes it
  std::string terms;  // what must be equal on all members
};

// Calls that belong together: the n-th collective of the group, or the n-th send of a pair and its receive.
struct Meeting {
  std::map<int, Call> calls;  // by rank
  bool moved = false;
  std::exception_ptr error;
};

bool is_pair(Collective collective) {
  return collective == Collective::Send || collective == Collective::Receive;
}

std::string terms_of(const Operation& operation) {
  std::string text = is_pair(operation.collective) ? "send/receive" : to_string(operation.collective);
  if (operation.output.defined())
    text += " of " + std::to_string(operation.output.numel()) + " " + c10::toString(operation.output.scalar_type());
  if (!is_pair(operation.collective) && operation.peer >= 0) text += " with root " + std::to_string(operation.peer);
  return text + (operation.reduction == ReduceOperation::Max ? " by maximum" : "");
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

class Board {
 public:
  Board(int size, std::chrono::milliseconds patience) : size_(size), patience_(patience) {}

  std::shared_ptr<Meeting> join(int rank, Call call);
  void wait(Meeting& meeting, int rank);
  // Ends all waits, present and later.
  void give_up() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
  }

 private:
  using Key = std::pair<std::string, std::int64_t>;
  void move(const Meeting& meeting);
  void check(const Meeting& meeting) const;
  static std::size_t wanted(const Operation& operation, int size) {
    return is_pair(operation.collective) ? 2 : static_cast<std::size_t>(size);
  }

  int size_;
  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::shared_ptr<Meeting>> meetings_;
  bool given_up_ = false;
};

std::shared_ptr<Meeting> Board::join(int rank, Call call) {
  const std::lock_guard lock(mutex_);
  const Operation& operation = call.operation;
  std::string pair;
  if (operation.collective == Collective::Send) pair = std::to_string(rank) + ">" + std::to_string(operation.peer);
  if (operation.collective == Collective::Receive) pair = std::to_string(operation.peer) + ">" + std::to_string(rank);
  const Key key{pair, operation.number};
  const std::size_t members = wanted(operation, size_);
  std::shared_ptr<Meeting>& place = meetings_[key];
  if (place == nullptr) place = std::make_shared<Meeting>();
  const std::shared_ptr<Meeting> meeting = place;
  meeting->calls.emplace(rank, std::move(call));
  if (meeting->calls.size() < members) return meeting;
  meetings_.erase(key);
  try {
    check(*meeting);
    move(*meeting);
  } catch (...) {
    meeting->error = std::current_exception();
  }
  meeting->moved = true;
  changed_.notify_all();
  return meeting;
}

void Board::check(const Meeting& meeting) const {
  const Call& first = meeting.calls.begin()->second;
  for (const auto& [rank, call] : meeting.calls)
    if (call.terms != first.terms)
      throw Bug("members call different operations: " + first.text + " is " + first.terms + ", " + call.text + " is " +
                call.terms);
}

void Board::wait(Meeting& meeting, int rank) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience_, [&] { return meeting.moved || given_up_; });
  if (meeting.error != nullptr) std::rethrow_exception(meeting.error);
  if (meeting.moved) return;
  std::string missing;
  for (int other = 0; other < size_; ++other)
    if (!meeting.calls.contains(other)) missing += " " + std::to_string(other);
  const Call& call = meeting.calls.at(rank);
  if (is_pair(call.operation.collective)) missing = " " + std::to_string(call.operation.peer);
  throw EnvironmentError(call.text + ": not started by rank" + missing +
                         (patience_.count() == 0 ? "; in one thread, start it on every rank before waiting" : ""));
}

void Board::move(const Meeting& meeting) {
  const c10::NoGradGuard no_grad;  // bytes move: a receiver may have made its buffer a leaf of a graph
  const Operation& first = meeting.calls.begin()->second.operation;
  std::vector<at::Tensor> inputs;
  const auto output_of = [&](int rank) { return meeting.calls.at(rank).operation.output; };
  const auto input_of = [&](int rank) { return meeting.calls.at(rank).operation.input; };
  const auto each = [&](const auto& work) {
    for (const auto& [rank, call] : meeting.calls) work(rank);
  };
  switch (first.collective) {
    case Collective::AllGather:
      each(
          [&](int to) { each([&](int from) { part_of(output_of(to), from, size_).copy_(input_of(from).view(-1)); }); });
      return;
    case Collective::AllToAll:
      each([&](int to) {
        each([&](int from) { part_of(output_of(to), from, size_).copy_(part_of(input_of(from), to, size_)); });
      });
      return;
    case Collective::ReduceScatter:
      each([&](int to) {
        inputs.clear();
        each([&](int from) { inputs.push_back(part_of(input_of(from), to, size_)); });
        output_of(to).view(-1).copy_(reduce_in_rank_order(inputs, first.reduction));
      });
      return;
    case Collective::AllReduce:
    case Collective::Reduce: {
      each([&](int from) { inputs.push_back(output_of(from)); });
      const at::Tensor result = reduce_in_rank_order(inputs, first.reduction);
      each([&](int to) {
        if (first.collective == Collective::AllReduce || to == first.peer) output_of(to).copy_(result);
      });
      return;
    }
    case Collective::Broadcast:
      each([&](int to) {
        if (to != first.peer) output_of(to).copy_(output_of(first.peer));
      });
      return;
    case Collective::Send:
    case Collective::Receive: {
      const int from = first.collective == Collective::Send ? meeting.calls.begin()->first : first.peer;
      each([&](int to) {
        if (to != from) output_of(to).view(-1).copy_(output_of(from).view(-1));
      });
      return;
    }
    case Collective::Barrier:
      return;
  }
}

class LocalWork final : public PendingWork {
 public:
  LocalWork(std::shared_ptr<Board> board, std::shared_ptr<Meeting> meeting, int rank)
      : board_(std::move(board)), meeting_(std::move(meeting)), rank_(rank) {}
  void wait() override { board_->wait(*meeting_, rank_); }

 private:
  std::shared_ptr<Board> board_;
  std::shared_ptr<Meeting> meeting_;
  int rank_;
};

class LocalGroup final : public CheckedGroup {
 public:
  LocalGroup(std::shared_ptr<Board> board, int rank, std::vector<int> members)
      : CheckedGroup("local", rank, std::move(members)), board_(std::move(board)) {}

 private:
  Pending start(const Operation& operation) override {
    std::shared_ptr<Meeting> meeting = board_->join(rank(), {operation, describe(operation), terms_of(operation)});
    return Pending(std::make_unique<LocalWork>(board_, std::move(meeting), rank()));
  }
  std::shared_ptr<Board> board_;
};

std::vector<std::unique_ptr<CheckedGroup>> groups_on(const std::shared_ptr<Board>& board, int size) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<CheckedGroup>> groups;
  for (int rank = 0; rank < size; ++rank) groups.push_back(std::make_unique<LocalGroup>(board, rank, members));
  return groups;
}

}  // namespace

std::vector<std::unique_ptr<CheckedGroup>> local_groups(int size, std::chrono::milliseconds patience) {
  return groups_on(std::make_shared<Board>(size, patience), size);
}

void on_ranks(int size, const std::function<void(CheckedGroup&)>& body) {
  const auto board = std::make_shared<Board>(size, std::chrono::seconds(30));
  const std::vector<std::unique_ptr<CheckedGroup>> groups = groups_on(board, size);
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  for (const std::unique_ptr<CheckedGroup>& group : groups)
    threads.emplace_back([&, rank_group = group.get()] {
      try {
        body(*rank_group);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (first_error == nullptr) first_error = std::current_exception();
        board->give_up();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first_error != nullptr) std::rethrow_exception(first_error);
}

}  // namespace strata::fakes
