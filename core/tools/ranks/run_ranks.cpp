#include "tools/ranks/run_ranks.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <set>

#include "group/address.hpp"
#include "group/random_name.hpp"
#include "group/store_server.hpp"
#include "interface/src/system_error.hpp"
#include "text/printable.hpp"
#include "text/size.hpp"
#include "tools/ranks/host_resources.hpp"
#include "tools/ranks/rank_process.hpp"
#include "tools/ranks/signal_reader.hpp"

namespace strata::ranks {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// After the first failure the other ranks soon report a lost peer; failures are collected for this long to find the
// cause.
constexpr milliseconds collecting{150};
// Signals within this time of a request count as the same request: `timeout` and terminals may signal twice.
constexpr milliseconds same_request{500};
// Time for the other ranks to leave after the first has left without an error.
constexpr milliseconds last_leave{60'000};
// The first SIGTERM asks a rank to finish its step, which it may never do without its peer; the second ends it at once.
constexpr milliseconds reminder{1000};

Variables variables_of(int rank, int ranks, int port, const std::string& run, int cores) {
  Variables variables{{"RANK", std::to_string(rank)},
                      {"LOCAL_RANK", std::to_string(rank)},
                      {"WORLD_SIZE", std::to_string(ranks)},
                      {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", std::to_string(port)},
                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                      {"TORCHELASTIC_RUN_ID", run},
                      {"TORCHELASTIC_RESTART_COUNT", "0"}};
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    variables.emplace_back("OMP_NUM_THREADS", std::to_string(std::max(1, cores / ranks)));
  return variables;
}

// How likely a failure is the cause of the others: most likely a signal (not ours), least likely an EnvironmentError
// (3), with which a rank reports that another one is lost.
int weight(const RankProcess& process) {
  constexpr int lost_peer = 3;
  if (process.status() > 128) return 2;
  return process.status() == lost_peer ? 0 : 1;
}

// The state of the run. Collecting, Ending and Killed have a deadline. Running and Leaving last as long as the ranks
// work: a rank that waits for a failed one ends itself, and a stopped one, which cannot, is killed. Transitions:
//   Running -> Collecting     a rank failed: what else fails in the same moment is looked at before the cause is named
//   Collecting -> Ending      the others got SIGTERM
//   Running -> Ending         a rank was stopped for too long, or is when this process is asked to end
//   Running -> Leaving        this process was asked to end; the ranks got the same signal and leave in their own time
//   Leaving -> Ending         a rank has left; or one has failed or is stopped, so the others cannot finish their step
//   Ending -> Ending          a moment later: SIGTERM again
//   Ending -> Killed          patience is over: SIGKILL
//   any -> Killed             a second request came
//   Killed -> Killed          every second; at last, ranks that do not end are left behind
class Ranks {
 public:
  explicit Ranks(const RankProgram& program)
      : server_(socket_, run_ + "/0"),  // ranks add the count of restarts to the name
        patience_(program.patience),
        longest_stop_(program.longest_stop),
        answer_(program.answer) {
    const std::string path = program.program.empty() ? running_executable().string() : program.program;
    for (int rank = 0; rank < program.ranks; ++rank)
      processes_.emplace_back(rank, path, program.arguments,
                              variables_of(rank, program.ranks, server_.port(), run_, host_.cores), errors_);
  }

  int run() {
    while (running()) {
      wait_for_news();
      pass_on_output();
      take_stops();
      if (const std::optional<int> request = signals_.next_request()) take_request(*request);
      for (RankProcess& process : processes_)
        if (process.reap() && process.status() != 0) take_failure(process);
      if (has_deadline() && Clock::now() >= deadline_) take_deadline();
    }
    for (int i = 0; i < 2; ++i) pass_on_output();  // first the data left in the pipes, then their ends
    name_those_left();
    if (stopped_ != nullptr && cause_ == nullptr) report_stop();
    if (cause_ == nullptr)
      return request_ != 0 ? 128 + request_ : stopped_ != nullptr ? EnvironmentError("").exit_status() : 0;
    report();
    return cause_->status();
  }

 private:
  enum class State { Running, Collecting, Leaving, Ending, Killed };

  bool has_deadline() const { return state_ != State::Running && state_ != State::Leaving; }

  bool running() const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [](const RankProcess& process) { return !process.ended(); });
  }

  void wait_for_news() {
    std::vector<pollfd> watched{{signals_.handle(), POLLIN, 0}};
    for (RankProcess& process : processes_)
      for (const LineReader* reader : process.outputs()) watched.push_back({reader->handle(), POLLIN, 0});
    milliseconds limit{told_of_stop_.empty() ? 1000 : 100};  // the kernel does not wake us for a stop
    if (has_deadline())
      limit = std::clamp(std::chrono::ceil<milliseconds>(deadline_ - Clock::now()), milliseconds{0}, limit);
    poll(watched.data(), watched.size(), static_cast<int>(limit.count()));
  }

  void pass_on_output() {
    for (RankProcess& process : processes_)
      for (LineReader* reader : process.outputs()) reader->read();
  }

  // A stopped rank cannot report why the others wait, and before the rendezvous no other rank can.
  void take_stops() {
    for (RankProcess& process : processes_) {
      const std::optional<milliseconds> stopped = process.stopped_for();
      if (!stopped) {
        told_of_stop_.erase(process.rank());
        continue;
      }
      if (told_of_stop_.insert(process.rank()).second)
        std::fprintf(stderr,
                     "strata: rank %d is stopped, not slow: its process %d was stopped by SIGSTOP or Ctrl-Z; SIGCONT "
                     "continues it\n",
                     process.rank(), process.number());
      if (*stopped >= longest_stop_) end_stopped(process);
    }
  }

  void end_stopped(RankProcess& process) {
    if (state_ == State::Collecting || state_ == State::Killed) return;  // their deadlines are short
    stopped_ = &process;
    if (state_ == State::Ending) return process.signal(SIGKILL);
    end_all(SIGTERM);
  }

  void take_failure(const RankProcess& process) {
    if (state_ == State::Leaving) return take_failure_while_leaving(process);
    if (state_ != State::Running && state_ != State::Collecting) return;  // we stopped it
    if (cause_ == nullptr || weight(process) > weight(*cause_)) cause_ = &process;
    if (state_ == State::Running) move_to(State::Collecting, collecting);
  }

  // A rank that left on request returns 128 + signal. A rank killed by the signal had not started its loop; the others
  // would wait for it.
  void take_failure_while_leaving(const RankProcess& process) {
    const bool asked = process.status() == 128 + request_;
    if (asked && !process.killed())
      return move_to(State::Ending, last_leave);  // all ranks have finished their last step
    if (!asked) cause_ = &process;
    end_all(SIGTERM);
  }

  void take_request(int number) {
    if (request_ != 0) {
      if (Clock::now() - request_time_ >= same_request) kill_all();
      return;
    }
    request_ = number;
    request_time_ = Clock::now();
    if (state_ != State::Running) return;  // it is ending already
    for (RankProcess& process : processes_)
      if (process.stopped_for()) return end_stopped(process);
    std::fputs(answer_.c_str(), stderr);
    signal_all(number);
    state_ = State::Leaving;
  }

  void take_deadline() {
    if (state_ == State::Collecting) return end_all(SIGTERM);
    if (state_ == State::Ending && !std::exchange(reminded_, true)) {
      signal_all(SIGTERM);
      return move_to(State::Ending, patience_);
    }
    kill_all();
    if (Clock::now() < last_patience_) return;
    for (RankProcess& process : processes_) process.abandon();
  }

  // A stopped process takes no other signal than SIGKILL before it is continued.
  void signal_all(int number) {
    for (RankProcess& process : processes_)
      if (!process.ended()) process.signal(number == SIGTERM && process.stopped_for() ? SIGKILL : number);
  }

  void end_all(int number) {
    signal_all(number);
    move_to(State::Ending, std::min(reminder, patience_));
  }

  void kill_all() {
    signal_all(SIGKILL);
    if (state_ != State::Killed) last_patience_ = Clock::now() + ends_within;
    move_to(State::Killed, milliseconds{1000});
  }

  void name_those_left() const {
    for (const RankProcess& process : processes_)
      if (process.left())
        std::fprintf(stderr,
                     "strata: rank %d (process %d) cannot be ended yet: it waits in the kernel, for example for a disk "
                     "that does not respond, and ends after that wait\n",
                     process.rank(), process.number());
  }

  void move_to(State state, milliseconds limit) {
    state_ = state;
    deadline_ = Clock::now() + limit;
  }

  // Signal 9 comes from a person, or from the kernel when memory runs out.
  std::string about_memory() const {
    const HostResources now = host_resources();
    const std::string limit = text::format_bytes(now.container_limit);
    const std::string advice =
        "; use fewer ranks or a smaller train.micro_batch (`strata plan` shows what a step needs).";
    if (now.killed > host_.killed && now.container_limit > 0)
      return "The kernel killed it because the container reached its memory limit of " + limit + advice;
    return "The kernel does this when memory runs out; " +
           (now.container_limit > 0 ? "this container's memory limit is " + limit
                                    : text::format_bytes(now.memory_available) + " are free on this host now") +
           advice;
  }

  void report_stop() const {
    std::fprintf(stderr, "strata: rank %d of %zu (process %d) was stopped ", stopped_->rank(), processes_.size(),
                 stopped_->number());
    if (request_ != 0)
      std::fprintf(stderr, "and could not end; it was killed\n");
    else
      std::fprintf(stderr, "for more than %g s; all ranks are ended\n",
                   std::chrono::duration<double>(longest_stop_).count());
  }

  void report() const {
    std::string text = format("strata: rank {} of {} failed ({}); all ranks are stopped.", cause_->rank(),
                              processes_.size(), cause_->fate());
    if (cause_->status() == 128 + SIGKILL) text += " " + about_memory();
    const bool silent = cause_->last_words().empty();
    const bool buried = !silent && errors_.said_since(cause_->rank());
    text += silent   ? " It wrote nothing to standard error.\n"
            : buried ? " Its last output:\n"
                     : " Its last output is above.\n";
    if (buried)
      for (const std::string& line : cause_->last_words()) text += format("[rank {}] {}\n", cause_->rank(), line);
    std::fputs(text::printable(text).c_str(), stderr);
    std::fflush(stderr);
  }

  SignalReader signals_;
  const HostResources host_ = host_resources();  // at the start of the run
  ErrorLines errors_;
  const std::string run_ = nproc_run + group::random_name();  // who does not have it from us cannot read or end the run
  group::ListeningSocket socket_{"127.0.0.1", 0};
  group::StoreServer server_;
  milliseconds patience_, longest_stop_;
  std::string answer_;
  std::deque<RankProcess> processes_;
  State state_ = State::Running;
  Clock::time_point deadline_;       // of the state; none in Running
  Clock::time_point last_patience_;  // in Killed
  const RankProcess* cause_ = nullptr;
  const RankProcess* stopped_ = nullptr;  // ended the run by being stopped
  std::set<int> told_of_stop_;
  bool reminded_ = false;
  int request_ = 0;
  Clock::time_point request_time_;
};

}  // namespace

std::filesystem::path running_executable() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw EnvironmentError("cannot find the running executable: {}", describe_errno(error.value()));
  return path;
}

int run_ranks(const RankProgram& program) {
  strata_check(program.ranks >= 1, "a run has at least one rank");
  check_ranks(program.ranks, program.oversubscribe, host_resources());
  allow_open_files(program.ranks);
  return Ranks(program).run();
}

}  // namespace strata::ranks
