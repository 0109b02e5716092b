#include "tools/commands/sudden_end.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "plugin_host/plugin_call.hpp"

namespace strata::cli {

namespace {

pid_t program = 0;  // not what it forks
volatile sig_atomic_t is_expected = 1;

bool is_sudden() {
  return is_expected == 0 && getpid() == program;
}

void write_text(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

// Called in a signal handler too, with a broken heap perhaps: what needs no memory first.
void say(const char* what) {
  is_expected = 1;
  const plugin_host::CallInProgress* const call = plugin_host::CallInProgress::now();
  if (call == nullptr) {
    write_text("strata: a library ended the program with ");
    return write_text((std::string(what) + ", while no plugin's call was in progress\n").c_str());
  }
  write_text("strata: plugin ");
  write_text(call->plugin().c_str());
  write_text(": ended the program with ");
  write_text(what);
  write_text(", in ");
  alarm(2);  // where the heap is locked
  write_text(call->function().c_str());
  alarm(0);
  write_text("; a plugin throws an error where it cannot go on, and the engine ends the run on every rank\n");
}

void take_signal(int number) {
  if (is_sudden()) say(strsignal(number));
  signal(number, SIG_DFL);
  raise(number);
}

void take_exit() {
  if (!is_sudden()) return;
  say("exit()");
  syscall(SYS_exit_group, Bug("").exit_status());
}

}  // namespace

void name_sudden_end() {
  program = getpid();
  is_expected = 0;
  std::atexit(take_exit);
  std::at_quick_exit(take_exit);
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;  // a sanitizer's
    struct sigaction ours {};
    ours.sa_handler = take_signal;
    ours.sa_flags = SA_NODEFER;
    sigaction(number, &ours, nullptr);
  }
}

void expect_end() {
  is_expected = 1;
}

}  // namespace strata::cli

// Both stand for the C library's, which no handler sees.
extern "C" [[gnu::visibility("default")]] void _exit(int status) {
  using namespace strata::cli;
  if (is_sudden()) {
    say("_exit()");
    status = strata::Bug("").exit_status();
  }
  for (;;) syscall(SYS_exit_group, status);
}
extern "C" [[gnu::visibility("default")]] void _Exit(int status) {
  _exit(status);
}
