#pragma once

namespace strata::cli {

// Flushes the output and ends the program with this exit status. If status is 0 but standard output could not be
// written, prints an error and uses the exit status of EnvironmentError. For the last line of main().
//
// [Note: The end of the program] At exit libtorch destroys its operator registrations one by one, which takes a third
// of a short command's time for memory that the system frees anyway. The program therefore exits without static
// destructors; runs, groups and files are closed earlier by their owners. Profilers and memory checkers write their
// results at exit, so with one of them (a sanitizer, LD_PRELOAD, CUDA_INJECTION64_PATH) the program exits normally.
[[noreturn]] void leave(int status);

}  // namespace strata::cli
