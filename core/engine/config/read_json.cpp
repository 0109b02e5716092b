// [Note: places] nlohmann's SAX interface reports no positions, but it calls back as soon as a token is read: how far
// its input stream has come tells where the token ends (a number is noticed one character late).
#include <nlohmann/json.hpp>
#include <sstream>

#include "config/tree_builder.hpp"
#include "text/json.hpp"

namespace strata::config {
namespace {

class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonEvents(const SourceText& source, std::istream& stream) : source_(source), stream_(stream), builder_(source) {}

  bool null() override { return builder_.null(word_place(4)), true; }
  bool boolean(bool value) override {
    const std::string text = value ? "true" : "false";
    return builder_.scalar(word_place(text.size()), text, false), true;
  }
  bool number_integer(number_integer_t) override { return number(); }
  bool number_unsigned(number_unsigned_t) override { return number(); }
  bool number_float(number_float_t, const string_t&) override { return number(); }
  bool string(string_t& value) override { return builder_.scalar(string_place(), value, true), true; }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return builder_.begin_map(word_place(1)), true; }
  bool key(string_t& value) override { return builder_.key(string_place(), value), true; }
  bool end_object() override { return builder_.end(), true; }
  bool start_array(std::size_t) override { return builder_.begin_sequence(word_place(1)), true; }
  bool end_array() override { return builder_.end(), true; }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    throw UserError(source_.place(std::max<std::size_t>(consumed(), 1) - 1), "not valid JSON: {}",
                    text::json_problem(error.what()));
  }

  Node finish() { return builder_.finish(); }

 private:
  std::size_t consumed() const {
    return static_cast<std::size_t>(std::streamoff(stream_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in)));
  }

  Place word_place(std::size_t length) const { return source_.place(consumed() - length); }

  // Back from the closing quote to the opening one: a quote inside the string follows an odd number of backslashes.
  Place string_place() const {
    const std::string& text = source_.text();
    std::size_t at = consumed() - 1;
    while (at > 0) {
      at = text.rfind('"', at - 1);
      const std::size_t other = at == 0 ? std::string::npos : text.find_last_not_of('\\', at - 1);
      const std::size_t backslashes = other == std::string::npos ? at : at - 1 - other;
      if (backslashes % 2 == 0) break;
    }
    return source_.place(at);
  }

  bool number() {
    const std::string& text = source_.text();
    const char* characters = "0123456789+-.eE";
    const std::size_t last = text.find_last_of(characters, consumed() - 1);
    const std::size_t before = text.find_last_not_of(characters, last);
    const std::size_t first = before == std::string::npos ? 0 : before + 1;
    builder_.scalar(source_.place(first), text.substr(first, last + 1 - first), false);
    return true;
  }

  const SourceText& source_;
  std::istream& stream_;
  TreeBuilder builder_;
};

}  // namespace

Node parse_json(const SourceText& source) {
  if (source.blank()) return {};
  std::istringstream stream(source.text());
  JsonEvents events(source, stream);
  nlohmann::json::sax_parse(stream, &events, nlohmann::json::input_format_t::json, /*strict=*/true,
                            /*ignore_comments=*/true);
  return events.finish();
}

}  // namespace strata::config
