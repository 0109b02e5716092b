#include "plugin_host/plugin_call.hpp"

#include <c10/util/Exception.h>
#include <strata/error.hpp>

#include <charconv>
#include <cstdint>
#include <new>

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

}  // namespace

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
    throw Bug(where + first_line(error));
  } catch (...) {
    throw Bug(where + "threw something that is not a std::exception");
  }
}

}  // namespace strata::plugin_host
