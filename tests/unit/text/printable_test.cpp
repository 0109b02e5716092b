#include "text/printable.hpp"

#include <iostream>
#include <sstream>

#include "catch.hpp"
#include "text/terminal_output.hpp"

using namespace strata::text;

TEST_CASE("control characters and invalid UTF-8 are escaped") {
  CHECK(printable("plain, with\ttabs and\nlines") == "plain, with\ttabs and\nlines");
  CHECK(printable("\x1b]0;x\x07\r\x7f") == "\\u001b]0;x\\u0007\\u000d\\u007f");
  CHECK(printable("\xc2\x80\xc2\x9f\xc2\xa0") == "\\u0080\\u009f\xc2\xa0");
  CHECK(printable("\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80") == "\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80");
  CHECK(printable("\x9b ") == "\\x9b ");
  CHECK(printable("\xc3") == "\\xc3");
  CHECK(printable("\xe4\xb8z") == "\\xe4\\xb8z");
  CHECK(printable("\xc0\x80") == "\\xc0\\x80");               // overlong
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");      // half of a UTF-16 pair
  CHECK(printable("\xf4\x90\x80\x80").starts_with("\\xf4"));  // beyond U+10FFFF
}

TEST_CASE("every code point below U+0800 is printed, or escaped where it is a control character") {
  for (unsigned code = 0; code < 0x800; ++code) {
    std::string letter(1, static_cast<char>(code));
    if (code >= 0x80) letter = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    const bool control = (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7F && code < 0xA0);
    CHECK((printable(letter) == letter) == !control);
  }
}

TEST_CASE("one line is cut between characters") {
  CHECK(one_line("a\nb\tc\x1b") == "a\\u000ab\\u0009c\\u001b");
  CHECK(one_line("\xc3\xa9\xc3\xa9", 3) == "\xc3\xa9...");
  CHECK(one_line("abc", 3) == "abc");
}

TEST_CASE("characters that come in pieces are put together") {
  const std::string text = "\xc3\xa9\x1b\xc2\x9b\xf0\x9f\x98\x80\xff.";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Printable pieces;
    const std::string first = pieces.add(text.substr(0, cut));
    const std::string second = pieces.add(text.substr(cut));
    CHECK(first + second + pieces.finish() == printable(text));
  }
  Printable open;
  CHECK(open.add("\xe4\xb8").empty());
  CHECK(open.finish() == "\\xe4\\xb8");
}

TEST_CASE("the line of a terminal is cleared by one command") {
  std::ostringstream out;
  out << clear_line << "x";
  CHECK(out.str() == "\r\033[Kx");
}

TEST_CASE("gloo's own log lines are left out") {
  std::ostringstream shown;
  std::streambuf* const before = std::cerr.rdbuf(shown.rdbuf());
  print_only_what_is_printable();
  std::cerr << std::string("[/pytorch/third_party/gloo/gloo/transport/tcp/debug_logger.cc:9] ERROR failed to connect\n")
            << std::string("[/data/gloo.txt] is missing; [/gloo/] too\n") << "[rank 1] /gloo/ is a folder\n";
  std::cerr.rdbuf(before);
  CHECK(shown.str() == "[/data/gloo.txt] is missing; [/gloo/] too\n[rank 1] /gloo/ is a folder\n");
}
