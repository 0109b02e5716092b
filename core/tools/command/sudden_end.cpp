#include "tools/command/sudden_end.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>

#include "plugins/machine_error.hpp"
#include "plugins/plugin_call.hpp"
#include "text/printable.hpp"

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
  const plugins::CallInProgress* const call = plugins::CallInProgress::now();
  if (call == nullptr) {
    write_text("strata: a library ended the program with ");
    return write_text((std::string(what) + ", while no plugin's call was in progress\n").c_str());
  }
  write_text("strata: plugin ");
  write_text(text::printable(call->plugin()).c_str());
  write_text(": ended the program with ");
  write_text(what);
  write_text(", in ");
  alarm(2);  // where the heap is locked
  write_text(text::printable(call->function()).c_str());
  alarm(0);
  write_text("; a plugin must throw an error instead, with which the engine ends the run on every rank\n");
}

void take_signal(int number) {
  if (is_sudden()) say(strsignal(number));
  signal(number, SIG_DFL);
  raise(number);
}

// An exception in a thread of the program, or of a library.
[[noreturn]] void take_exception() {
  const std::exception_ptr caught = std::current_exception();
  try {
    if (caught && is_sudden()) std::rethrow_exception(caught);
  } catch (const std::exception& error) {
    const int status = report(error);
    if (status == EnvironmentError("").exit_status()) syscall(SYS_exit_group, status);
  } catch (...) {
  }
  std::abort();
}

// The handlers of this thread run on a stack of their own: the usual one may be what has no room left.
void give_handlers_a_stack() {
  constexpr std::size_t bytes = std::size_t{64} << 10;
  static const auto* const memory = new std::array<char, bytes>;
  stack_t stack{};
  stack.ss_sp = const_cast<char*>(memory->data());
  stack.ss_size = bytes;
  sigaltstack(&stack, nullptr);
}

void take_exit() {
  if (!is_sudden()) return;
  say("exit()");
  syscall(SYS_exit_group, Bug("").exit_status());
}

}  // namespace

int report(const std::exception& error) {
  const auto print = [](const std::string& text, int status) {
    std::cerr << "strata: " << text << std::endl;
    return status;
  };
  if (const auto* const ours = dynamic_cast<const Error*>(&error)) return print(ours->what(), ours->exit_status());
  if (const std::optional<std::string> text = plugins::machine_error(error))
    return print(*text, EnvironmentError(*text).exit_status());
  return print("internal error: " + plugins::first_line(error), Bug("").exit_status());
}

void name_sudden_end() {
  program = getpid();
  is_expected = 0;
  std::set_terminate(take_exception);
  give_handlers_a_stack();
  std::atexit(take_exit);
  std::at_quick_exit(take_exit);
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;  // a sanitizer's
    struct sigaction ours {};
    ours.sa_handler = take_signal;
    ours.sa_flags = SA_NODEFER | SA_ONSTACK;
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
