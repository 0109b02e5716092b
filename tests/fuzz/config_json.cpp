#include "config/tree.hpp"
#include "fuzz.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  read_or_refuse([&] { config::flow_text(config::read_text(text, config::Format::Json, "a.json")); });
}
