#include "plugins/plugin_call.hpp"

#include <c10/util/Exception.h>
#include <strata/error.hpp>
#include <strata/plugin_kind.hpp>

#include <atomic>

#include "plugins/floating_point.hpp"
#include "plugins/machine_error.hpp"

namespace strata::plugins {
namespace {

// Whether libtorch's error is about an operator that needs values, which meta tensors do not have.
bool needs_values(const std::string& text) {
  for (const char* sign : {"meta tensor", "Meta tensor", "on Meta", "'Meta' backend", "Meta kernel", "fake impl"})
    if (text.find(sign) != std::string::npos) return true;
  return false;
}

constexpr const char* on_meta =
    "; before a run, and in `strata plan`, plugins compute on meta tensors, which have shapes and no values: use "
    "operators whose result shapes do not depend on values, read no value on the host (item(), to the CPU, "
    "data_ptr()), and skip work that needs values if tensor.is_meta()";

// Whether an error begins with a plugin's name, as in "offload/nvme: path is empty".
bool names_a_plugin(const std::string& text) {
  const std::string first = text.substr(0, text.find(": "));
  const std::size_t slash = first.find('/');
  return slash != std::string::npos && plugin_kind_from_string(first.substr(0, slash)).has_value();
}

thread_local const CallInProgress* innermost = nullptr;
std::atomic<const CallInProgress*> newest{nullptr};

}  // namespace

CallInProgress::CallInProgress(const std::string& plugin, const void* function, std::string (*text_of)(const void*))
    : plugin_(plugin),
      function_(function),
      text_of_(text_of),
      outer_(innermost),
      floating_point_(floating_point_control()) {
  newest = innermost = this;
}

CallInProgress::~CallInProgress() {
  newest = innermost = outer_;
}

void CallInProgress::check_floating_point() const {
  const std::string change = changed_floating_point(floating_point_);
  if (!change.empty()) throw Bug(change);
}

const CallInProgress* CallInProgress::now() {
  return innermost != nullptr ? innermost : newest.load();
}

void rethrow_from_plugin(const std::string& plugin, const std::string& function) {
  const std::string where = "plugin " + plugin + ": " + function + ": ";  // a plugin's author reads it
  try {
    throw;
  } catch (const UserError& error) {
    const std::string text = error.what();
    throw UserError(names_a_plugin(text) ? text : plugin + ": " + text);
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(where + error.what());
  } catch (const c10::DistError& error) {
    throw EnvironmentError(where + first_line(error));
  } catch (const std::exception& error) {
    if (const std::optional<std::string> text = machine_error(error)) throw EnvironmentError(where + *text);
    const std::string text = first_line(error);
    throw Bug(where + text + (needs_values(text) ? on_meta : ""));
  } catch (...) {
    throw Bug("{}threw something that is not a std::exception", where);
  }
}

}  // namespace strata::plugins
