#include "text/terminal_output.hpp"

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <streambuf>
#include <string>
#include <string_view>

#include "text/printable.hpp"

namespace strata::text {
namespace {

constexpr std::string_view to_clear_line = "\r\033[K";

// True for a line of gloo's own log, "[/path/gloo/transport/tcp/file.cc:9] ERROR ...": the same error is also thrown,
// and gloo's own least level, ERROR, cannot be switched off.
bool is_log_of_gloo(std::string_view piece) {
  return piece.starts_with("[/") && piece.substr(0, piece.find(']')).find("/gloo/") != std::string_view::npos &&
         std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr;
}

// Passes printable text on to another buffer, without what libraries log.
class TerminalOutput final : public std::streambuf {
 public:
  explicit TerminalOutput(std::streambuf* out) : out_(out) {}

  void command(std::string_view bytes) { put(bytes); }
  int error() const { return error_; }

 protected:
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    if (is_log_of_gloo({bytes, static_cast<std::size_t>(count)})) return count;
    const bool written = put(printable_.add({bytes, static_cast<std::size_t>(count)}));
    return written ? count : 0;
  }
  int_type overflow(int_type byte) override {
    if (traits_type::eq_int_type(byte, traits_type::eof())) return traits_type::not_eof(byte);
    const char one = traits_type::to_char_type(byte);
    return xsputn(&one, 1) == 1 ? byte : traits_type::eof();
  }
  int sync() override {
    errno = 0;
    const int result = out_->pubsync();
    if (result != 0) note_error();
    return result;
  }

 private:
  bool put(std::string_view bytes) {
    errno = 0;
    const auto count = static_cast<std::streamsize>(bytes.size());
    if (out_->sputn(bytes.data(), count) == count) return true;
    note_error();
    return false;
  }
  void note_error() {
    if (error_ == 0) error_ = errno == 0 ? EIO : errno;
  }

  std::streambuf* out_;
  Printable printable_;
  int error_ = 0;
};

TerminalOutput* of_stream(const std::ostream& out) {
  return dynamic_cast<TerminalOutput*>(out.rdbuf());
}

}  // namespace

void print_only_what_is_printable() {
  for (std::ostream* const out : {&std::cout, &std::cerr, &std::clog})
    if (of_stream(*out) == nullptr) out->rdbuf(new TerminalOutput(out->rdbuf()));  // used to the end of the process
}

std::ostream& clear_line(std::ostream& out) {
  if (TerminalOutput* const terminal = of_stream(out)) {
    terminal->command(to_clear_line);
    return out;
  }
  return out << to_clear_line;
}

int output_error() {
  const TerminalOutput* const terminal = of_stream(std::cout);
  return terminal == nullptr ? 0 : terminal->error();
}

}  // namespace strata::text
