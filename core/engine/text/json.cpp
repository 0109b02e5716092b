// [Note: events, not callbacks] nlohmann's parser with a callback looks through all siblings at the end of each object,
// which takes quadratic time, and without one it keeps the last of two equal keys. So its events are taken.
#include "text/json.hpp"

#include <fmt/format.h>
#include <strata/error.hpp>

#include <algorithm>

#include "text/printable.hpp"

namespace strata::text {
namespace {

using nlohmann::json;

Place place_in(const JsonSource& source, std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n') + 1;  // 0 where there is none
  const auto characters = std::count_if(before.begin() + static_cast<std::ptrdiff_t>(start), before.end(),
                                        [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; });
  const auto bounded = [](std::ptrdiff_t number) {
    return static_cast<int>(std::min<std::ptrdiff_t>(number, 1 << 30));
  };
  return {source.file, bounded(source.line + lines), bounded(characters) + 1};
}

[[noreturn]] void refuse_text(const JsonSource& source, std::string_view text, std::size_t offset,
                              const std::string& what) {
  if (source.part.empty()) throw UserError(place_in(source, text, offset), what);
  throw UserError(Place{source.file}, "{} {}, at its byte {}", source.part, what, offset);
}

// Builds the value from the parser's events.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(std::string_view text, const JsonSource& source, const JsonLimits& limits)
      : text_(text), source_(source), limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const auto [place, added] = open_.back()->get_ref<json::object_t&>().try_emplace(name);
    if (!added) refuse("the key '" + one_line(name) + "' occurs twice");
    member_ = &place->second;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    refuse_text(source_, text_, std::max<std::size_t>(position, 1) - 1,
                "is not valid JSON: " + json_problem(error.what()));
  }

  json finish() { return std::move(root_); }

 private:
  [[noreturn]] void refuse(const std::string& what) const { throw UserError(Place{source_.file}, what); }

  json* put(json value) {
    if (++values_ > limits_.values)
      refuse(fmt::format("holds more than {} values, too many for a file of this kind", limits_.values));
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_object()) return &(*member_ = std::move(value));
    return &open_.back()->get_ref<json::array_t&>().emplace_back(std::move(value));
  }
  bool add(json value) { return put(std::move(value)) != nullptr; }
  bool open(json value) {
    if (open_.size() == static_cast<std::size_t>(JsonLimits::depth))
      refuse(fmt::format("holds JSON nested deeper than {} levels", JsonLimits::depth));
    open_.push_back(put(std::move(value)));
    return true;
  }
  bool close() { return open_.pop_back(), true; }

  std::string_view text_;
  const JsonSource& source_;
  const JsonLimits& limits_;
  json root_;
  std::vector<json*> open_;  // a list grows at its end only, and the open one stays in its place until it is closed
  json* member_ = nullptr;   // of the innermost object: the value of the key that was read
  std::size_t values_ = 0;
};

void check_size(const JsonSource& source, std::uint64_t bytes, const JsonLimits& limits) {
  if (bytes <= limits.bytes) return;
  throw UserError(Place{source.file}, (source.part.empty() ? "" : source.part + " ") +
                                          fmt::format("holds {} bytes, and {} of its kind at most {}", bytes,
                                                      source.part.empty() ? "a file" : "one", limits.bytes));
}

// Writes the key of `wanted` within `value`, the innermost part first; false where it is not there.
bool find_key(const json& value, const json& wanted, std::string& key) {
  if (&value == &wanted) return true;
  if (const auto* const members = value.get_ptr<const json::object_t*>()) {
    for (const auto& [name, member] : *members)
      if (find_key(member, wanted, key)) {
        key = one_line(name, 100) + (key.empty() || key.front() == '[' ? "" : ".") + key;
        return true;
      }
  } else if (const auto* const elements = value.get_ptr<const json::array_t*>()) {
    for (std::size_t index = 0; index < elements->size(); ++index)
      if (find_key((*elements)[index], wanted, key)) {
        key = fmt::format("[{}]", index) + (key.empty() || key.front() == '[' ? "" : ".") + key;
        return true;
      }
  }
  return false;
}

}  // namespace

JsonDocument::JsonDocument(std::string_view text, JsonSource source, const JsonLimits& limits)
    : source_(std::move(source)) {
  check_size(source_, text.size(), limits);
  Builder builder(text, source_, limits);
  json::sax_parse(text.begin(), text.end(), &builder);
  json_ = builder.finish();
}

JsonDocument read_json(const InputFile& file, const JsonLimits& limits) {
  check_size({file.path()}, file.size(), limits);
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  return {text, {file.path()}, limits};
}

JsonValue JsonDocument::root() const {
  return {*this, json_};
}

JsonValue JsonDocument::object() const {
  root().check(json_.is_object(), "an object { ... } is expected");
  return root();
}

std::string JsonValue::key() const {
  std::string key;
  find_key(document_->json(), *json_, key);
  return key;
}

void JsonValue::refuse(const std::string& rule) const {
  const JsonSource& source = document_->source();
  const std::string where = key();
  const std::string subject = !where.empty()        ? where
                              : source.part.empty() ? std::string("the JSON in it")
                                                    : source.part;
  throw UserError(source.line > 1 ? Place{source.file, source.line} : Place{source.file}, "{} is {}; {}", subject,
                  shown(*json_), rule);
}

std::optional<JsonValue> JsonValue::find(std::string_view name) const {
  check(json_->is_object(), "it must be an object { ... }");
  const auto& members = json_->get_ref<const json::object_t&>();
  const auto found = members.find(name);
  if (found == members.end() || found->second.is_null()) return std::nullopt;
  return JsonValue(*document_, found->second);
}

JsonValue JsonValue::operator[](const char* name) const {
  if (const std::optional<JsonValue> found = find(name)) return *found;
  const std::string where = key();
  throw UserError(Place{document_->source().file}, "the key {}{}{} is missing", where, where.empty() ? "" : ".", name);
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  check(json_->is_object(), "it must be an object { ... }");
  std::vector<std::pair<std::string, JsonValue>> all;
  all.reserve(json_->size());
  for (const auto& [name, value] : json_->get_ref<const json::object_t&>())
    all.emplace_back(name, JsonValue(*document_, value));
  return all;
}

std::vector<JsonValue> JsonValue::elements() const {
  check(json_->is_array(), "it must be a list [ ... ]");
  std::vector<JsonValue> all;
  all.reserve(json_->size());
  for (const nlohmann::json& value : json_->get_ref<const nlohmann::json::array_t&>())
    all.emplace_back(*document_, value);
  return all;
}

std::string JsonValue::text() const {
  check(json_->is_string(), "it must be a text \"...\"");
  return json_->get<std::string>();
}

bool JsonValue::flag() const {
  check(json_->is_boolean(), "it must be true or false");
  return json_->get<bool>();
}

double JsonValue::number() const {
  check(json_->is_number(), "it must be a number");
  return json_->get<double>();
}

std::int64_t JsonValue::integer() const {
  const bool fits = !json_->is_number_unsigned() || json_->get<std::uint64_t>() <= INT64_MAX;
  check(json_->is_number_integer() && fits, "it must be an integer of 64 bits");
  return json_->get<std::int64_t>();
}

std::int64_t JsonValue::count() const {
  const bool counts = json_->is_number_unsigned() && json_->get<std::uint64_t>() <= largest_count;
  check(counts, fmt::format("it must be an integer from 0 to {}", largest_count));
  return json_->get<std::int64_t>();
}

std::vector<std::int64_t> JsonValue::shape() const {
  std::vector<std::int64_t> sizes;
  for (const JsonValue& size : elements()) sizes.push_back(size.count());
  check(product(sizes).has_value(), fmt::format("it must be a shape of at most {} elements", largest_count));
  return sizes;
}

// Of "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing value - unexpected
// end of input; expected ..." the end.
std::string json_problem(const std::string& what) {
  std::size_t begin = what.find("] ");
  begin = begin == std::string::npos ? 0 : begin + 2;
  if (const std::size_t column = what.find("column "); column != std::string::npos)
    if (const std::size_t colon = what.find(": ", column); colon != std::string::npos) begin = colon + 2;
  if (what.compare(begin, 12, "syntax error") == 0)
    if (const std::size_t dash = what.find(" - ", begin); dash != std::string::npos) begin = dash + 3;
  return one_line(std::string_view(what).substr(begin), 160);
}

std::optional<std::int64_t> product(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(count, size, &count) || count > largest_count) return std::nullopt;
  return count;
}

std::string shown(const json& value) {
  if (const auto* const text = value.get_ptr<const json::string_t*>()) return '"' + one_line(*text, 60) + '"';
  const auto many = [](std::size_t count, const char* what) {
    return count == 0   ? std::string("empty")
           : count == 1 ? std::string("of 1 ") + what
                        : fmt::format("of {} {}s", count, what);
  };
  if (value.is_object()) return value.empty() ? "{}" : "an object " + many(value.size(), "key");
  if (!value.is_array()) return value.dump();
  const bool flat = value.size() <= 8 && std::ranges::all_of(value, [](const json& one) { return one.is_number(); });
  return flat ? value.dump() : "a list " + many(value.size(), "element");
}

}  // namespace strata::text
