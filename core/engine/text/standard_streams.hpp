#pragma once
#include <fcntl.h>
#include <unistd.h>

namespace strata::text {

// Opens /dev/null for each of standard input, output and error that is closed.
inline void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    const int opened = open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);  // the lowest free number
    if (opened < 0 || opened == stream) continue;
    dup2(opened, stream);
    close(opened);
  }
}

}  // namespace strata::text
