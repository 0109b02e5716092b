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
  int threads = 0;  // 0: what libtorch takes, or the launcher gave
  int nproc = 2;    // ranks to start, where the kind is measured between ranks
  bool oversubscribe = false;
  double seconds = 0.02;
  std::string communicator;
  std::string plugin_path;
  std::string format = "table";
  std::string progress = "auto";          // auto: on a terminal; lines: for ranks, whose launcher writes to one; none
  std::vector<std::string> command_line;  // this process's arguments without its name: what ranks are started with
};

// Measures the plugin beside its floor and prints a table. A kind that is measured between ranks has them started here.
// Returns the exit status.
int bench_command(const BenchArguments& arguments, std::ostream& out);

}  // namespace strata::cli
