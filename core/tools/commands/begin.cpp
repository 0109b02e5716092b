#include "tools/commands/begin.hpp"

#include <signal.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <array>
#include <cerrno>
#include <climits>

#include "plugin_host/machine_error.hpp"
#include "text/terminal_output.hpp"
#include "tools/launcher/standard_streams.hpp"

namespace strata::cli {

void begin() {
  open_standard_streams();
  text::print_only_what_is_printable();
  plugin_host::silence_libraries();
  signal(SIGXFSZ, SIG_IGN);
  std::array<char, PATH_MAX> folder{};
  if (getcwd(folder.data(), folder.size()) == nullptr && errno == ENOENT)
    throw EnvironmentError("the working folder was removed; change to one that exists");
}

}  // namespace strata::cli
