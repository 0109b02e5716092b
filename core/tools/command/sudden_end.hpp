#pragma once
#include <exception>

namespace strata::cli {

// Prints an error as one line on standard error and returns its exit status: that of an Error, of an EnvironmentError
// for an error of the machine (plugins/machine_error.hpp), otherwise of a Bug.
int report(const std::exception& error);

// From now on, if exit(), _exit(), abort() or a fault ends this program before leave(), standard error names the
// plugin's call in progress, even after a stack overflow. Uncaught exceptions are reported as above. Such an exit()
// gets the exit status of a Bug. For the beginning of main().
void name_sudden_end();
// Marks the end of the program as intended.
void expect_end();

}  // namespace strata::cli
