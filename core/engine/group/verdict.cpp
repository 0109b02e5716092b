#include "group/verdict.hpp"

#include <strata/format.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "text/table.hpp"

namespace strata::group {

namespace {

double seconds_between(Observer::Clock::time_point begin, Observer::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

std::string shown(double seconds) {
  return fmt::format("{:.{}f} s", seconds, seconds < 10.0 ? 1 : 0);
}

std::string rank_named(int rank) {
  return format("rank {}", rank);
}

bool has_ended(const RankRecord& record) {
  return record.state == RankState::Left || record.state == RankState::Failed;
}

// Two members that called different operations with the same number.
std::optional<RunVerdict> different_calls(const std::vector<Observed>& ranks) {
  std::map<std::pair<std::string, std::int64_t>, std::pair<int, const Call*>> first;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].record) continue;
    for (const auto& [channel, calls] : ranks[rank].record->begun)
      for (const Call& call : calls) {
        const auto [found, is_new] = first.try_emplace({channel, call.number}, static_cast<int>(rank), &call);
        const auto& [other, others_call] = found->second;
        if (is_new || call.agrees_with(*others_call)) continue;
        return RunVerdict{rank_named(other) + " calls " + others_call->text() + " where " +
                              rank_named(static_cast<int>(rank)) + " calls " + call.text() +
                              ": all members of a group must make the same calls",
                          {other, static_cast<int>(rank)}};
      }
  }
  return std::nullopt;
}

// A rank whose process cannot continue.
std::optional<RunVerdict> lost_rank(const std::vector<Observed>& ranks, const Patience& patience) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Observed& seen = ranks[i];
    const int rank = static_cast<int>(i);
    if (!seen.record || seen.record->state == RankState::Left) continue;
    if (seen.record->state == RankState::Failed)
      return RunVerdict{rank_named(rank) + " failed with its own error (" + seen.record->doing + "); see its output",
                        {rank}};
    if (seen.process == ProcessState::Gone)
      return RunVerdict{
          rank_named(rank) + " died: its process " + std::to_string(seen.record->process.number) + " is gone", {rank}};
    if (seen.process == ProcessState::Stopped && seen.stopped_s >= patience.stopped_s)
      return RunVerdict{rank_named(rank) + " is stopped, not slow: its process " +
                            std::to_string(seen.record->process.number) +
                            " was stopped by SIGSTOP or Ctrl-Z; SIGCONT continues it",
                        {rank}};
    const bool may_be_silent = seen.process == ProcessState::Traced;  // a debugger holds it
    if (!may_be_silent && seen.silent_s >= patience.silent_s)
      return RunVerdict{rank_named(rank) + " did not respond for " + shown(seen.silent_s) + ": its process " +
                            (seen.process == ProcessState::Runs ? std::to_string(seen.record->process.number) +
                                                                      " runs, but does not reach the run's store"
                                                                : "is dead or stopped, or its host cannot be reached"),
                        {rank}};
  }
  return std::nullopt;
}

std::optional<RunVerdict> left_rank(const std::vector<Observed>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const int rank = static_cast<int>(i);
    for (const int needed : waited_for(ranks, rank)) {
      const Observed& other = ranks.at(static_cast<std::size_t>(needed));
      if (!other.record || !has_ended(*other.record)) continue;
      return RunVerdict{rank_named(needed) + " has left the run while " + rank_named(rank) + " waits for it in " +
                            ranks[i].record->waits_for.text(),
                        {needed, rank}};
    }
  }
  return std::nullopt;
}

// See the note in the header.
bool at_one_moment(const std::vector<Observed>& ranks, const std::vector<int>& chosen) {
  int seen_by = 0, signs_from = std::numeric_limits<int>::max();
  for (const int rank : chosen) {
    seen_by = std::max(seen_by, ranks[static_cast<std::size_t>(rank)].first_look);
    signs_from = std::min(signs_from, ranks[static_cast<std::size_t>(rank)].last_sign);
  }
  return signs_from > seen_by;
}

// Ranks that wait for each other in a circle.
std::optional<RunVerdict> circle(const std::vector<Observed>& ranks) {
  enum class Mark { New, Open, Closed };
  std::vector<Mark> marks(ranks.size(), Mark::New);
  std::vector<int> path;
  const std::function<bool(int)> visit = [&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    if (marks[i] == Mark::Closed) return false;
    path.push_back(rank);
    if (marks[i] == Mark::Open) return true;
    marks[i] = Mark::Open;
    for (const int needed : waited_for(ranks, rank))
      if (visit(needed)) return true;
    marks[i] = Mark::Closed;
    path.pop_back();
    return false;
  };
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    path.clear();
    if (!visit(static_cast<int>(i))) continue;
    path.erase(path.begin(), std::find(path.begin(), path.end(), path.back()));
    if (!at_one_moment(ranks, path)) return std::nullopt;
    std::string text;
    for (std::size_t k = 0; k + 1 < path.size(); ++k)
      text += (k == 0 ? "" : ", ") + rank_named(path[k]) + " waits for " + rank_named(path[k + 1]) + " in " +
              ranks[static_cast<std::size_t>(path[k])].record->waits_for.text();
    path.pop_back();
    return RunVerdict{"ranks wait for each other: " + text, path};
  }
  return std::nullopt;
}

// No rank computes, and none made progress for the whole timeout.
std::optional<RunVerdict> standstill(const std::vector<Observed>& ranks, const Patience& patience) {
  std::vector<int> absent, waiting;
  double longest = patience.timeout_s;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool device_works =
        ranks[i].record && ranks[i].record->on_device && waited_for(ranks, static_cast<int>(i)).empty();
    if (device_works) longest = patience.device_s;
    if (ranks[i].unchanged_s < (device_works ? patience.device_s : patience.timeout_s)) return std::nullopt;
    if (!ranks[i].record)
      absent.push_back(static_cast<int>(i));
    else if (ranks[i].record->state == RankState::Computes)
      return std::nullopt;
    else if (ranks[i].record->state == RankState::Waits)
      waiting.push_back(static_cast<int>(i));
  }
  if (waiting.empty()) return std::nullopt;
  const std::string limit = shown(patience.timeout_s) + " (communicator.timeout_s)";
  if (!absent.empty()) {
    const Call& call = ranks[static_cast<std::size_t>(waiting.front())].record->waits_for;
    return RunVerdict{call.name + ": " + ranks_named(absent) + " of " + std::to_string(ranks.size()) +
                          " did not arrive within " + limit +
                          "; see their output for an error, or for where they are stuck before they reach the run's "
                          "store, such as in loading plugins; raise the timeout if starting takes longer",
                      absent};
  }
  if (longest > patience.timeout_s)
    return RunVerdict{"no rank made progress for " + shown(longest) +
                          " (10 x communicator.timeout_s): devices compute endlessly or no longer respond",
                      waiting};
  return RunVerdict{"no rank made progress for " + limit + ", and none is computing", waiting};
}

std::string state_text(const Observed& seen) {
  if (!seen.record) return "has not arrived";
  if (seen.record->state == RankState::Left) return "has left";
  if (seen.record->state == RankState::Failed) return "failed";
  if (seen.process == ProcessState::Gone) return "died";
  if (seen.process == ProcessState::Stopped) return "is stopped";
  if (seen.process == ProcessState::Traced) return "is held by a debugger";
  return seen.record->state == RankState::Waits ? "waits" : "computes";
}

}  // namespace

void Observer::take(Observed& seen, RankRecord record, Clock::time_point now) const {
  const bool changed = !seen.record || seen.record->moves != record.moves;
  if (changed) seen.changed = now;
  if (changed) seen.first_look = looks_;
  if (!seen.record || seen.record->beat != record.beat) {
    seen.beaten = now;
    seen.last_sign = looks_;
  }
  seen.process = state_of(record.process);
  if (seen.process != ProcessState::Stopped)
    seen.stopped.reset();
  else if (!seen.stopped)
    seen.stopped = now;
  seen.unchanged_s = seconds_between(seen.changed, now);
  seen.silent_s = seconds_between(seen.beaten, now);
  seen.stopped_s = seen.stopped ? seconds_between(*seen.stopped, now) : 0.0;
  seen.record = std::move(record);
}

void Observer::was_blind_for(Clock::duration time) {
  for (Observed& seen : seen_) {
    seen.changed += time;
    seen.beaten += time;
    if (seen.stopped) *seen.stopped += time;
  }
}

const std::vector<Observed>& Observer::look(std::vector<std::optional<RankRecord>> records, Clock::time_point now) {
  if (looks_++ == 0)
    for (Observed& seen : seen_) seen.changed = now;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    if (records.at(i))
      take(seen_[i], std::move(*records[i]), now);
    else
      seen_[i].unchanged_s = seconds_between(seen_[i].changed, now);
  }
  return seen_;
}

std::vector<int> waited_for(const std::vector<Observed>& ranks, int rank) {
  const std::optional<RankRecord>& record = ranks.at(static_cast<std::size_t>(rank)).record;
  if (!record || record->state != RankState::Waits) return {};
  std::vector<int> missing;
  for (const int needed : record->needs) {
    const std::optional<RankRecord>& other = ranks.at(static_cast<std::size_t>(needed)).record;
    const bool come = !record->waits_for.group.empty() && other &&
                      other->last_number(record->waits_for.channel()) >= record->waits_for.number;
    if (needed != rank && !come) missing.push_back(needed);
  }
  return missing;
}

int computing_rank(const std::vector<Observed>& ranks, int rank) {
  std::set<int> visited;
  std::vector<int> open{rank};
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    if (!visited.insert(at).second) continue;
    const std::optional<RankRecord>& record = ranks.at(static_cast<std::size_t>(at)).record;
    if (record && record->state == RankState::Computes) return at;
    for (const int needed : waited_for(ranks, at)) open.push_back(needed);
  }
  return -1;
}

std::optional<RunVerdict> judge(const std::vector<Observed>& ranks, const Patience& patience) {
  if (auto verdict = different_calls(ranks)) return verdict;
  if (auto verdict = lost_rank(ranks, patience)) return verdict;
  if (auto verdict = left_rank(ranks)) return verdict;
  if (auto verdict = circle(ranks)) return verdict;
  return standstill(ranks, patience);
}

std::string ranks_named(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string table_of(const std::vector<Observed>& ranks, const std::vector<int>& first) {
  constexpr std::size_t lines = 32;
  std::vector<int> order = first;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    if (std::find(first.begin(), first.end(), rank) == first.end()) order.push_back(rank);
  text::Table table{
      {{"rank", true}, {"state"}, {"for", true}, {"in"}, {"call"}, {"group"}, {"number", true}, {"bytes", true}}, {}};
  for (const int rank : order) {
    if (table.rows.size() == lines) break;
    const Observed& seen = ranks.at(static_cast<std::size_t>(rank));
    std::vector<std::string> row{std::to_string(rank), state_text(seen), "-", "-", "-", "-", "-", "-"};
    if (seen.record) {
      row[2] = shown(seen.record->since_s + seen.silent_s);
      row[3] = seen.record->doing;
      const Call& call = seen.record->waits_for;
      if (seen.record->state == RankState::Waits) row[4] = call.name;
      if (seen.record->state == RankState::Waits && !call.group.empty()) {
        row[5] = call.group;
        row[6] = std::to_string(call.number);
        row[7] = std::to_string(call.bytes);
      }
    }
    table.rows.push_back(std::move(row));
  }
  std::ostringstream text;
  text::print(table, text::TableFormat::Text, text);
  if (order.size() > lines) text << "and " << order.size() - lines << " more ranks\n";
  return text.str();
}

}  // namespace strata::group
