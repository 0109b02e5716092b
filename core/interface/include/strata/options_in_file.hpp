#pragma once
#include <strata/export.hpp>
#include <strata/options.hpp>

#include <string_view>

namespace strata {

// With this a model reports in configure() which of its options the config.json sets:
// PluginContext::extension(OptionsInFile::id), null if the host does not ask. A run config that gives such an option
// another value is refused, and config listings show the file's value.
class STRATA_EXPORT OptionsInFile {
 public:
  static constexpr const char* id = "strata.options_in_file/1";
  virtual ~OptionsInFile();
  // `key` of the file sets `option` to this value.
  virtual void take(std::string_view option, const OptionValue& value, std::string_view key) = 0;
};

}  // namespace strata
