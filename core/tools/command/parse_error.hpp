// Errors of a command line as a text of our own: which option or word, what it must be.
#pragma once
#include <CLI/CLI.hpp>

#include <string>

namespace strata::cli {

// Returns the text of the error that parsing for `app` ended with, without a full stop.
std::string parse_error_text(const CLI::App& app, const CLI::Error& error);

}  // namespace strata::cli
