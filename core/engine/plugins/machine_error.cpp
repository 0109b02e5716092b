#include "plugins/machine_error.hpp"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <strata/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <ios>
#include <new>
#include <string_view>
#include <system_error>

#include "interface/src/system_error.hpp"
#include "text/printable.hpp"
#include "text/size.hpp"

namespace strata::plugins {
namespace {

constexpr const char* to_save_memory =
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

std::optional<std::string> out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return std::string("the machine is out of memory") + to_save_memory;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return first_line(error) + to_save_memory;
  if (const std::int64_t bytes = bytes_refused(error.what()); bytes > 0)
    return "the machine is out of memory: " + text::format_bytes(bytes) + " were requested at once" + to_save_memory;
  // oneDNN's, for memory that its code is to be written to
  if (std::string_view(error.what()).starts_with("could not create a primitive"))
    return std::string("the machine is out of memory") + to_save_memory;
  return std::nullopt;
}

std::string describe(const std::error_code& code) {
  const bool is_errno = code.category() == std::generic_category() || code.category() == std::system_category();
  return is_errno ? describe_errno(code.value()) : code.message();
}

// libtorch's errors of sockets and of its store have classes; those of the event loop below it have not.
bool is_of_the_network(const std::exception& error) {
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return true;
  const std::string_view text = error.what();
  for (const char* sign : {"uv loop", "libuv", "Connection reset by peer", "Broken pipe", "Too many open files",
                           "gloo/transport", "Connection closed by peer"})
    if (text.find(sign) != std::string_view::npos) return true;
  return false;
}

}  // namespace

std::string first_line(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  text.resize(std::min(text.find('\n'), text.size()));
  // "[enforce fail at file.cc:63] " and "[/pytorch/file.cc:547] "
  while (text.starts_with("[enforce fail at ") || text.starts_with("[/")) {
    const std::size_t end = text.find("] ");
    if (end == std::string::npos) break;
    text.erase(0, end + 2);
  }
  if (const std::size_t trace = text.find("Exception raised from "); trace != std::string::npos && trace > 0)
    text.resize(trace);
  while (text.ends_with(' ')) text.pop_back();
  return text::printable(text);
}

std::optional<std::string> machine_error(const std::exception& error) {
  if (const std::optional<std::string> memory = out_of_memory(error)) return memory;
  if (const auto* const file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return (file->path1().empty() ? "a file" : file->path1().string()) + " cannot be used: " + describe(file->code());
  if (const auto* const system = dynamic_cast<const std::system_error*>(&error);
      system != nullptr && dynamic_cast<const std::ios_base::failure*>(&error) == nullptr)
    return "the system refused what a run needs: " + describe(system->code());
  if (is_of_the_network(error)) return "the connection between ranks failed: " + first_line(error);
  if (std::string_view(error.what()).find("/dev/urandom") != std::string_view::npos)
    return "the system provides no random numbers: " + first_line(error);
  return std::nullopt;
}

void rethrow_to_program() {
  const auto is_printable = [](const std::exception& error) { return text::printable(error.what()) == error.what(); };
  try {
    throw;
  } catch (const Error& error) {
    if (is_printable(error)) throw;
    const std::string text = text::printable(error.what());
    if (dynamic_cast<const UserError*>(&error) != nullptr) throw UserError(text);
    if (dynamic_cast<const EnvironmentError*>(&error) != nullptr) throw EnvironmentError(text);
    throw;
  } catch (const std::exception& error) {
    if (const std::optional<std::string> text = machine_error(error)) throw EnvironmentError(*text);
    throw;
  }
}

void silence_libraries() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
}

}  // namespace strata::plugins
