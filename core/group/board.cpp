#include "group/board.hpp"

#include <signal.h>
#include <strata/error.hpp>

#include <exception>
#include <utility>

#include "group/board_watch.hpp"

namespace strata::runtime {

namespace {

// Blocks signals for threads started during its lifetime, so that existing threads get them.
class SignalsHeldBack {
 public:
  SignalsHeldBack() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former_);
  }
  ~SignalsHeldBack() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }

 private:
  sigset_t former_{};
};

}  // namespace

Board::Board(c10::intrusive_ptr<c10d::Store> store, int rank, int ranks, bool serves, std::chrono::milliseconds timeout)
    : ranks_(ranks) {
  if (ranks == 1) return;
  watch_ = std::make_shared<Watch>(std::move(store), rank, ranks, serves, timeout);
  watch_->publish();
  const SignalsHeldBack held_back;
  thread_ = std::thread([watch = watch_] { watch->serve(); });
}

Board::~Board() {
  if (!watch_) return;
  if (watch_->stop(std::uncaught_exceptions() > 0 ? RankState::Failed : RankState::Left))
    thread_.join();
  else
    thread_.detach();
}

void Board::does(const Doing& what) {
  if (watch_) watch_->does(what);
}

void Board::begins(const Call& call) {
  if (watch_) watch_->begins(call);
}

Board::Waiting::Waiting(Board& board, Call call, std::vector<int> needs) : board_(board) {
  if (!board_.watch_) return;
  board_.watch_->move(RankState::Waits, [&](RankRecord& record) {
    record.waits_for = std::move(call);
    record.needs = std::move(needs);
  });
}

Board::Waiting::~Waiting() {
  if (board_.watch_) board_.watch_->move(RankState::Computes);
}

void Board::wait_for_last(const std::string& group, const std::function<void()>& block) {
  if (!watch_) return block();
  watch_->move(RankState::Waits, [&](RankRecord& record) {
    const auto found = record.begun.find(group);
    record.waits_for = found == record.begun.end() ? Call{} : found->second.back();
    record.needs.clear();
    for (int rank = 0; found != record.begun.end() && rank < ranks_; ++rank) record.needs.push_back(rank);
  });
  block();
  watch_->move(RankState::Computes);
  check();
}

void Board::check() const {
  if (watch_) watch_->check();
}

void Board::fail(const std::string& problem) {
  if (watch_) watch_->fail(problem);
  throw EnvironmentError(problem);
}

std::uint64_t Board::watch(std::function<void()> end) {
  return watch_ ? watch_->watch(std::move(end)) : 0;
}

void Board::unwatch(std::uint64_t watched) {
  if (watch_) watch_->unwatch(watched);
}

}  // namespace strata::runtime
