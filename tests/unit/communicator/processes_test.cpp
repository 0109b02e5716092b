// Real processes, over each communicator of the host's memory.
#include <signal.h>

#include "unit/launch/run_in_child.hpp"

using Catch::Matchers::Contains;

namespace {
const std::vector<std::string> communicators{"gloo", "shm"};

Ended play(int ranks, const std::string& scenario, int deadline_s = 60, const std::string& communicator = "gloo") {
  strata::launch::RankProgram program;
  program.ranks = ranks;
  program.program = STRATA_GROUP_RANKS;
  program.arguments = {scenario, std::to_string(deadline_s), communicator};
  program.patience = std::chrono::seconds(2);
  return run_in_child(program);
}
}  // namespace

TEST_CASE("every collective on 1 to 4 ranks") {
  for (const std::string& communicator : communicators) {
    for (const int ranks : {1, 2, 3, 4}) {
      const Ended ended = play(ranks, "collectives", 60, communicator);
      INFO(communicator << ", " << ranks << " ranks: " << ended.error);
      CHECK(ended.status == 0);
      CHECK(ended.error == "");
      CHECK(ended.out == "");
    }
  }
}

TEST_CASE("several groups side by side") {
  for (const std::string& communicator : communicators) {
    for (const int ranks : {3, 4}) {
      const Ended ended = play(ranks, "several_groups", 60, communicator);
      INFO(communicator << ", " << ranks << " ranks: " << ended.error);
      CHECK(ended.status == 0);
    }
  }
}

TEST_CASE("a killed rank ends the run within seconds") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(3, "killed", 60, communicator);
    INFO(communicator << ", " << ended.error);
    CHECK(ended.status == 128 + SIGKILL);
    CHECK(ended.seconds < 10);
    CHECK_THAT(ended.error, Contains("rank 2 of 3 failed (killed by signal 9"));
  }
}

TEST_CASE("a rank that does not answer is named when the deadline passes") {
  for (const std::string& communicator : communicators) {
    Ended ended = play(2, "silent", 1, communicator);
    CHECK(ended.status == 3);
    CHECK(ended.seconds < 10);
    CHECK_THAT(ended.error,
               Contains("all_reduce #2 on group world (rank 0 of 2): rank 1 of the group sent nothing for 1 s") &&
                   Contains("members are ranks 0, 1 of the run"));
    ended = play(3, "silent_sender", 1, communicator);
    CHECK(ended.status == 3);
    CHECK_THAT(ended.error, Contains("receive #1 from rank 2 on group world (rank ") &&
                                Contains("rank 2 of the group sent nothing for 1 s"));
  }
}

TEST_CASE("a rank that does not come to connect is named") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(3, "absent", 1, communicator);
    CHECK(ended.status == 3);
    CHECK(ended.seconds < 10);
    CHECK_THAT(ended.error, Contains("connecting group world: rank 1 of 3 did not come within 1 s"));
  }
}

TEST_CASE("operations behind a failed one fail with it") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(2, "queued_behind_an_error", 1, communicator);
    CHECK(ended.status == 3);
    CHECK(ended.seconds < 10);
    CHECK_THAT(ended.error, Contains("all ten failed"));
  }
}

TEST_CASE("ranks compare what they loaded") {
  CHECK(play(3, "plugins_agree").status == 0);
  const Ended ended = play(3, "plugins_differ", 5);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.error,
             Contains("the loaded plugins differ between ranks") && Contains("digest 12") && Contains("digest 13"));
}

TEST_CASE("a wrong shape is a bug of the caller, on every rank") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(2, "wrong_shape", 60, communicator);
    CHECK(ended.status == 70);
    CHECK_THAT(ended.error,
               Contains("all_gather on group world") && Contains("the whole has 3 elements") && Contains("2 x 2"));
  }
}

TEST_CASE("a rank may drop an operation and leave") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(2, "leaves_early", 60, communicator);
    INFO(communicator << ", " << ended.error);
    CHECK(ended.status == 0);
  }
}

TEST_CASE("shm: ranks that call different things are told so") {
  Ended ended = play(3, "other_size", 5, "shm");
  CHECK(ended.status == 3);
  CHECK_THAT(ended.error, Contains("calls all_reduce of 400 bytes") && Contains("calls all_reduce of 200 bytes"));
  ended = play(2, "other_operation", 5, "shm");
  CHECK(ended.status == 3);
  CHECK_THAT(ended.error,
             Contains("calls all_reduce of 400000 bytes") && Contains("calls broadcast of 400000 bytes with root 1"));
}
