#pragma once
#include "data/file.hpp"

namespace strata::cli {

// True if the first `lines` lines that are not blank are JSON objects. Of a line longer than 64 KiB only the first key
// is checked.
bool begins_with_objects(const InputFile& file, int lines);
// True if the file begins with a JSON list whose first element is an object.
bool begins_with_list(const InputFile& file);

}  // namespace strata::cli
