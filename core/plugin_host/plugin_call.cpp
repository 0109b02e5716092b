#include "plugin_host/plugin_call.hpp"

#include <c10/util/Exception.h>
#include <strata/error.hpp>

#include <atomic>
#include <charconv>
#include <cstdint>
#include <new>

#include "plugin_host/floating_point.hpp"
#include "text/size.hpp"

namespace strata::plugin_host {
namespace {

constexpr const char* advice =
    "; reduce train.micro_batch or model.seq_len, use more ranks, or set activations.checkpoint=all; `strata plan` "
    "shows "
    "what a step needs";

// The bytes in libtorch's error about host memory, which has no class of its own; 0 for any other text.
std::int64_t bytes_refused(const std::string& text) {
  const std::string sign = "DefaultCPUAllocator: can't allocate memory: you tried to allocate ";
  const std::size_t at = text.find(sign);
  std::int64_t bytes = 0;
  if (at != std::string::npos) std::from_chars(text.data() + at + sign.size(), text.data() + text.size(), bytes);
  return bytes;
}

// Whether libtorch says that an operator needs values, which tensors on meta do not have.
bool needs_values(const std::string& text) {
  for (const char* sign : {"meta tensor", "Meta tensor", "on Meta", "'Meta' backend", "Meta kernel", "fake impl"})
    if (text.find(sign) != std::string::npos) return true;
  return false;
}

constexpr const char* on_meta =
    "; before a run, and in `strata plan`, plugins compute on meta tensors, which have shapes and no values: use "
    "operators whose result has a shape that does not depend on values, read no value on the host (item(), to the CPU, "
    "data_ptr()), and leave out what needs one where tensor.is_meta()";

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

std::string first_line(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

std::optional<std::string> out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return std::string("the machine is out of memory") + advice;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return first_line(error) + advice;
  if (const std::int64_t bytes = bytes_refused(error.what()); bytes > 0)
    return "the machine is out of memory: " + config::format_bytes(bytes) + " were requested at once" + advice;
  return std::nullopt;
}

void rethrow_from_plugin(const std::string& plugin, const std::string& function) {
  const std::string where = "plugin " + plugin + ": " + function + ": ";
  try {
    throw;
  } catch (const UserError& error) {
    throw UserError(where + error.what());
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(where + error.what());
  } catch (const c10::DistError& error) {
    throw EnvironmentError(where + first_line(error));
  } catch (const std::exception& error) {
    if (const std::optional<std::string> text = out_of_memory(error)) throw EnvironmentError(where + *text);
    const std::string text = first_line(error);
    throw Bug(where + text + (needs_values(text) ? on_meta : ""));
  } catch (...) {
    throw Bug(where + "threw something that is not a std::exception");
  }
}

}  // namespace strata::plugin_host
