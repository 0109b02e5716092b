#include "group/board.hpp"
#include "text/json.hpp"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

namespace strata::runtime {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds shortest_interval{200};  // between two publications
constexpr milliseconds longest_interval{4000};
constexpr milliseconds short_wait{500};    // do not look during shorter waits
constexpr milliseconds explanation{2000};  // how long a failed operation waits for its cause
constexpr milliseconds last_word{5000};    // how long a rank that leaves waits for the store
const std::string verdict_key = "board/verdict";

std::string key_of(int rank) {
  return "board/" + std::to_string(rank);
}

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

Board::Board(c10::intrusive_ptr<c10d::Store> store, int rank, int ranks, bool serves, milliseconds timeout)
    : store_(std::move(store)),
      rank_(rank),
      ranks_(ranks),
      serves_(serves),
      // Publish less often with many ranks, because one server answers all of them.
      interval_(std::clamp(milliseconds(4 * ranks), shortest_interval, longest_interval)),
      observer_(ranks),
      came_(static_cast<std::size_t>(ranks)) {
  patience_.timeout_s = std::chrono::duration<double>(timeout).count();
  record_.process = own_identity();
}

Board::~Board() = default;

void Board::join() {
  publish();
  const SignalsHeldBack held_back;
  thread_ = std::thread([board = shared_from_this()] { board->serve(); });
}

void Board::leave() {
  if (!thread_.joinable()) return;
  move(std::uncaught_exceptions() > 0 ? RankState::Failed : RankState::Left);
  bool ended = false;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    ended = changed_.wait_for(lock, last_word, [this] { return served_; });
  }
  if (ended)
    thread_.join();
  else
    thread_.detach();
}

void Board::move(RankState state, const std::function<void(RankRecord&)>& change) {
  const std::lock_guard lock(mutex_);
  if (change) change(record_);
  if (record_.state != RankState::Failed) record_.state = state;
  ++record_.moves;
  moved_ = Clock::now();
}

void Board::give_up() {
  move(RankState::Failed);
  end_operations();
}

void Board::does(const Doing& what) {
  move(RankState::Computes, [&](RankRecord&) { doing_ = what; });
}

void Board::begins(const Call& call) {
  check();
  const std::lock_guard lock(mutex_);
  record_.begin(call);
  ++record_.moves;
}

Board::Waiting::Waiting(Board& board, Call call, std::vector<int> needs) : board_(board) {
  board_.move(RankState::Waits, [&](RankRecord& record) {
    record.waits_for = std::move(call);
    record.needs = std::move(needs);
  });
}

Board::Waiting::~Waiting() {
  board_.move(RankState::Computes);
}

void Board::wait_for_last(const std::string& group, const std::function<void()>& block) {
  move(RankState::Waits, [&](RankRecord& record) {
    const auto found = record.begun.find(group);
    record.waits_for = found == record.begun.end() ? Call{} : found->second.back();
    record.needs.clear();
    for (int rank = 0; found != record.begun.end() && rank < ranks_; ++rank) record.needs.push_back(rank);
  });
  block();
  move(RankState::Computes);
  check();
}

void Board::check() const {
  if (!has_ended_) return;
  const std::lock_guard lock(mutex_);
  std::string text = ended_->cause;
  if (!ended_->table.empty())
    text += ". What each rank was doing:\n" + ended_->table;
  else if (ended_->by != rank_)
    text += "; rank " + std::to_string(ended_->by) + " prints what each rank was doing";
  throw EnvironmentError(text);
}

void Board::fail(const std::string& problem) {
  {
    std::unique_lock lock(mutex_);
    if (problem_.empty()) {
      problem_ = problem;
      failed_ = Clock::now();
    }
    changed_.notify_all();
    // The thread writes the problem as the verdict; the limit is for a store that does not answer.
    changed_.wait_for(lock, 3 * explanation, [this] { return ended_.has_value(); });
  }
  check();
  throw EnvironmentError(problem);
}

std::uint64_t Board::watch(std::function<void()> end) {
  const std::lock_guard lock(watched_mutex_);
  watched_.emplace(++last_watched_, std::move(end));
  return last_watched_;
}

void Board::unwatch(std::uint64_t watched) {
  const std::lock_guard lock(watched_mutex_);
  watched_.erase(watched);
}

// ---- the thread

void Board::serve() {
  for (bool last = false; !last;) {
    const Clock::time_point now = Clock::now();
    try {
      if (!lost_) serve_once(now);
    } catch (const std::exception&) {
      lost_ = now;
    }
    if (lost_) take_loss(now);
    std::unique_lock lock(mutex_);
    const bool in_a_hurry = !problem_.empty() && !ended_;
    changed_.wait_for(lock, in_a_hurry ? std::min(interval_, milliseconds{100}) : interval_,
                      [&] { return stopping_ || (!problem_.empty() && failed_ > now); });
    last = stopping_;
  }
  if (!lost_) wait_for_last_words();
  const std::lock_guard lock(mutex_);
  served_ = true;
  changed_.notify_all();
}

void Board::serve_once(Clock::time_point now) {
  if (has_ended_) return;
  publish();
  if (!take_verdict() && wants_to_look(now)) look(now);
}

// Without the store no rank can see why it waits. The server existed at the start, so it has ended or its host is
// unreachable. A rank that does not wait may still finish.
void Board::take_loss(Clock::time_point now) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || now - *lost_ < explanation || record_.state != RankState::Waits || now - moved_ < explanation) return;
  }
  end({"the run's store no longer answers, while rank " + std::to_string(rank_) +
           " waits for others: the process that serves it (rank 0, or the launcher) has ended, or its host cannot be "
           "reached",
       "", rank_});
}

// Publishes the last record; a rank that serves the store stays until all ranks have read how the run ended.
void Board::wait_for_last_words() {
  try {
    publish();
    const Clock::time_point end = Clock::now() + explanation;
    const auto has_left = [](const std::optional<RankRecord>& record) {
      return !record || record->state == RankState::Left || record->state == RankState::Failed ||
             state_of(record->process) == ProcessState::Gone;
    };
    const auto all_have_left = [&] {
      const std::vector<std::optional<RankRecord>> all = records();
      return std::all_of(all.begin(), all.end(), has_left);
    };
    while (serves_ && Clock::now() < end && !all_have_left()) std::this_thread::sleep_for(milliseconds{20});
  } catch (const std::exception&) {  // the store was lost at the end
  }
}

void Board::publish() {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    ++record_.beat;
    const Instruction* const instruction = std::get_if<Instruction>(&doing_);
    record_.doing = instruction == nullptr ? std::get<std::string>(doing_) : to_string(*instruction);
    record_.since_s = std::chrono::duration<double>(Clock::now() - moved_).count();
    text = to_text(record_);
  }
  store_->set(key_of(rank_), text);
}

bool Board::wants_to_look(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  return !problem_.empty() || (record_.state == RankState::Waits && now - moved_ >= short_wait);
}

std::vector<std::optional<RankRecord>> Board::records() {
  std::vector<std::string> keys;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    if (!came_[i]) came_[i] = store_->check({key_of(rank)});
    if (came_[i]) keys.push_back(key_of(rank));
  }
  const std::vector<std::vector<std::uint8_t>> values = store_->multiGet(keys);
  std::vector<std::optional<RankRecord>> records(came_.size());
  for (std::size_t i = 0, found = 0; i < came_.size(); ++i) {
    if (!came_[i]) continue;
    const std::vector<std::uint8_t>& value = values.at(found++);
    records[i] = parse_record({value.begin(), value.end()});
  }
  return records;
}

void Board::look(Clock::time_point now) {
  const std::vector<Observed>& ranks = observer_.look(records(), now);
  if (const std::optional<RunVerdict> verdict = judge(ranks, patience_)) return write_verdict(*verdict, ranks);
  std::string problem;
  {
    const std::lock_guard lock(mutex_);
    if (!problem_.empty() && now - failed_ >= explanation) problem = problem_;
  }
  if (!problem.empty()) return write_verdict({problem, {rank_}}, ranks);
  tell_of_long_wait(ranks, now);
}

// A long computation does not end the run, but a warning tells the user what the run waits for.
void Board::tell_of_long_wait(const std::vector<Observed>& ranks, Clock::time_point now) {
  if (ranks[static_cast<std::size_t>(rank_)].unchanged_s < patience_.timeout_s) return;
  if (std::chrono::duration<double>(now - told_).count() < patience_.timeout_s) return;
  told_ = now;
  const int other = computing_rank(ranks, rank_);
  if (other < 0) return;
  const RankRecord& record = *ranks[static_cast<std::size_t>(other)].record;
  const bool held = ranks[static_cast<std::size_t>(other)].process == ProcessState::Traced;
  spdlog::warn("rank {} waits for rank {}, which {} in {} for {:.0f} s; the wait goes on", rank_, other,
               held ? "is held by a debugger" : "computes", record.doing, record.since_s);
}

bool Board::take_verdict() {
  if (!store_->check({verdict_key})) return false;
  const std::vector<std::uint8_t> written = store_->get(verdict_key);
  const text::JsonDocument document({reinterpret_cast<const char*>(written.data()), written.size()},
                                    {"the run's verdict on the board"});
  const text::JsonValue verdict = document.object();
  const std::int64_t by = verdict["by"].count();
  verdict["by"].check(by < ranks_, "it must be a rank");
  end({verdict["cause"].text(), by == rank_ ? verdict["table"].text() : "", static_cast<int>(by)});
  return true;
}

void Board::write_verdict(const RunVerdict& verdict, const std::vector<Observed>& ranks) {
  const nlohmann::json json{{"cause", verdict.cause}, {"table", table_of(ranks, verdict.ranks)}, {"by", rank_}};
  store_->compareSet(verdict_key, "", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  take_verdict();  // another rank's verdict may have come first
}

void Board::end(Ended ended) {
  {
    const std::lock_guard lock(mutex_);
    ended_ = std::move(ended);
    has_ended_ = true;
  }
  changed_.notify_all();
  end_operations();
}

void Board::end_operations() {
  const std::lock_guard lock(watched_mutex_);
  for (const auto& [number, end] : watched_) end();
}

}  // namespace strata::runtime
