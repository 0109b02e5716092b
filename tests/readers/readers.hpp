// The readers of bytes that come from outside: the one list of them.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace strata::readers {

struct Reader {
  std::string name;
  std::string file;    // the name that its file has
  std::string source;  // of the tree: where the bytes are parsed
  std::function<void(const std::string& path)> read;
};

const std::vector<Reader>& all_readers();

}  // namespace strata::readers
