#pragma once
#include <strata/export.hpp>
#include <strata/options.hpp>

#include <string_view>

namespace strata {

// How a model says in configure() which of its options a config.json decides:
// PluginContext::extension(OptionsInFile::id), null where nobody asks. A config that gives such an option another value
// is refused, and what is printed of the run has the file's values.
class STRATA_EXPORT OptionsInFile {
 public:
  static constexpr const char* id = "strata.options_in_file/1";
  virtual ~OptionsInFile();
  // The file's `key` gives `option` this value.
  virtual void take(std::string_view option, const OptionValue& value, std::string_view key) = 0;
};

}  // namespace strata
