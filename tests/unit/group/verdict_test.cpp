// When a run cannot get on, judged from records alone.
#include "group/verdict.hpp"

#include <unistd.h>

#include "catch.hpp"

using Catch::Matchers::Contains;
using namespace strata::group;
using std::chrono::milliseconds;

namespace {

Call collective(std::int64_t number, const std::string& name = "all_reduce", std::int64_t bytes = 400) {
  return {"data", name, number, bytes, "sum"};
}

RankRecord computing() {
  RankRecord record;
  record.process = own_identity();
  record.doing = "Forward 0.2 layer 3";
  return record;
}

RankRecord waiting(const Call& call, std::vector<int> needs) {
  RankRecord record = computing();
  record.begin(call);
  record.state = RankState::Waits;
  record.waits_for = call;
  record.needs = std::move(needs);
  return record;
}

// Looks at records that stay as they are and keep beating, one look a second.
std::optional<RunVerdict> after(int seconds, std::vector<RankRecord> records, const Patience& patience = {}) {
  Observer observer(static_cast<int>(records.size()));
  const Observer::Clock::time_point begin{};
  std::optional<RunVerdict> verdict;
  for (int second = 0; second <= seconds; ++second) {
    std::vector<std::optional<RankRecord>> now;
    for (RankRecord& record : records) {
      ++record.beat;
      now.emplace_back(record);
    }
    verdict = judge(observer.look(now, begin + std::chrono::seconds(second)), patience);
  }
  return verdict;
}

}  // namespace

TEST_CASE("a record is read back as it was written") {
  RankRecord record = waiting(collective(3), {0, 1});
  record.begin({"pipeline", "send", 1, 8, "", 0, 1});
  record.beat = 5;
  record.moves = 9;
  record.since_s = 1.5;
  const RankRecord again = parse_record(to_text(record));
  CHECK(again.process == record.process);
  CHECK(again.beat == 5);
  CHECK(again.moves == 9);
  CHECK(again.state == RankState::Waits);
  CHECK(again.doing == record.doing);
  CHECK(again.since_s == 1.5);
  CHECK(again.waits_for.text() == "all_reduce #3 of 400 bytes (sum) on group data");
  CHECK(again.needs == std::vector<int>{0, 1});
  CHECK(again.last_number("data") == 3);
  CHECK(again.last_number("pipeline 0>1") == 1);
  CHECK(again.last_number("pipeline 1>0") == 0);
}

TEST_CASE("a rank that computes is waited for, for ever, also through another that waits") {
  const auto records =
      std::vector{waiting(collective(1), {0, 1}), waiting({"other", "all_reduce", 1, 4, "sum"}, {1, 2}), computing()};
  CHECK(!after(10'000, records));
}

TEST_CASE("different calls, lost ranks and circles are told") {
  RankRecord other = waiting(collective(7, "all_gather"), {0, 1});
  CHECK_THAT(after(0, {waiting(collective(7), {0, 1}), other})->cause,
             Contains("rank 0 calls all_reduce #7 of 400 bytes (sum) on group data where rank 1 calls all_gather #7"));
  other = waiting(collective(7, "all_reduce", 200), {0, 1});
  CHECK(after(0, {waiting(collective(7), {0, 1}), other}));
  // What one began and has ended does not excuse the other.
  RankRecord ahead = waiting(collective(7, "all_gather"), {0, 1});
  ahead.begin(collective(8));
  CHECK(after(0, {waiting(collective(7), {0, 1}), ahead}));

  RankRecord gone = computing();
  gone.process.start += 1;
  CHECK_THAT(after(0, {waiting(collective(1), {0, 1}), gone})->cause, Contains("rank 1 died"));
  RankRecord failed = computing();
  failed.state = RankState::Failed;
  CHECK_THAT(after(0, {waiting(collective(1), {0, 1}), failed})->cause, Contains("rank 1 failed with its own error"));
  RankRecord left = computing();
  left.state = RankState::Left;
  CHECK_THAT(after(0, {waiting(collective(1), {0, 1}), left})->cause,
             Contains("rank 1 has left the run while rank 0 waits for it"));
  left.begin(collective(1));  // it did its part
  CHECK(!after(10, {waiting(collective(1), {0, 1}), left}));

  const auto circle =
      std::vector{waiting({"pipeline", "receive", 1, 8, "", 1, 0}, {1}), waiting(collective(1), {0, 1})};
  CHECK(!after(0, circle));
  CHECK_THAT(after(1, circle)->cause,
             Contains("ranks wait for each other: rank 0 waits for rank 1 in receive #1 of 8 bytes on group pipeline, "
                      "rank 1 waits for rank 0 in all_reduce #1"));
}

TEST_CASE("a circle that never stood at one moment is none") {
  // Rank 0 waited until look 1, was seen no more, and may have moved on; rank 1's wait began after that.
  Observer observer(2);
  const Observer::Clock::time_point begin{};
  RankRecord first = waiting({"pipeline", "receive", 1, 8, "", 1, 0}, {1});
  RankRecord second = computing();
  for (int look = 0; look < 2; ++look) {
    ++first.beat;
    ++second.beat;
    CHECK(!judge(observer.look({first, second}, begin + milliseconds(look)), {}));
  }
  const std::uint64_t moves = second.moves, beat = second.beat;
  second = waiting(collective(1), {0, 1});
  second.moves = moves + 1;
  second.beat = beat;
  for (int look = 2; look < 9; ++look) {
    ++second.beat;  // rank 0's thread gets no time
    CHECK(!judge(observer.look({first, second}, begin + milliseconds(look)), {}));
  }
  ++first.beat;
  ++second.beat;
  CHECK(judge(observer.look({first, second}, begin + milliseconds(9)), {}));
}

TEST_CASE("a rank that is silent is given up after the timeout") {
  const Observer::Clock::time_point begin{};
  const Patience patience(20.0);
  RankRecord far = computing();
  far.process.host = "another";
  for (const bool is_far : {true, false}) {  // on this host it runs, and does not reach the store
    Observer observer(2);
    RankRecord near = waiting(collective(1), {0, 1});
    const RankRecord silent = is_far ? far : computing();
    const auto look = [&](int second) {
      ++near.beat;
      return judge(observer.look({near, silent}, begin + std::chrono::seconds(second)), patience);
    };
    for (int second = 0; second < 20; ++second) CHECK(!look(second));
    // What this rank did not see is no silence of others.
    observer.was_blind_for(std::chrono::seconds(7));
    for (int second = 20; second < 27; ++second) CHECK(!look(second));
    const std::string cause = look(28)->cause;
    CHECK_THAT(cause, Contains("rank 1 did not respond for 21 s"));
    CHECK_THAT(cause, Contains(is_far ? "or its host cannot be reached" : "runs, but does not reach the run's store"));
  }
}

TEST_CASE("silence counts from the timeout, and from five seconds at least") {
  CHECK(Patience(120.0).silent_s == 120.0);
  CHECK(Patience(1.0).silent_s == 5.0);
}

TEST_CASE("devices that compute longer than the timeout are no standstill") {
  RankRecord record = waiting(collective(1), {0, 1});
  record.on_device = true;
  const Patience patience(5.0);
  CHECK(!after(49, {record, record}, patience));
  CHECK_THAT(after(51, {record, record}, patience)->cause, Contains("devices compute endlessly"));
  // One that has not begun what the other waits for is waited for as before.
  RankRecord behind = waiting({"", "saving"}, {0});
  CHECK(after(6, {record, behind}, patience));
}

TEST_CASE("the timeout counts from the last progress of any rank") {
  const Patience patience(5.0);
  // Both have begun it, and nothing comes through.
  const auto stuck = std::vector{waiting(collective(1), {0, 1}), waiting(collective(1), {0, 1})};
  CHECK(!after(4, stuck, patience));
  CHECK_THAT(after(6, stuck, patience)->cause, Contains("no rank made progress for 5.0 s (communicator.timeout_s)"));

  Observer observer(2);
  RankRecord here = waiting({"", "connecting group world"}, {1});
  const Observer::Clock::time_point begin{};
  CHECK(!judge(observer.look({here, std::nullopt}, begin), patience));
  ++here.beat;
  CHECK_THAT(judge(observer.look({here, std::nullopt}, begin + std::chrono::seconds(6)), patience)->cause,
             Contains("connecting group world: rank 1 of 2 did not arrive within 5.0 s"));
}

TEST_CASE("the table names those of the verdict first") {
  Observer observer(3);
  const std::vector<Observed>& seen =
      observer.look({waiting(collective(12), {0, 1, 2}), computing(), std::nullopt}, {});
  CHECK(table_of(seen, {1}) ==
        "rank  state              for  in                   call        group  number  bytes\n"
        "   1  computes         0.0 s  Forward 0.2 layer 3  -           -           -      -\n"
        "   0  waits            0.0 s  Forward 0.2 layer 3  all_reduce  data       12    400\n"
        "   2  has not arrived      -  -                    -           -           -      -\n");
}
