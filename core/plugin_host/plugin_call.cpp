#include "plugin_host/plugin_call.hpp"

#include <c10/util/Exception.h>
#include <strata/error.hpp>

#include <exception>

#include "plugin_host/out_of_memory.hpp"

namespace strata::plugin_host {
namespace {

// libtorch appends a stack trace after the first line of an error.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

void rethrow_from_plugin(const std::string& plugin, const std::string& function) {
  const std::string where = "plugin " + plugin + ": " + function + ": ";
  try {
    throw;
  } catch (const UserError& error) {
    throw UserError(where + error.what());
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(where + error.what());
  } catch (const c10::DistError& error) {
    throw EnvironmentError(where + first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    if (const std::optional<std::string> text = out_of_memory(error)) throw EnvironmentError(where + *text);
    throw Bug(where + first_line(error.what()));
  } catch (...) {
    throw Bug(where + "threw something that is not a std::exception");
  }
}

}  // namespace strata::plugin_host
