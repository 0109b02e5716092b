#include "text/json.hpp"

#include "fuzz.hpp"
#include "text/printable.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  const std::string printed = text::printable(text);
  if (text::printable(printed) != printed) __builtin_trap();
  read_or_refuse([&] {
    const text::JsonDocument document(text, {"a.json"});
    if (document.json() != nlohmann::json::parse(text)) __builtin_trap();
    if (text::shown(document.json()).size() > 2000) __builtin_trap();
  });
}
