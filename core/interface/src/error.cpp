#include <strata/error.hpp>

namespace strata {

std::string to_string(const Place& place) {
  std::string text = place.file;
  if (!text.empty() && place.line > 0) {
    text += format(":{}", place.line);
    if (place.column > 0) text += format(":{}", place.column);
  }
  return text;
}

namespace {
std::string at(const Place& place, const std::string& text) {
  const std::string where = to_string(place);
  return where.empty() ? text : where + ": " + text;
}
}  // namespace

Error::~Error() = default;
UserError::UserError(const Place& place, const std::string& text) : Error(at(place, text)) {}
UserError::~UserError() = default;
EnvironmentError::~EnvironmentError() = default;
Bug::Bug(const std::string& text, SourcePlace where)
    : Error(std::string(where.file) + ":" + std::to_string(where.line) + ": " + text) {}
Bug::~Bug() = default;

}  // namespace strata
