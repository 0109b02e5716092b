// Error numbers of the operating system (errno): their words, and the type of error each becomes. Plugins reach them by
// throw_cannot_open of <strata/input_file.hpp>.
#pragma once
#include <strata/export.hpp>

#include <string>

namespace strata {

// The system's words for an errno, and what to do about it: "No space left on device; the disk, or its table of files,
// is full: free some space or use another disk".
STRATA_EXPORT std::string describe_errno(int error);

// True if the machine lacks a resource or a device fails: EnvironmentError. False if a path, its type or its
// permissions are wrong: UserError.
STRATA_EXPORT bool is_of_the_machine(int error);

}  // namespace strata
