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
    SdkCommand{"bench", "Measure a plugin's speed against a lower bound", "strata-sdk"},
    SdkCommand{"compare", "Compare training runs: speed, memory, traffic and numbers", "strata"},
    SdkCommand{"data", "Create and inspect token files", "strata"},
    SdkCommand{"plan", "Predict the memory and traffic of each rank in a step, without training", "strata"},
    SdkCommand{"sample", "Generate text with trained weights", "strata"},
    SdkCommand{"schedule", "Draw pipeline schedules", "strata"},
    SdkCommand{"trace", "Compare the measured timeline of the pipeline stages with the predicted one", "strata"},
    SdkCommand{"verify", "Compare a config's gradients with those of a single process", "strata"},
};

}  // namespace strata::cli
