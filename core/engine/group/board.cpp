#include "group/board.hpp"
#include "text/json.hpp"

#include <limits.h>
#include <spdlog/spdlog.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "group/random_name.hpp"
#include "group/signals_held_back.hpp"

namespace strata::group {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds shortest_interval{200};  // between two publications
constexpr milliseconds longest_interval{4000};
constexpr milliseconds short_wait{500};    // do not look during shorter waits
constexpr milliseconds explanation{2000};  // how long a failed operation waits for its cause
constexpr milliseconds last_word{5000};    // how long a rank that leaves waits for the store
constexpr double early_word_s = 10.0;      // an instruction that takes longer is reported
const std::string verdict_key = "board/verdict";
const std::string begun_key = "board/begun";

std::string key_of(int rank) {
  return format("board/{}", rank);
}

std::string text_of(const RunVerdict& verdict, const std::string& table, int by) {
  const nlohmann::json json{{"cause", verdict.cause}, {"table", table}, {"by", by}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

text::JsonDocument verdict_in(const std::vector<std::uint8_t>& bytes) {
  return {{reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {"the run's verdict on the board"}};
}

}  // namespace

Board::Board(BoardPlace place)
    : store_(std::move(place.store)),
      hang_up_(std::move(place.hang_up)),
      rank_(place.rank),
      ranks_(place.ranks),
      serves_(place.serves),
      patience_(std::chrono::duration<double>(place.timeout).count()),
      // Publish less often with many ranks, because one server answers all of them.
      interval_(std::clamp(milliseconds(4 * ranks_), shortest_interval, longest_interval)),
      observer_(ranks_),
      came_(static_cast<std::size_t>(ranks_)) {
  record_.process = own_identity();
}

Board::~Board() = default;

void Board::join() {
  claim();
  publish();
  answered_ = Clock::now();
  const SignalsHeldBack held_back;
  thread_ = std::thread([board = shared_from_this()] { board->serve(); });
}

// The first process to set the rank's key has the rank.
void Board::claim() {
  const auto text_of = [](const nlohmann::json& process) {
    return "process " + process.at("number").dump() + " on host " + process.at("host").get<std::string>();
  };
  std::array<char, HOST_NAME_MAX + 1> host{};
  gethostname(host.data(), HOST_NAME_MAX);
  const nlohmann::json me{{"number", getpid()}, {"host", host.data()}, {"token", random_name()}};
  const std::string mine = me.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string first = store_->compareSet("board/claim/" + std::to_string(rank_), "", mine);
  if (first == mine) return;
  const std::string cause = format(
      "two processes are rank {} of one run: {} and, later, {}; start each rank once, and give simultaneous runs "
      "different ports (MASTER_PORT)",
      rank_, text_of(nlohmann::json::parse(first)), text_of(me));
  throw EnvironmentError(store_->check({begun_key}) ? cause : settle(*store_, cause));
}

std::string Board::settle(c10d::Store& store, const std::string& cause) {
  const std::string written = text_of({cause, {}}, "", -1);
  const std::vector<std::uint8_t> first =
      store.compareSet(verdict_key, std::vector<std::uint8_t>{}, {written.begin(), written.end()});
  return verdict_in(first).object()["cause"].text();
}

void Board::begun() {
  if (rank_ != 0 || !store_ || std::exchange(has_begun_, true)) return;
  store_->set(begun_key, "1");
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
    if (!ended) hang_up_();
    ended = ended || changed_.wait_for(lock, last_word, [this] { return served_; });
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
    record.on_device = false;
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
    record.on_device = true;
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
  else if (ended_->by >= 0 && ended_->by != rank_)
    text += format("; rank {} prints what each rank was doing", ended_->by);
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
      if (!lost_) serve_once();
    } catch (const std::exception& error) {
      lost_ = error.what();
    }
    if (lost_) take_loss(Clock::now());
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

void Board::serve_once() {
  if (has_ended_) return;
  publish();
  const Clock::time_point now = Clock::now();
  const Clock::duration blind = now - std::exchange(answered_, now);
  if (blind > 2 * interval_ + explanation) observer_.was_blind_for(blind);
  if (!take_verdict() && wants_to_look(now)) look(now);
}

// Without the store no rank can see why it waits. A rank that does not wait may still finish.
void Board::take_loss(Clock::time_point now) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || record_.state != RankState::Waits || now - moved_ < explanation) return;
  }
  end({*lost_ + "; rank " + std::to_string(rank_) +
           " waits for other ranks, and cannot find out whether they still run",
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
    const program::Instruction* const instruction = std::get_if<program::Instruction>(&doing_);
    record_.doing = instruction == nullptr ? std::get<std::string>(doing_) : program::to_string(*instruction);
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
  std::vector<std::string> unseen, keys;
  for (int rank = 0; rank < ranks_; ++rank)
    if (!came_[static_cast<std::size_t>(rank)]) unseen.push_back(key_of(rank));
  const bool all_came = unseen.empty() || store_->check(unseen);
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    if (!came_[i]) came_[i] = all_came || store_->check({key_of(rank)});
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
  tell_of_long_wait(ranks);
}

// A long computation does not end the run, but a warning names what the run waits for: after the timeout, and
// earlier where a single instruction takes long. A wait is reported again each time that it has doubled.
void Board::tell_of_long_wait(const std::vector<Observed>& ranks) {
  const double waited_s = ranks[static_cast<std::size_t>(rank_)].unchanged_s;
  if (waited_s < told_s_) told_s_ = 0.0;
  if (waited_s < std::max(std::min(early_word_s, patience_.timeout_s), 2.0 * told_s_)) return;
  const int other = computing_rank(ranks, rank_);
  if (other < 0) return tell_of_absent(ranks, waited_s);
  const Observed& seen = ranks[static_cast<std::size_t>(other)];
  const double computed_s = seen.record->since_s + seen.silent_s;
  if (waited_s < patience_.timeout_s && computed_s < early_word_s) return;
  told_s_ = waited_s;
  spdlog::warn("rank {} waits for rank {}, which {} in {} for {:.0f} s; the wait continues", rank_, other,
               seen.process == ProcessState::Traced ? "is held by a debugger" : "computes", seen.record->doing,
               computed_s);
}

// The first rank that has come reports those that have not.
void Board::tell_of_absent(const std::vector<Observed>& ranks, double waited_s) {
  std::vector<int> absent;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!ranks[static_cast<std::size_t>(rank)].record)
      absent.push_back(rank);
    else if (absent.size() == static_cast<std::size_t>(rank) && rank != rank_)
      return;
  }
  if (absent.empty()) return;
  told_s_ = waited_s;
  spdlog::warn("{} of {} did not arrive within {:.0f} s; waiting until communicator.timeout_s, {:g} s",
               ranks_named(absent), ranks_, waited_s, patience_.timeout_s);
}

bool Board::take_verdict() {
  if (!store_->check({verdict_key})) return false;
  const text::JsonDocument document = verdict_in(store_->get(verdict_key));
  const text::JsonValue verdict = document.object();
  const std::int64_t by = verdict["by"].integer();
  verdict["by"].check(by >= -1 && by < ranks_, "it must be a rank, or -1 for a process that is none");
  end({verdict["cause"].text(), by == rank_ ? verdict["table"].text() : "", static_cast<int>(by)});
  return true;
}

void Board::write_verdict(const RunVerdict& verdict, const std::vector<Observed>& ranks) {
  store_->compareSet(verdict_key, "", text_of(verdict, table_of(ranks, verdict.ranks), rank_));
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

}  // namespace strata::group
