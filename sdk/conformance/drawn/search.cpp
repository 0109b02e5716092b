#include "conformance/drawn/search.hpp"

#include <strata/format.hpp>

#include <ATen/Parallel.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "conformance/drawn/left_behind.hpp"
#include "conformance/drawn/replay.hpp"
#include "conformance/drawn/shrink.hpp"
#include "conformance/runner/process_facts.hpp"

namespace strata::conformance {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds longest_world{45};
constexpr int worlds_to_shrink = 400;
constexpr int worlds_to_repeat = 3;
constexpr std::chrono::seconds longest_shrinking{15};

// The result of a world.
struct Found {
  bool fails = false;
  bool hangs = false;
  bool taken = false;
  std::string text;
  std::string told;
  Choices choices;
};

Found carry_out(Subject& subject, const World& world, Draws draws) {
  Found found;
  try {
    const Facts process = facts_of_this_process(), thread = facts_of_this_thread();
    found.taken = world(subject, draws, [&](const std::string& what) { found.told = what; });
    require_same(process, facts_of_this_process(), "a run");
    require_same(thread, facts_of_this_thread(), "a run");
  } catch (const std::exception& error) {
    found.fails = true;
    const std::string text = error.what();
    found.text = text.substr(0, text.find("\nException raised from"));  // libtorch's stack trace
  }
  found.choices = draws.chosen();
  return found;
}

// The report of a process of worlds to its parent, in shared memory.
struct Shared {
  std::atomic<int> world;  // the one under way
  std::atomic<int> taken;
  std::atomic<int> says;  // 1: what follows is of a world that fails
  std::uint64_t choices;
  std::uint64_t choice[1 << 16];
  char text[1 << 14];
  char told[1 << 12];
};

class Page {
 public:
  Page()
      : shared_(static_cast<Shared*>(
            ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    require(shared_ != MAP_FAILED, std::string("the kit has no memory to share: ") + std::strerror(errno));
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  ~Page() { ::munmap(shared_, sizeof(Shared)); }
  Shared* operator->() const { return shared_; }

  // Carries a world out, and writes here what it is before it may crash.
  Found carry_out(Subject& subject, const World& world, Draws draws) const {
    shared_->choices = 0;
    shared_->told[0] = '\0';
    draws.tell([this](std::uint64_t choice) {
      if (shared_->choices < std::size(shared_->choice)) shared_->choice[shared_->choices++] = choice;
    });
    const World telling = [&](Subject& with, Draws& drawn, const Tell& tell) {
      return world(with, drawn, [&](const std::string& what) {
        write(shared_->told, what);
        tell(what);
      });
    };
    const Found found = conformance::carry_out(subject, telling, std::move(draws));
    write(shared_->text, found.text);
    return found;
  }
  Found said() const {
    return {true, false, true, shared_->text, shared_->told, {shared_->choice, shared_->choice + shared_->choices}};
  }

 private:
  template <std::size_t size>
  static void write(char (&into)[size], const std::string& text) {
    std::snprintf(into, size, "%s", text.c_str());
  }
  Shared* shared_;
};

class Search {
 public:
  Search(Subject& subject, std::string_view case_name, int worlds, const World& world)
      : subject_(subject), case_name_(case_name), seeds_(subject.random(case_name)()), worlds_(worlds), world_(world) {
    if (subject.search().seeds > 0) worlds_ = subject.search().seeds;
  }

  void run() {
    const std::string& replay = subject_.search().replay;
    if (!replay.empty()) {
      const Found found = carry_out(subject_, world_, Draws(choices_of(replay)));
      if (found.fails) fail(found);
      require(found.taken, "the plugin refuses the world of --replay");
      return;
    }
    const auto begin = Clock::now();
    const std::chrono::seconds most(subject_.search().seconds);
    for (int first = 0; first < worlds_ || Clock::now() - begin < most; first += worlds_) {
      const std::optional<Found> found = forks() ? in_a_process(worlds_, [&](int i) { return draws_of(first + i); })
                                                 : here(worlds_, [&](int i) { return draws_of(first + i); });
      if (found) fail(smallest(*found));
    }
    if (forks()) {
      std::optional<Found> found = in_a_process(
          worlds_, [&](int i) { return draws_of(i); }, repeated(), worlds_to_repeat);
      if (found) found->choices.clear(), fail(*found);
      folder_.check();
    }
    require(taken_ > 0, format("the plugin refuses every one of {} drawn worlds", worlds_));
  }

 private:
  Draws draws_of(int world) const {
    if (subject_.search().seeds > 0) return Draws(mixed(subject_.random(case_name_, world)(), 0));
    return Draws(mixed(seeds_, static_cast<std::uint64_t>(world)));
  }
  bool forks() const { return !subject_.search().in_process && threads_of_this_process() == 1; }

  // The world, and then often the same again.
  World repeated() const {
    return [this](Subject& subject, Draws& draws, const Tell& tell) {
      if (!world_(subject, draws, tell)) return false;
      require_nothing_left([&] {
        Draws again(draws.chosen());
        world_(subject, again, [](const std::string&) {});
      });
      return true;
    };
  }

  template <class DrawsOf>
  std::optional<Found> here(int worlds, const DrawsOf& draws_of) {
    for (int i = 0; i < worlds; ++i) {
      const Found found = carry_out(subject_, world_, draws_of(i));
      taken_ += found.taken ? 1 : 0;
      if (found.fails) return found;
    }
    return std::nullopt;
  }

  // The first that fails, in a child: it crashes, hangs, prints and leaves behind what it likes. Ends early when the
  // plugin has taken `enough`.
  template <class DrawsOf>
  std::optional<Found> in_a_process(int worlds, const DrawsOf& draws_of) {
    return in_a_process(worlds, draws_of, world_, worlds);
  }
  template <class DrawsOf>
  std::optional<Found> in_a_process(int worlds, const DrawsOf& draws_of, const World& world, int enough) {
    page_->world = 0;
    page_->taken = 0;
    page_->says = 0;
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    require(child >= 0, std::string("the kit cannot start a process: ") + std::strerror(errno));
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) std::_Exit(1);
      at::set_num_threads(1);  // libtorch's pool is made anew after a fork, which ranks must not do at once
      folder_.enter();
      for (int i = 0; i < worlds && page_->taken < enough; ++i) {
        page_->world = i;
        const Found found = page_.carry_out(subject_, world, draws_of(i));
        page_->taken += found.taken ? 1 : 0;
        page_->says = found.fails ? 1 : 0;
        if (found.fails) break;
      }
      std::fflush(nullptr);
      std::_Exit(0);
    }
    int status = 0;
    const bool ended = wait_for(child, status);
    taken_ += page_->taken;
    if (ended && page_->says == 1) return page_.said();
    if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
    Found found = page_.said();  // what it was before it died
    found.hangs = !ended;
    const int number = ended && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const char* const name = number > 0 ? ::sigabbrev_np(number) : nullptr;
    found.text = !ended        ? "it was still running after " + std::to_string(longest_world.count()) + " s"
                 : number == 0 ? "it ended its process with status " + std::to_string(WEXITSTATUS(status))
                               : "its process died of SIG" + std::string(name != nullptr ? name : "?");
    return found;
  }

  // False, and the process is gone, where one world takes too long.
  bool wait_for(pid_t child, int& status) const {
    int world = -1;
    auto since = Clock::now();
    while (::waitpid(child, &status, WNOHANG) == 0) {
      if (page_->world != world) {
        world = page_->world;
        since = Clock::now();
      }
      if (Clock::now() - since > longest_world) {
        ::kill(child, SIGKILL);
        ::waitpid(child, &status, 0);
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

  Found smallest(const Found& first) {
    if (first.hangs) return first;
    const auto until = Clock::now() + longest_shrinking;
    std::vector<Found> failing{first};
    const auto fails = [&](const Choices& choices) -> std::optional<Choices> {
      if (Clock::now() > until) return std::nullopt;
      const auto draws_of = [&](int) { return Draws(choices); };
      const std::optional<Found> found = forks() ? in_a_process(1, draws_of) : here(1, draws_of);
      if (!found || found->hangs) return std::nullopt;
      failing.push_back(*found);
      return found->choices;
    };
    if (!fails(first.choices)) {
      Found alone = first;
      alone.text += "; this comes only after other runs in the same process, so something stays between them; it was " +
                    std::exchange(alone.told, "");
      alone.choices.clear();
      return alone;
    }
    const Choices choices = shrunk(first.choices, worlds_to_shrink, fails);
    return *std::ranges::find(failing, choices, &Found::choices);
  }

  [[noreturn]] static void fail(const Found& found) {
    throw DrawnFailure(found.text + (found.told.empty() ? "" : "; the smallest run that shows it: " + found.told),
                       found.choices.empty() ? "" : replay_of(found.choices));
  }

  Subject& subject_;
  std::string_view case_name_;
  std::uint64_t seeds_;
  int worlds_;
  const World& world_;
  int taken_ = 0;
  Page page_;
  WorkingFolder folder_;
};

}  // namespace

void search(Subject& subject, std::string_view case_name, int worlds, const World& world) {
  Search(subject, case_name, worlds, world).run();
}

}  // namespace strata::conformance
