#include "fuzz.hpp"
#include "tools/data/jsonl.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  read_or_refuse([&] { cli::jsonl_text(text, "text", "a.jsonl", 1); });
}
