#include "tools/command/begin.hpp"

#include <signal.h>

#include "plugins/machine_error.hpp"
#include "text/standard_streams.hpp"
#include "text/terminal_output.hpp"

namespace strata::cli {

void begin() {
  text::open_standard_streams();
  text::print_only_what_is_printable();
  plugins::silence_libraries();
  signal(SIGXFSZ, SIG_IGN);
}

}  // namespace strata::cli
