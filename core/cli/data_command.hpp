// defines: DataPackOptions, DataInfoOptions, data_pack, data_info
// `strata data pack` and `strata data info`. Both return the exit status and throw strata::Error.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace strata::cli {

struct DataPackOptions {
  std::vector<std::string> inputs;  // files and folders
  std::string output;
  std::string width;   // "u16", "u32", or "" for what the output's name says
  bool force = false;  // replace an existing output
};

struct DataInfoOptions {
  std::string file;
  std::int64_t seq_len = 0;
  std::string width;            // as above, of the file's name
  std::string format = "text";  // "text" or "json" (one object)
};

// Results go to `out`; progress of work that takes longer than two seconds goes to `err`, a line every two seconds.
int data_pack(const DataPackOptions& options, std::ostream& out, std::ostream& err);
int data_info(const DataInfoOptions& options, std::ostream& out, std::ostream& err);

}  // namespace strata::cli
