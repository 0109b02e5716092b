// The commands that a program of sdk/ carries out, strata_NAME, which lies beside the program proper. bin/strata starts
// it at once, because to load libtorch into a process takes a fifth of a second.
#pragma once
#include <array>
#include <string_view>

namespace strata::cli {

struct SdkCommand {
  std::string_view name;
  std::string_view text;     // for `strata --help`
  std::string_view package;  // that it is installed with
};

inline constexpr std::array sdk_commands{
    SdkCommand{"bench", "Measure one plugin's speed against the fastest possible", "strata-sdk"},
    SdkCommand{"compare", "Compare training runs: speed, memory, traffic and numbers", "strata"},
    SdkCommand{"data", "Make and inspect token files", "strata"},
    SdkCommand{"plan", "Show the memory and traffic of every rank in a step, without training", "strata"},
    SdkCommand{"sample", "Generate text with trained weights", "strata"},
    SdkCommand{"schedule", "Draw pipeline schedules", "strata"},
    SdkCommand{"trace", "Compare what the ranks did with what their schedule predicts", "strata"},
    SdkCommand{"verify", "Check that a config's gradients are those of one process", "strata"},
};

}  // namespace strata::cli
