#include "config/tree.hpp"
#include "fuzz.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  read_or_refuse([&] { config::parse_setting(text); });
}
