#include "tools/commands/begin.hpp"

#include <signal.h>

#include "plugin_host/machine_error.hpp"
#include "text/terminal_output.hpp"
#include "tools/launcher/standard_streams.hpp"

namespace strata::cli {

void begin() {
  open_standard_streams();
  text::print_only_what_is_printable();
  plugin_host::silence_libraries();
  signal(SIGXFSZ, SIG_IGN);
}

}  // namespace strata::cli
