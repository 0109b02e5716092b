// Peers that are late, that never come, or that go.
#include <ATen/ops/zeros.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "conformance/communicator/checks.hpp"
#include "conformance/communicator/rank_threads.hpp"
#include "data/temporary_folder.hpp"

namespace strata::conformance::communicator_checks {

namespace {

using Clock = std::chrono::steady_clock;
using Backend = c10::intrusive_ptr<c10d::Backend>;
using Work = c10::intrusive_ptr<c10d::Work>;
using Instance = fakes::LoadedPlugin<Communicator>;
constexpr std::chrono::seconds longest{30};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Operations of two ranks for which rank 0 needs rank 1; the backend keeps the tensors alive.
constexpr const char* operations[] = {"all_reduce", "broadcast", "a message from rank 1"};
Work start(std::size_t operation, c10d::Backend& backend) {
  std::vector<at::Tensor> tensors{at::zeros({100'000})};
  if (operation == 0) return backend.allreduce(tensors, {});
  if (operation == 1) return backend.broadcast(tensors, {.rootRank = 1});
  return backend.getRank() == 1 ? backend.send(tensors, 0, 0) : backend.recv(tensors, 1, 0);
}

Backend connect(Communicator& plugin, const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                const std::string& name, std::chrono::milliseconds timeout) {
  return plugin.connect(c10::make_intrusive<c10d::PrefixStore>(name, store), {.name = name,
                                                                              .rank = rank,
                                                                              .size = ranks,
                                                                              .timeout = timeout,
                                                                              .interface_address = "127.0.0.1",
                                                                              .local_rank = rank});
}

// Two ranks that are threads, and a group of both for each operation. Ranks that never come back keep it.
struct Pair {
  Pair(Subject& subject, std::chrono::milliseconds timeout)
      : plugins{subject.make<Communicator>({}, 0, {{Axis::Data, 2}}),
                subject.make<Communicator>({}, 1, {{Axis::Data, 2}})} {
    require_usable(subject);
    threads.run("connect()", longest, [&](int rank) {
      for (const char* const operation : operations)
        groups[rank].push_back(connect(*plugins[rank], store, rank, 2, operation, timeout));
    });
  }
  // Rank 0's error of an operation that it waits for; "" if it ends without an exception.
  static std::string error_of(const Work& work) {
    try {
      work->wait(kNoTimeout);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  void shut_down() {
    threads.run("shutdown()", longest, [&](int rank) {
      for (const Backend& group : groups[rank]) group->shutdown();
    });
  }

  Instance plugins[2];
  c10::intrusive_ptr<c10d::HashStore> store = c10::make_intrusive<c10d::HashStore>();
  std::vector<Backend> groups[2];
  RankThreads threads{2};
};

}  // namespace

void require_usable(Subject& subject) {
  const auto plugin = subject.make<Communicator>();
  const std::string reason = plugin->unavailable();
  require(reason.find('\n') == std::string::npos && (reason.empty() || reason.size() > 10),
          "unavailable() is '" + reason + "'; it must be empty, or one sentence on one line");
  const std::vector<std::string> types = plugin->device_types();
  require(!types.empty() && std::set<std::string>(types.begin(), types.end()).size() == types.size(),
          "device_types() must list the device types of the tensors, e.g. cpu or cuda, each once");
  for (const std::string& type : types) {
    try {
      const at::Device device(type);
      require(!device.has_index() && !device.is_meta(),
              "device_types() holds '" + type + "'; it must list device types without an index");
    } catch (const c10::Error&) {
      throw Failure("device_types() holds '" + type + "', which is no device type of libtorch");
    }
  }
  if (!reason.empty()) throw Skip("the plugin cannot be used here: " + reason);
  if (std::ranges::count(types, "cpu") == 0)
    throw Skip("the plugin does not support tensors in host memory, which the kit sends");
}

void waits_for_a_slow_peer(Subject& subject) {
  const auto pair = std::make_shared<Pair>(subject, std::chrono::seconds(1));
  pair->threads.run("an operation whose peer is late", longest, [pair](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    std::vector<Work> works;
    for (std::size_t i = 0; i < std::size(operations); ++i) works.push_back(start(i, *pair->groups[rank][i]));
    for (std::size_t i = 0; i < works.size(); ++i) {
      const std::string error = Pair::error_of(works[i]);
      require(error.empty(), std::string(operations[i]) +
                                 " with a rank that computed for 2.5 s failed after the timeout of 1 s: " + error +
                                 "; waits must have no timeout: the engine calls abort()");
    }
  });
  pair->shut_down();
}

void abort_ends_waits(Subject& subject) {
  const auto pair = std::make_shared<Pair>(subject, longest);
  std::vector<Work> works;
  for (std::size_t i = 0; i < std::size(operations); ++i) works.push_back(start(i, *pair->groups[0][i]));
  pair->threads.run("an operation, or one after it, after abort()", longest, [pair, works](int rank) {
    if (rank == 1) {  // the engine's watch
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      for (const Backend& group : pair->groups[0]) group->abort();
      return;
    }
    const Clock::time_point begin = Clock::now();
    for (std::size_t i = 0; i < works.size(); ++i)
      require(!Pair::error_of(works[i]).empty(),
              std::string(operations[i]) + " returned without an error after abort(), though its peer never came");
    require(seconds_since(begin) <= 3.0,
            format("operations failed only {} s after they began, 0.3 s before abort(); each must fail within 1 s",
                   seconds_since(begin)));
    bool failed = false;
    try {
      failed = !Pair::error_of(start(0, *pair->groups[0][0])).empty();
    } catch (const std::exception&) {
      failed = true;
    }
    require(failed, "an all_reduce that is started after abort() returned without an error");
  });
  pair->shut_down();
}

void shutdown_does_not_wait(Subject& subject) {
  const auto pair = std::make_shared<Pair>(subject, longest);
  for (std::size_t i = 0; i < std::size(operations); ++i)  // leaked, as in a run that ends by an error
    new Work(start(i, *pair->groups[0][i]));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  pair->threads.run("shutdown() during operations whose peer is absent", std::chrono::seconds(5), [pair](int rank) {
    for (const Backend& group : pair->groups[0])
      if (rank == 0) group->shutdown();
  });
}

void connect_has_a_deadline(Subject& subject) {
  require_usable(subject);
  RankThreads threads(1);
  threads.run("connect() with a missing rank and a timeout of 1 s", std::chrono::seconds(5), [&subject](int) {
    const auto plugin = subject.make<Communicator>();
    try {
      connect(*plugin, c10::make_intrusive<c10d::HashStore>(), 0, 2, "world", std::chrono::seconds(1));
    } catch (const EnvironmentError&) {
      return;
    } catch (const std::exception& error) {
      throw Failure(std::string("connect() with a missing rank must throw an EnvironmentError; it threw ") +
                    error.what());
    }
    throw Failure("connect() with a missing rank returned");
  });
}

// Ranks are processes here, and the last dies.
void lost_peer(Subject& subject) {
  require_usable(subject);
  constexpr int ranks = 3;
  static const char* const said[] = {"", "returned without an error",
                                     "failed only after 6 s; it must fail within seconds", "could not connect"};
  std::string file = data::temporary_files() + "/strata-kit-XXXXXX";
  const int descriptor = ::mkstemp(file.data());
  require(descriptor >= 0, "the kit cannot make a file at " + file + "; set TMPDIR");
  ::close(descriptor);
  const auto play = [&](int rank) {
    const auto plugin = subject.make<Communicator>({}, rank, {{Axis::Data, ranks}});
    const auto store = c10::make_intrusive<c10d::FileStore>(file, ranks);
    const Backend world = connect(*plugin, store, rank, ranks, "world", longest);
    start(0, *world)->wait(kNoTimeout);
    if (rank == ranks - 1) ::raise(SIGKILL);
    std::thread([world] {  // the engine's watch, where no connection reports it
      std::this_thread::sleep_for(std::chrono::seconds(3));
      world->abort();
    })
        .detach();
    const Clock::time_point begin = Clock::now();
    try {
      start(0, *world)->wait(kNoTimeout);
      return 1;
    } catch (const std::exception&) {
      return seconds_since(begin) <= 6.0 ? 0 : 2;
    }
  };
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.push_back(::fork());
    require(processes.back() >= 0, "the kit cannot fork");
    if (processes.back() > 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = 3;
    try {
      status = play(rank);
    } catch (const std::exception&) {
    }
    ::_exit(status);
  }
  std::string found;
  const Clock::time_point begin = Clock::now();
  for (int left = ranks; left > 0;) {  // whoever ends first: one that is not waited for is still there for its peers
    const bool is_late = seconds_since(begin) > 20.0;
    for (int rank = 0; rank < ranks; ++rank) {
      pid_t& process = processes[static_cast<std::size_t>(rank)];
      const std::string what = format("an all_reduce with a killed rank, on rank {} of 3, ", rank);
      int status = 0;
      if (process > 0 && is_late) ::kill(process, SIGKILL);
      if (process == 0 || ::waitpid(process, &status, is_late ? 0 : WNOHANG) == 0) continue;
      process = 0;
      --left;
      if (is_late)
        found = what + "was still waiting after 20 s";
      else if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        found = what + said[std::min(WEXITSTATUS(status), 3)];
      else if (WIFSIGNALED(status) && rank != ranks - 1)
        found = format("{}ended its process by signal {}", what, WTERMSIG(status));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::filesystem::remove(file);
  require(found.empty(), found);
}

}  // namespace strata::conformance::communicator_checks
