// `strata bench`.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace strata::cli {

struct BenchArguments {
  std::string plugin;                 // KIND/NAME, or the absolute path of a library
  std::vector<std::string> settings;  // option=value
  std::vector<std::string> sizes;     // as in 64MiB, or a plain number
  int rounds = 12;
  int threads = 0;  // 0: libtorch's default, or the launcher's
  int nproc = 2;    // ranks to start, if the kind is measured between ranks
  bool oversubscribe = false;
  double seconds = 0.02;
  std::string communicator;
  std::string plugin_path;
  std::string format = "table";
  std::string progress = "auto";  // auto: on a terminal; lines: for ranks whose launcher writes to a terminal; none
  std::vector<std::string> command_line;  // this process's arguments without the program's name, for starting ranks
};

// Measures the plugin and its floor and prints a table. Starts ranks if the kind is measured between ranks. Returns the
// exit status.
int bench_command(const BenchArguments& arguments, std::ostream& out);

}  // namespace strata::cli
