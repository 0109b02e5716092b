#include "plugin_host/out_of_memory.hpp"

#include <c10/util/Exception.h>

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

std::optional<std::string> out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return std::string("the machine is out of memory") + advice;
  if (const auto* const device = dynamic_cast<const c10::OutOfMemoryError*>(&error)) {
    const std::string text = device->what_without_backtrace();
    return text.substr(0, text.find('\n')) + advice;
  }
  if (const std::int64_t bytes = bytes_refused(error.what()); bytes > 0)
    return "the machine is out of memory: " + config::format_bytes(bytes) + " were requested at once" + advice;
  return std::nullopt;
}

}  // namespace strata::plugin_host
