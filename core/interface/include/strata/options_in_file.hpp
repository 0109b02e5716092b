#pragma once
#include <strata/export.hpp>
#include <strata/options.hpp>

#include <string_view>

namespace strata {

// Receives a model's report, made in configure(), of the options that the config.json sets:
// PluginContext::extension(OptionsInFile::id), null if the host needs no report. A run config that sets such an option
// to another value is refused, and config listings show the file's value.
class STRATA_EXPORT OptionsInFile {
 public:
  static constexpr const char* id = "strata.options_in_file/1";
  virtual ~OptionsInFile();
  // Records that `key` of the file sets `option` to `value`.
  virtual void take(std::string_view option, const OptionValue& value, std::string_view key) = 0;
};

}  // namespace strata
