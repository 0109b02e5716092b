#include "data/jsonl.hpp"
#include "fuzz.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  read_or_refuse([&] { data::jsonl_text(text, "text", "a.jsonl", 1); });
}
