#include <signal.h>
#include <sys/resource.h>
#include <strata/error.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "unit/tools/ranks/run_in_child.hpp"

using Catch::Matchers::Contains;
using namespace std::chrono_literals;

namespace {

// A run whose ranks are shell scripts.
strata::ranks::RankProgram shell(int ranks, const std::string& script) {
  strata::ranks::RankProgram program;
  program.ranks = ranks;
  program.program = "/bin/sh";
  program.arguments = {"-c", script};
  program.patience = 500ms;
  program.answer = "asked to end\n";
  return program;
}

int times(const std::string& part, const std::string& text) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
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

bool has_ended(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child;
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
  CHECK_THAT(ended.error, Contains("rank 1 of 3 failed (exit status 7)") && Contains("Its last output is above."));
  CHECK(times("the disk is full", ended.error) == 1);
  CHECK(times("asked to end", ended.error) == 0);  // nobody was
  CHECK(all_gone(processes_in(numbers, 3)));
}

TEST_CASE("a rank killed by a signal is the cause, not the ranks that notice it") {
  const Ended ended = run_in_child(shell(2, "if [ $RANK = 1 ]; then kill -9 $$; fi; echo 'peer lost' >&2; exit 3"));
  CHECK(ended.status == 128 + SIGKILL);
  CHECK_THAT(ended.error, Contains("rank 1 of 2 failed (killed by signal 9") && Contains("memory"));
}

TEST_CASE("an error common to all ranks is printed once") {
  const Ended all = run_in_child(shell(3, "echo 'strata: the folder is not there' >&2; sleep 0.$RANK; exit 2"));
  CHECK(all.status == 2);
  CHECK(times("the folder is not there", all.error) == 1);
  CHECK_THAT(all.error, Contains("failed (exit status 2)") && Contains("Its last output is above."));
  const Ended buried = run_in_child(shell(2,
                                          "if [ $RANK = 1 ]; then echo 'strata: the disk is full' >&2; sleep 0.2; exit "
                                          "2; fi; sleep 0.1; echo going on >&2; sleep 9"));
  CHECK_THAT(buried.error, Contains("Its last output:\n[rank 1] strata: the disk is full\n"));
}

TEST_CASE("far more ranks than cores or memory are refused, unless overridden") {
  using strata::ranks::check_ranks;
  using strata::ranks::HostResources;
  constexpr std::int64_t gibi = std::int64_t{1} << 30;
  const auto refusal = [](int ranks, const HostResources& host) -> std::string {
    try {
      check_ranks(ranks, false, host);
    } catch (const strata::UserError& error) {
      return error.what();
    }
    return "";
  };
  CHECK_THAT(refusal(1000, {2, 64 * gibi, 0, 0}), Contains("--nproc is 1000") && Contains("2 cores") &&
                                                      Contains("at most 32 ranks") && Contains("--oversubscribe"));
  CHECK(refusal(32, {2, 64 * gibi, 0, 0}).empty());
  CHECK(refusal(4, {2, gibi, gibi, 0}).empty());
  CHECK_THAT(refusal(32, {2, gibi, gibi, 0}),
             Contains("1.00 GiB of memory are free in this container") && Contains("64.00 MiB"));
  CHECK(refusal(32, {2, 0, 0, 0}).empty());  // unknown
  CHECK_NOTHROW(check_ranks(1000, true, {2, gibi, 0, 0}));
  const Ended ended = run_in_child(shell(4096, "exit 0"));  // a host with 256 cores may
  if (strata::ranks::host_resources().cores < 256)
    CHECK_THAT(ended.error, Contains("run_ranks threw: --nproc is 4096"));
}

TEST_CASE("the files that ranks need open are made possible, or asked for") {
  const auto with_limit = [](rlim_t soft, rlim_t hard) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit limit{soft, hard};
      setrlimit(RLIMIT_NOFILE, &limit);
      const Ended ended = run_in_child(shell(2, "exit 0"));
      const bool told = ended.error.find("ulimit -n") != std::string::npos &&
                        ended.error.find("`ulimit -n` is 12") != std::string::npos;
      _exit(ended.status == 0 ? 0 : told ? 1 : 2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  CHECK(with_limit(12, 12) == 1);
  CHECK(with_limit(12, 1024) == 0);
}

TEST_CASE("ranks that ignore SIGTERM are killed, and their descendants too") {
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

// As where a thread waits in the kernel for a disk that does not answer, which nothing can end.
TEST_CASE("a rank that has failed and does not end cannot be ended yet") {
  const TemporaryFile numbers;
  const std::string ends_its_main_thread =
      "import ctypes, os, sys, threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); "
      "print('the disk is stuck', file=sys.stderr, flush=True); "
      "ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 3)";  // exit, of this thread
  const Ended ended =
      run_in_child(shell(2, "echo $$ >> " + numbers.path() + "; if [ $RANK = 1 ]; then exec python3 -c \"" +
                                ends_its_main_thread + "\"; fi; sleep 60"));
  CHECK(ended.status == 3);
  CHECK(ended.seconds < 20);
  CHECK_THAT(ended.error, Contains("rank 1 of 2 failed (exit status 3)") && Contains("strata: rank 1 (process ") &&
                              Contains("cannot be ended yet"));
  CHECK(all_gone(processes_in(numbers, 2)));
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
    CHECK(times("asked to end", ended.error) == 1);
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
  strata::ranks::RankProgram program;
  program.ranks = 2;
  program.program = "/no/such/program";
  const Ended ended = run_in_child(program);
  CHECK(ended.status == 2);
  CHECK_THAT(ended.error, Contains("cannot be started: No such file or directory"));
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

TEST_CASE("a rank's failure after a signal is reported, a death by it ends the others") {
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

TEST_CASE("a stopped rank ends the run in every state of the launcher") {
  struct Stop {
    const char* state;
    int status;
    const char* rank_0;  // what it does at SIGTERM
    const char* told;
  };
  const Stop stops[] = {
      {"running", 3, "exit 0", "was stopped for more than 0.3 s; all ranks are ended"},
      {"asked to end while it is stopped", 128 + SIGTERM, "exit 143", "was stopped and could not end"},
      {"asked to end", 128 + SIGTERM, "", "was stopped and could not end"},
      {"others have left", 128 + SIGTERM, "exit 143", "was stopped and could not end"}};
  for (const Stop& stop : stops) {
    INFO(stop.state);
    const TemporaryFile numbers;
    std::set<pid_t> ranks;
    strata::ranks::RankProgram program =
        shell(2, std::string("if [ $RANK = 0 ]; then trap '") + stop.rank_0 + "' TERM; else trap '' TERM; echo $$ > " +
                     numbers.path() + "; fi; while :; do sleep 0.05; done");
    program.longest_stop = 300ms;
    const Ended ended = run_in_child(program, [&](pid_t child) {
      ranks = processes_in(numbers, 1);
      const std::string state = stop.state;
      if (state == "asked to end" || state == "others have left") {
        kill(child, SIGTERM);
        std::this_thread::sleep_for(300ms);
      }
      for (const pid_t rank : ranks) kill(rank, SIGSTOP);
      if (state == "asked to end while it is stopped") kill(child, SIGTERM);
      for (int attempt = 0; attempt < 250 && !has_ended(child); ++attempt) std::this_thread::sleep_for(20ms);
      for (const pid_t rank : ranks) kill(rank, SIGCONT);
      CHECK(has_ended(child));
      kill(child, SIGTERM);  // again, so that this test ends
    });
    CHECK(ended.status == stop.status);
    CHECK_THAT(ended.error, Contains("rank 1 is stopped, not slow") && Contains(stop.told) && !Contains("memory"));
    CHECK(all_gone(ranks));
  }
}
