#include "tools/tokenizer/tokenizer.hpp"

#include "fuzz.hpp"
#include "in_memory.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  const FileInMemory file(text);
  read_or_refuse([&] { tokenizer::Tokenizer tokenizer(file.path()); });
}
