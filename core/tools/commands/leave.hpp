#pragma once

namespace strata::cli {

// Ends the program with this exit status, once what it has printed is written; with an EnvironmentError's, and its
// line, when status is 0 and standard output could not be written. For the last line of main().
//
// [Note: The end of the program] At its end libtorch takes apart what it has registered, operator by operator: a third
// of a short command's time, for memory that the system takes back anyway. So the program leaves without it, as nothing
// of ours is left to end then: runs, groups and files are closed where their owners end. Profilers and memory checkers
// write what they have seen at the end of a program: where one has a hand in this process (a sanitizer, LD_PRELOAD,
// CUDA_INJECTION64_PATH) it ends as others do.
[[noreturn]] void leave(int status);

}  // namespace strata::cli
