#include "runtime/plugin_call.hpp"

#include <c10/util/Exception.h>

namespace strata::runtime {

void rethrow_named(const std::string& plugin, const std::string& function, int rank) {
  const std::string where = plugin + " in " + function + " on rank " + std::to_string(rank) + ": ";
  try {
    throw;
  } catch (const UserError& error) {
    throw UserError(where + error.what());
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(where + error.what());
  } catch (const Bug& error) {
    throw Bug(where + error.what());
  } catch (const c10::Error& error) {
    throw Bug(where + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw Bug(where + error.what());
  } catch (...) {
    throw Bug(where + "an exception that is no std::exception");
  }
}

}  // namespace strata::runtime
