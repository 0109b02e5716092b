#include <signal.h>

#include <set>
#include <thread>

#include "unit/launch/run_in_child.hpp"

using Catch::Matchers::Contains;
using namespace std::chrono_literals;

namespace {

// A run whose ranks are shell scripts.
strata::launch::RankProgram shell(int ranks, const std::string& script) {
  strata::launch::RankProgram program;
  program.ranks = ranks;
  program.program = "/bin/sh";
  program.arguments = {"-c", script};
  program.patience = 500ms;
  return program;
}

bool exists(pid_t process) {
  return kill(process, 0) == 0;
}

// Waits until the file holds `lines` process numbers.
std::set<pid_t> processes_in(const TemporaryFile& file, std::size_t lines) {
  std::set<pid_t> found;
  for (int attempt = 0; attempt < 500 && found.size() < lines; ++attempt) {
    std::this_thread::sleep_for(20ms);
    found.clear();
    std::istringstream numbers(file.text());
    for (pid_t number = 0; numbers >> number;) found.insert(number);
  }
  return found;
}

bool all_gone(const std::set<pid_t>& processes) {
  for (int attempt = 0; attempt < 250; ++attempt) {
    bool any = false;
    for (const pid_t process : processes) any = any || exists(process);
    if (!any) return true;
    std::this_thread::sleep_for(20ms);
  }
  return false;
}

}  // namespace

TEST_CASE("ranks get their places, rank 0's output passes through, the others' is marked") {
  const Ended ended =
      run_in_child(shell(3,
                         "echo \"$RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE at $MASTER_ADDR, threads "
                         "$OMP_NUM_THREADS\"; "
                         "test \"$MASTER_PORT\" -gt 0; echo \"note $RANK\" >&2; printf 'no end of line'"));
  CHECK(ended.status == 0);
  CHECK_THAT(ended.out, Contains("0 of 3, local 0 of 3 at 127.0.0.1, threads 1\n"));  // others may write in between
  CHECK_THAT("\n" + ended.out, Contains("\nno end of line"));
  CHECK_THAT(ended.out, Contains("[rank 2] 2 of 3, local 2 of 3 at 127.0.0.1"));
  CHECK_THAT(ended.out, Contains("[rank 1] no end of line\n"));
  CHECK_THAT(ended.error, Contains("note 0\n") && Contains("[rank 1] note 1\n") && Contains("[rank 2] note 2\n"));
}

TEST_CASE("a rank that fails ends all, with its status and last words") {
  const TemporaryFile numbers;
  const Ended ended =
      run_in_child(shell(3, "echo $$ >> " + numbers.path() +
                                "; if [ $RANK = 1 ]; then echo 'the disk is full' >&2; exit 7; fi; sleep 60"));
  CHECK(ended.status == 7);
  CHECK(ended.seconds < 10);
  CHECK_THAT(ended.error,
             Contains("rank 1 of 3 failed (exit status 7)") && Contains("last words:\n[rank 1] the disk is full\n"));
  CHECK(all_gone(processes_in(numbers, 3)));
}

TEST_CASE("a rank killed by a signal is the cause, not the ranks that notice it") {
  const Ended ended = run_in_child(shell(2, "if [ $RANK = 1 ]; then kill -9 $$; fi; echo 'peer lost' >&2; exit 3"));
  CHECK(ended.status == 128 + SIGKILL);
  CHECK_THAT(ended.error, Contains("rank 1 of 2 failed (killed by signal 9"));
}

TEST_CASE("ranks that ignore the polite signal are killed, and what ranks left behind too") {
  const TemporaryFile numbers;
  const Ended ended =
      run_in_child(shell(2, "sleep 60 & echo $! >> " + numbers.path() + "; trap '' TERM; echo $$ >> " + numbers.path() +
                                "; if [ $RANK = 0 ]; then sleep 0.3; exit 5; fi; while :; do sleep 1; done"));
  CHECK(ended.status == 5);
  CHECK(ended.seconds < 10);
  const std::set<pid_t> processes = processes_in(numbers, 4);
  CHECK(processes.size() == 4);
  CHECK(all_gone(processes));
}

TEST_CASE("SIGINT and SIGTERM are passed on") {
  for (const int number : {SIGINT, SIGTERM}) {
    const TemporaryFile numbers;
    const Ended ended = run_in_child(shell(2, "trap 'echo rank $RANK leaves; exit 0' INT TERM; echo $$ >> " +
                                                  numbers.path() + "; while :; do sleep 0.05; done"),
                                     [&](pid_t child) {
                                       processes_in(numbers, 2);
                                       kill(child, number);
                                     });
    CHECK(ended.status == 128 + number);
    CHECK_THAT(ended.out, Contains("rank 0 leaves") && Contains("[rank 1] rank 1 leaves"));
    CHECK(ended.seconds < 10);
  }
}

TEST_CASE("no rank outlives a killed launcher") {
  const TemporaryFile numbers;
  std::set<pid_t> ranks;
  const Ended ended = run_in_child(shell(2, "echo $$ >> " + numbers.path() + "; exec sleep 60"), [&](pid_t child) {
    ranks = processes_in(numbers, 2);
    kill(child, SIGKILL);
  });
  CHECK(ended.status == 128 + SIGKILL);
  CHECK(ranks.size() == 2);
  CHECK(all_gone(ranks));
}

TEST_CASE("a program that is not there") {
  strata::launch::RankProgram program;
  program.ranks = 2;
  program.program = "/no/such/program";
  const Ended ended = run_in_child(program);
  CHECK(ended.status == 127);
  CHECK_THAT(ended.error, Contains("cannot be started"));
}

TEST_CASE("long lines and much output arrive whole") {
  const Ended ended = run_in_child(
      shell(2,
            "i=0; while [ $i -lt 2000 ]; do echo \"line $i of a rank that talks a lot\"; i=$((i+1)); done; "
            "head -c 200000 /dev/zero | tr '\\0' x; echo; echo end"));
  CHECK(ended.status == 0);
  CHECK_THAT(ended.out, Contains("[rank 1] line 1999 of") && Contains("[rank 1] end\n"));
  CHECK(std::count(ended.out.begin(), ended.out.end(), 'x') == 400000);
}

TEST_CASE("after a signal ranks take the time they need, until a second one") {
  const std::string trap = "trap 'sleep 2; echo rank $RANK saved; exit 130' INT; echo $$ >> ";
  const TemporaryFile numbers;
  const Ended patient =
      run_in_child(shell(2, trap + numbers.path() + "; while :; do sleep 0.05; done"), [&](pid_t child) {
        processes_in(numbers, 2);
        kill(child, SIGINT);
        kill(child, SIGINT);  // what follows at once is the same request
      });
  CHECK(patient.status == 130);
  CHECK_THAT(patient.out, Contains("rank 0 saved") && Contains("[rank 1] rank 1 saved"));
  CHECK(patient.seconds > 1.5);  // longer than its patience, which is for ranks whose peer has failed

  const TemporaryFile others;
  std::set<pid_t> ranks;
  const Ended hasty = run_in_child(
      shell(2, "trap '' INT TERM; echo $$ >> " + others.path() + "; while :; do sleep 0.05; done"), [&](pid_t child) {
        ranks = processes_in(others, 2);
        kill(child, SIGINT);
        std::this_thread::sleep_for(700ms);
        kill(child, SIGINT);
      });
  CHECK(hasty.status == 130);
  CHECK(hasty.seconds < 5);
  CHECK(ranks.size() == 2);
  CHECK(all_gone(ranks));
}

TEST_CASE("a rank that fails after a signal is told, and a rank that the signal killed ends the others") {
  const TemporaryFile numbers;
  const Ended full =
      run_in_child(shell(2, "trap 'if [ $RANK = 1 ]; then echo the disk is full >&2; exit 3; fi' INT; echo $$ >> " +
                                numbers.path() + "; while :; do sleep 0.05; done"),
                   [&](pid_t child) {
                     processes_in(numbers, 2);
                     kill(child, SIGINT);
                   });
  CHECK(full.status == 3);
  CHECK_THAT(full.error, Contains("rank 1 of 2 failed (exit status 3)") && Contains("the disk is full"));
  const TemporaryFile others;
  const Ended early = run_in_child(shell(2, "if [ $RANK = 1 ]; then trap '' INT TERM; fi; echo $$ >> " + others.path() +
                                                "; while :; do sleep 0.05; done"),
                                   [&](pid_t child) {
                                     processes_in(others, 2);
                                     kill(child, SIGINT);
                                   });
  CHECK(early.status == 130);
  CHECK(early.seconds < 5);
}
