#include "communicator/rank_processes.hpp"

#include <ATen/Parallel.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <thread>

namespace strata::conformance {

namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  int from = -1;
  int to = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0)
      throw EnvironmentError(std::string("the kit cannot make a pipe: ") + std::strerror(errno));
    from = ends[0];
    to = ends[1];
  }
};

// One rank's process, in the parent.
struct Child {
  pid_t process = 0;
  int port_to = -1;      // where it waits for the store's port
  int result_from = -1;  // what it says: nothing when all is well
  std::string text;
  bool ended = false;
};

// The child's side: ends the process.
[[noreturn]] void play(Subject& subject, const Launch& launch, int rank, int port_from, int result_to,
                       const std::function<void(const RankProcess&)>& body) {
  std::string text;
  try {
    at::set_num_threads(1);
    int port = 0;
    if (read(port_from, &port, sizeof port) != static_cast<ssize_t>(sizeof port))
      throw EnvironmentError("the parent process sent no store port");
    const launch::LaunchPlace place{launch::Launcher::Torchrun,
                                    rank,
                                    launch.ranks,
                                    rank,
                                    launch.ranks,
                                    "127.0.0.1",
                                    port,
                                    true,
                                    "check",
                                    "127.0.0.1"};
    const auto plugin = subject.make<Communicator>(launch.options, rank, MeshShape{1, launch.ranks, 1});
    const std::unique_ptr<Communicator> other = launch.in_place_of_plugin ? launch.in_place_of_plugin(rank) : nullptr;
    runtime::GroupSettings settings;
    settings.communicator = other != nullptr ? other.get() : &*plugin;
    settings.rank = rank;
    settings.local_rank = rank;
    settings.timeout = launch.timeout;
    settings.interface_address = place.interface_address;
    runtime::GroupFactory factory(std::make_unique<runtime::RunStore>(place, std::chrono::seconds(30)), settings);
    body(RankProcess{rank, launch.ranks, factory});
  } catch (const std::exception& error) {
    text = error.what();
    if (text.empty()) text = "an exception without a message";
  }
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t some = write(result_to, text.data() + done, text.size() - done);
    if (some <= 0) break;
    done += static_cast<std::size_t>(some);
  }
  _exit(text.empty() ? 0 : 1);
}

Child start(Subject& subject, const Launch& launch, int rank, const std::function<void(const RankProcess&)>& body) {
  Pipe port, result;
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0) throw EnvironmentError(std::string("the kit cannot fork: ") + std::strerror(errno));
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(port.to);
    close(result.from);
    play(subject, launch, rank, port.from, result.to, body);
  }
  close(port.from);
  close(result.to);
  return {process, port.to, result.from, {}, false};
}

std::string name(int rank, const Launch& launch) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(launch.ranks);
}

// Reads the pipe; at its end, how the process ended. Empty while the process runs, and if all is well.
std::string collect(Child& child, int rank, const Launch& launch) {
  std::array<char, 4096> part{};
  const ssize_t some = read(child.result_from, part.data(), part.size());
  if (some > 0) {
    child.text.append(part.data(), static_cast<std::size_t>(some));
    return "";
  }
  int status = 0;
  waitpid(child.process, &status, 0);
  child.ended = true;
  if (!child.text.empty()) return name(rank, launch) + ": " + child.text;
  if (WIFSIGNALED(status) && rank != launch.killed)
    return name(rank, launch) + " died of signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    return name(rank, launch) + " ended with status " + std::to_string(WEXITSTATUS(status));
  return "";
}

// The first complaint, or "".
std::string collect_all(std::vector<Child>& children, const Launch& launch) {
  const Clock::time_point end = Clock::now() + launch.limit;
  while (true) {
    std::vector<pollfd> waiting;
    std::vector<int> ranks;
    for (int rank = 0; rank < launch.ranks; ++rank) {
      const Child& child = children[static_cast<std::size_t>(rank)];
      if (child.ended) continue;
      waiting.push_back({child.result_from, POLLIN, 0});
      ranks.push_back(rank);
    }
    if (waiting.empty()) return "";
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0 || poll(waiting.data(), waiting.size(), static_cast<int>(left)) == 0) {
      std::string names;
      for (const int rank : ranks) names += (names.empty() ? "" : ", ") + std::to_string(rank);
      return "after " + std::to_string(launch.limit.count()) + " s rank " + names + " of " +
             std::to_string(launch.ranks) + " was still running: connect(), an operation or shutdown() hangs";
    }
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      const std::string complaint = collect(children[static_cast<std::size_t>(ranks[i])], ranks[i], launch);
      if (!complaint.empty()) return complaint;
    }
  }
}

}  // namespace

std::unique_ptr<CheckedGroup> RankProcess::group(const std::string& group_name, std::vector<int> members) const {
  return factory.make({group_name, std::move(members)});
}

std::unique_ptr<CheckedGroup> RankProcess::world() const {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return group("world", std::move(members));
}

void on_rank_processes(Subject& subject, const Launch& launch, const std::function<void(const RankProcess&)>& body) {
  subject.library();  // once, before the fork
  std::vector<Child> children;
  std::string complaint;
  try {
    for (int rank = 0; rank < launch.ranks; ++rank) children.push_back(start(subject, launch, rank, body));
    const runtime::StoreServer store;  // its thread starts behind the last fork
    const int port = store.port();
    for (const Child& child : children)
      if (write(child.port_to, &port, sizeof port) != static_cast<ssize_t>(sizeof port))
        complaint = "a rank's process ended before the case began";
    if (complaint.empty()) complaint = collect_all(children, launch);
  } catch (const std::exception& error) {
    complaint = error.what();
  }
  for (Child& child : children) {
    close(child.port_to);
    close(child.result_from);
    if (child.ended) continue;
    kill(child.process, SIGKILL);
    waitpid(child.process, nullptr, 0);
  }
  if (!complaint.empty()) throw Failure(complaint);
}

Shared::Shared() {
  void* const memory = mmap(nullptr, sizeof *values_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw EnvironmentError("the kit cannot allocate shared memory");
  values_ = static_cast<std::array<std::atomic<std::int64_t>, 64>*>(memory);  // zeros
}

Shared::~Shared() {
  munmap(values_, sizeof *values_);
}

void Shared::wait_for(int index) const {
  const Clock::time_point end = Clock::now() + std::chrono::minutes(1);
  while ((*this)[index].load() == 0 && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

void require_usable(Subject& subject) {
  const auto plugin = subject.make<Communicator>();
  const std::string reason = plugin->unavailable();
  if (!reason.empty()) throw Skip("the plugin cannot be used here: " + reason);
  const std::vector<std::string> types = plugin->device_types();
  if (std::find(types.begin(), types.end(), "cpu") != types.end()) return;
  throw Skip("the plugin does not support tensors in host memory, which the kit sends");
}

}  // namespace strata::conformance
