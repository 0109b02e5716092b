// The one reader of JSON that comes from a file or from another process. It is bounded and takes time in proportion to
// the text; a key that occurs twice in an object is an error. Every error is a UserError with the file, the place and
// the key.
#pragma once
#include <strata/input_file.hpp>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::text {

// Limits of a text; more is refused.
struct JsonLimits {
  std::size_t bytes = std::size_t{16} << 20;
  std::size_t values = std::size_t{1} << 22;  // an object or a list counts as one
  static constexpr int depth = 64;            // objects and lists within each other
};

// Source of a text.
struct JsonSource {
  std::string file;       // file name, the prefix of every message
  std::string part = {};  // part of the file, "its header"; empty: the whole file
  int line = 1;           // line of the file in which the text begins
};

class JsonValue;

// A parsed text.
class JsonDocument {
 public:
  // Throws UserError.
  JsonDocument(std::string_view text, JsonSource source, const JsonLimits& limits = {});
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  const JsonSource& source() const { return source_; }
  const nlohmann::json& json() const { return json_; }
  JsonValue root() const;
  // Returns root(), which must be an object.
  JsonValue object() const;

 private:
  JsonSource source_;
  nlohmann::json json_;
};

// Reads a whole file, which must be a regular one.
JsonDocument read_json(const InputFile& file, const JsonLimits& limits = {});

// A value of a document, which must outlive it. A typed getter throws UserError "FILE: KEY is VALUE; RULE" for a value
// of another type.
class JsonValue {
 public:
  JsonValue(const JsonDocument& document, const nlohmann::json& json) : document_(&document), json_(&json) {}

  const nlohmann::json& json() const { return *json_; }
  const std::string& file() const { return document_->source().file; }
  std::string key() const;  // "files[2].name"; empty for the root
  [[noreturn]] void refuse(const std::string& rule) const;
  void check(bool holds, const std::string& rule) const {
    if (!holds) refuse(rule);
  }

  // Members of an object.
  JsonValue operator[](const char* name) const;                // a member, which must exist
  std::optional<JsonValue> find(std::string_view name) const;  // empty if absent or null
  std::vector<std::pair<std::string, JsonValue>> members() const;
  std::vector<JsonValue> elements() const;  // elements of a list

  std::string text() const;
  bool flag() const;
  double number() const;
  std::int64_t integer() const;
  std::int64_t count() const;               // an integer from 0 up to largest_count
  std::vector<std::int64_t> shape() const;  // a list of counts, whose product is one too

 private:
  const JsonDocument* document_;
  const nlohmann::json* json_;
};

// Largest number of elements: with 16 bytes each they are just within an int64 of bytes.
inline constexpr std::int64_t largest_count = std::int64_t{1} << 59;

// Returns the product of a shape's sizes; empty if one is negative or the product exceeds largest_count.
std::optional<std::int64_t> product(const std::vector<std::int64_t>& shape);

// Returns the problem in a message of nlohmann's exceptions, without the library's number, position and grammar.
std::string json_problem(const std::string& what);

// Returns a value for a message: printable, short for any size.
std::string shown(const nlohmann::json& value);

}  // namespace strata::text
