#pragma once
#include <exception>

namespace strata::cli {

// Prints an error as one line on standard error and returns the exit status for it: an Error's own, that of an
// EnvironmentError for an error of the machine (plugins/machine_error.hpp), else that of a Bug.
int report(const std::exception& error);

// From now on, when something ends this program before leave() does, by exit(), _exit(), abort() or a fault, standard
// error says which plugin's call was in progress; where a stack has no room left for that, too. An exception that
// nothing catches is reported as above. Such an exit() gets the exit status of a Bug. For the beginning of main().
void name_sudden_end();
// The program ends because it wants to.
void expect_end();

}  // namespace strata::cli
