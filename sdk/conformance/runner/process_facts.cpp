#include "conformance/runner/process_facts.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <filesystem>
#include <fstream>
#include <locale>
#include <sstream>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "conformance/runner/case.hpp"

namespace strata::conformance {

namespace {

int entries_of(const char* folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

Facts facts_of_this_process() {
  Facts facts;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    const char* const name = ::sigabbrev_np(number);
    if (name == nullptr || ::sigaction(number, nullptr, &action) != 0) continue;
    std::ostringstream handler;
    handler << reinterpret_cast<const void*>(action.sa_sigaction);
    facts[std::string("the handler of SIG") + name] = handler.str();
  }
  for (const auto& [number, name] : {std::pair(0, "standard input"), {1, "standard output"}, {2, "standard error"}}) {
    struct stat file {};
    const bool is_open = ::fstat(number, &file) == 0;
    facts[name] = is_open ? "file " + std::to_string(file.st_dev) + "/" + std::to_string(file.st_ino) : "closed";
  }
  const mode_t mask = ::umask(0);
  ::umask(mask);
  facts["the umask"] = std::to_string(mask);
  std::error_code ignored;
  facts["the working folder"] = std::filesystem::current_path(ignored).string();
  facts["the locale"] = std::setlocale(LC_ALL, nullptr) + std::string(" and ") + std::locale().name();
  std::string environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    environment += std::string(environment.empty() ? "" : " ") + *variable;
  facts["the environment"] = environment;
  facts["libtorch's default dtype"] =
      std::string(c10::typeMetaToScalarType(c10::get_default_dtype()) == at::kFloat ? "fp32" : "another");
  facts["libtorch's deterministic mode"] = at::globalContext().deterministicAlgorithms() ? "on" : "off";
  return facts;
}

Facts facts_of_this_thread() {
  Facts facts;
  facts["the rounding mode"] = std::to_string(std::fegetround());
#if defined(__SSE__)
  facts["the floating-point control (MXCSR)"] = std::to_string(_mm_getcsr() & 0xFFC0U);  // without what happened
#endif
  sigset_t set;
  ::sigemptyset(&set);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &set);
  for (int number = 1; number < NSIG; ++number)
    facts["the blocked signals"] += ::sigismember(&set, number) == 1 ? std::to_string(number) + " " : "";
  facts["libtorch's gradient mode"] = c10::GradMode::is_enabled() ? "on" : "off";
  facts["libtorch's inference mode"] = c10::InferenceMode::is_enabled() ? "on" : "off";
  facts["libtorch's number of threads"] = std::to_string(at::get_num_threads());
  return facts;
}

void require_same(const Facts& before, const Facts& after, const std::string& who) {
  for (const auto& [name, value] : before)
    require(after.at(name) == value,
            who + " changed " + name + " from " + value + " to " + after.at(name) +
                "; everything else in the process shares it, so put it back before you return");
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int threads_of_this_process() {
  return entries_of("/proc/self/task");
}

int open_files_of_this_process() {
  return entries_of("/proc/self/fd") - 1;  // that of the folder itself
}

std::optional<std::int64_t> allocated_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  if (info.arena + info.hblkhd == 0) return std::nullopt;
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace strata::conformance
