#include "plugin_host/plugin_call.hpp"

#include <c10/util/Exception.h>
#include <strata/error.hpp>

#include <exception>
#include <new>

namespace strata::plugin_host {
namespace {

// libtorch's errors carry a stack trace behind their first line.
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
  } catch (const std::bad_alloc&) {
    throw EnvironmentError(where + "the machine is out of memory");
  } catch (const c10::OutOfMemoryError& error) {
    throw EnvironmentError(where + first_line(error.what_without_backtrace()));
  } catch (const c10::DistError& error) {
    throw EnvironmentError(where + first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw Bug(where + first_line(error.what()));
  } catch (...) {
    throw Bug(where + "threw something that is not a std::exception");
  }
}

}  // namespace strata::plugin_host
