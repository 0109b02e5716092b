// Real processes, over each communicator of the host's memory.
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <thread>

#include "group/address.hpp"
#include "unit/tools/ranks/run_in_child.hpp"

using Catch::Matchers::Contains;
using Catch::Matchers::Matches;

namespace {
const std::vector<std::string> communicators{"gloo", "shm"};

Ended play(int ranks, const std::string& scenario, int deadline_s = 60, const std::string& communicator = "gloo") {
  strata::ranks::RankProgram program;
  program.ranks = ranks;
  program.program = STRATA_GROUP_RANKS;
  program.arguments = {scenario, std::to_string(deadline_s), communicator};
  program.patience = std::chrono::seconds(2);
  return run_in_child(program);
}
// Ranks that nobody looks after, as under mpirun: rank 0 serves the store.
std::vector<Ended> play_alone(int ranks, const std::string& scenario, const std::string& communicator) {
  const int port = strata::group::ListeningSocket("127.0.0.1", 0).port();
  std::vector<std::thread> waiting;
  std::vector<Ended> ended(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    waiting.emplace_back([&, rank] {
      const TemporaryFile errors;
      const std::string command =
          "RANK=" + std::to_string(rank) + " LOCAL_RANK=" + std::to_string(rank) +
          " WORLD_SIZE=" + std::to_string(ranks) + " LOCAL_WORLD_SIZE=" + std::to_string(ranks) +
          " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port) + " timeout 60 " STRATA_GROUP_RANKS " " +
          scenario + " 60 " + communicator + " 2>" + errors.path();
      const int status = std::system(command.c_str());
      ended[static_cast<std::size_t>(rank)] = {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), "",
                                               errors.text()};
    });
  for (std::thread& thread : waiting) thread.join();
  return ended;
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

TEST_CASE("every collective on host copies, as for tensors of another device") {
  for (const std::string& communicator : communicators) {
    for (const int ranks : {2, 3}) {
      const Ended ended = play(ranks, "collectives_through_host", 60, communicator);
      INFO(communicator << ", " << ranks << " ranks: " << ended.error);
      CHECK(ended.status == 0);
      CHECK(ended.error == "");
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

TEST_CASE("a rank that computes for longer than the timeout is waited for, and it is said") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(3, "computes_long", 1, communicator);
    INFO(communicator << ": " << ended.error);
    CHECK(ended.status == 0);
    CHECK_THAT(ended.out, Contains("waits for rank 2, which computes in"));
  }
}

TEST_CASE("without a launcher that looks on, a rank that died is told within two seconds") {
  for (const std::string& communicator : communicators) {
    for (const int ranks : {2, 4}) {
      const std::vector<Ended> ended = play_alone(ranks, "dies", communicator);
      CHECK(ended.back().status == 128 + SIGKILL);
      for (int rank = 0; rank + 1 < ranks; ++rank) {
        INFO(communicator << ", rank " << rank << ": " << ended[rank].error);
        CHECK(ended[rank].status == 3);
        CHECK_THAT(ended[rank].error, Contains("rank " + std::to_string(ranks - 1) + " died: its process"));
      }
    }
  }
}

TEST_CASE("a rank that dies while others write to it ends them with an error, not a signal") {
  for (int round = 0; round < 3; ++round) {
    const std::vector<Ended> ended = play_alone(3, "dies_while_written_to", "gloo");
    for (int rank = 0; rank < 2; ++rank) {
      INFO("rank " << rank << ": " << ended[rank].error);
      CHECK(ended[rank].status == 3);
    }
  }
}

TEST_CASE("a stopped rank is reported, with the call of every rank") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(3, "is_stopped", 60, communicator);
    INFO(communicator << ": " << ended.error);
    CHECK(ended.status == 3);
    // The table's columns are as wide as what another rank was doing.
    CHECK_THAT(ended.error, Contains("rank 2 is stopped, not slow") && Matches("[\\s\\S]*all_reduce +world[\\s\\S]*"));
  }
}

TEST_CASE("a rank that another's error ends is told so") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(3, "throws", 60, communicator);
    INFO(communicator << ": " << ended.error);
    CHECK(ended.status == 1);
    CHECK_THAT(ended.error, Contains("an error of the program's own"));
  }
}

TEST_CASE("ranks that wait for each other are told within seconds") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(3, "circle", 60, communicator);
    INFO(communicator << ": " << ended.error);
    CHECK(ended.status == 3);
    CHECK(ended.seconds < 10);
    CHECK_THAT(ended.error,
               Contains("ranks wait for each other") && Contains("rank 0 waits for rank 2 in receive #1 of 28 bytes"));
  }
}

TEST_CASE("a message that is dropped while an error passes leaves its memory alone") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(2, "dropped", 60, communicator);
    INFO(communicator << ": " << ended.error);
    CHECK(ended.status == 0);
  }
}

TEST_CASE("two engines in one set of processes keep their groups apart") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(3, "two_engines", 20, communicator);
    INFO(communicator << ": " << ended.error);
    CHECK(ended.status == 0);
  }
}

TEST_CASE("a rank that does not come to the run is named") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(3, "absent", 1, communicator);
    CHECK(ended.status == 3);
    CHECK(ended.seconds < 10);
    CHECK_THAT(ended.error, Contains("connecting group world: rank 1 of 3 did not arrive within 1"));
  }
}

TEST_CASE("operations behind a failed one fail with it") {
  for (const std::string& communicator : communicators) {
    const Ended ended = play(2, "queued_behind_an_error", 60, communicator);
    CHECK(ended.status == 3);
    CHECK_THAT(ended.error, Contains("all ten failed"));
  }
}

TEST_CASE("ranks compare their loaded plugins") {
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

TEST_CASE("ranks that call different things are told so within five seconds") {
  for (const std::string& communicator : communicators) {
    Ended ended = play(3, "other_size", 60, communicator);
    INFO(communicator << ": " << ended.error);
    CHECK(ended.status == 3);
    // Ranks 1 and 2 both call the other one: whichever looks first tells.
    CHECK_THAT(ended.error, Contains("rank 0 calls all_reduce #1 of 400 bytes (sum) on group world where rank ") &&
                                Contains(" calls all_reduce #1 of 200 bytes"));
    ended = play(2, "other_operation", 60, communicator);
    INFO(communicator << ": " << ended.error);
    CHECK(ended.status == 3);
    CHECK_THAT(ended.error,
               Contains("rank 0 calls all_reduce #1 of 400000 bytes (sum) on group world where rank 1 calls "
                        "broadcast #1 of 400000 bytes (root 1) on group world"));
  }
}
