#include "resolve/dialect.hpp"

#include <algorithm>

namespace strata::resolve {

namespace {
std::vector<std::unique_ptr<const Dialect>>& dialects() {
  static std::vector<std::unique_ptr<const Dialect>> all;
  return all;
}
}  // namespace

std::string DialectLine::one_line() const {
  const std::string what = key.empty() ? "" : ": " + key + (value.empty() ? "" : " " + value);
  return origin + what + ": " + text;
}

void say_derived(Translation& translation, const std::vector<config::Resolved>& listing) {
  for (DialectLine& line : translation.lines) {
    const auto found =
        std::ranges::find_if(listing, [&](const config::Resolved& one) { return one.path == line.derived; });
    if (found == listing.end()) continue;
    const std::string value = config::to_text(found->value);
    const bool told = found->origin.starts_with(value + ",");  // "1, as only one batch size is given"
    line.text = line.derived + " = " + (told ? found->origin : value + ": " + found->origin);
  }
}

void add_dialect(std::unique_ptr<const Dialect> dialect) {
  dialects().push_back(std::move(dialect));
}

const Dialect* dialect_of(const config::Node& config) {
  const auto found = std::ranges::find_if(dialects(), [&](const auto& one) { return one->recognises(config); });
  return found == dialects().end() ? nullptr : found->get();
}

}  // namespace strata::resolve
