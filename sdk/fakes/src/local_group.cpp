#include <strata/error.hpp>
#include <strata/fakes/local_group.hpp>

#include <atomic>
#include <numeric>
#include <thread>
#include <utility>

#include "local_board.hpp"

namespace strata::fakes {

namespace {

class LocalWork final : public PendingWork {
 public:
  LocalWork(std::shared_ptr<Board> board, std::shared_ptr<Meeting> meeting, int rank,
            std::shared_ptr<std::atomic<int>> under_way)
      : board_(std::move(board)), meeting_(std::move(meeting)), rank_(rank), under_way_(std::move(under_way)) {
    ++*under_way_;
  }
  void wait() override {
    --*under_way_;
    board_->wait(*meeting_, rank_);
  }

 private:
  std::shared_ptr<Board> board_;
  std::shared_ptr<Meeting> meeting_;
  int rank_;
  std::shared_ptr<std::atomic<int>> under_way_;
};

class LocalGroup final : public CheckedGroup {
 public:
  LocalGroup(std::shared_ptr<Board> board, int rank, std::vector<int> members)
      : CheckedGroup("local", rank, std::move(members)), board_(std::move(board)) {}
  int under_way() const { return *under_way_; }
  void give_up() const { board_->give_up(); }

 private:
  Pending start(const Operation& operation) override {
    std::shared_ptr<Meeting> meeting = board_->join(rank(), {operation, describe(operation), {}, {}, {}, {}});
    return Pending(std::make_unique<LocalWork>(board_, std::move(meeting), rank(), under_way_));
  }
  std::shared_ptr<Board> board_;
  std::shared_ptr<std::atomic<int>> under_way_ = std::make_shared<std::atomic<int>>(0);
};

const LocalGroup& local(const CheckedGroup& group) {
  const auto* const own = dynamic_cast<const LocalGroup*>(&group);
  strata_check(own != nullptr, "a group that local_groups() did not make");
  return *own;
}

std::vector<int> ranks_up_to(int size) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

std::vector<std::unique_ptr<CheckedGroup>> groups_on(const std::shared_ptr<Board>& board,
                                                     const std::vector<int>& members) {
  std::vector<std::unique_ptr<CheckedGroup>> groups;
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    groups.push_back(std::make_unique<LocalGroup>(board, static_cast<int>(rank), members));
  return groups;
}

}  // namespace

std::vector<std::unique_ptr<CheckedGroup>> local_groups(int size, std::chrono::milliseconds patience,
                                                        Movement movement) {
  return local_groups(ranks_up_to(size), patience, movement);
}

std::vector<std::unique_ptr<CheckedGroup>> local_groups(const std::vector<int>& members,
                                                        std::chrono::milliseconds patience, Movement movement) {
  return groups_on(std::make_shared<Board>(static_cast<int>(members.size()), patience, movement), members);
}

int under_way(const CheckedGroup& group) {
  return local(group).under_way();
}

void give_up(const CheckedGroup& group) {
  local(group).give_up();
}

void on_ranks(int size, const std::function<void(CheckedGroup&)>& body) {
  const auto board = std::make_shared<Board>(size, std::chrono::seconds(30), Movement::AtStart);
  const std::vector<std::unique_ptr<CheckedGroup>> groups = groups_on(board, ranks_up_to(size));
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
