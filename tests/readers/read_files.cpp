// Reads files by the readers of readers.hpp, for tests/kinds/readers_test.py. Without input it lists the readers; each
// line "READER<tab>PATH" of standard input is answered by a line of JSON: how the reader ended.
#include <strata/error.hpp>

#include <iostream>
#include <nlohmann/json.hpp>

#include "readers.hpp"

using namespace strata;
using nlohmann::json;

namespace {

json outcome(const readers::Reader& reader, const std::string& path) {
  try {
    reader.read(path);
    return {{"kind", "read"}, {"text", ""}};
  } catch (const UserError& error) {
    return {{"kind", "user"}, {"text", error.what()}};
  } catch (const EnvironmentError& error) {
    return {{"kind", "environment"}, {"text", error.what()}};
  } catch (const std::exception& error) {
    return {{"kind", "bug"}, {"text", error.what()}};
  }
}

const readers::Reader& named(const std::string& name) {
  for (const readers::Reader& reader : readers::all_readers())
    if (reader.name == name) return reader;
  throw Bug("no reader " + name);
}

}  // namespace

int main(int count, char**) {
  if (count == 1) {
    for (const readers::Reader& reader : readers::all_readers())
      std::cout << json{{"name", reader.name}, {"file", reader.file}, {"source", reader.source}}.dump() << "\n";
    return 0;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const std::size_t tab = line.find('\t');
    std::cout
        << outcome(named(line.substr(0, tab)), line.substr(tab + 1)).dump(-1, ' ', true, json::error_handler_t::replace)
        << std::endl;
  }
}
