// The words of `strata`, in the order of `strata --help`: train, eval, ... Each is a folder of core/tools.
//
//   OWN(word)                      carried out by `strata` itself: `void add_WORD(CommandLine&)` in WORD/WORD.cpp
//   PROGRAM(word, package, text)   carried out by strata_WORD, a separate program: WORD/main.cpp. bin/strata starts it
//                                  directly, because loading libtorch into a process takes a fifth of a second.
//                                  `package` installs it; `text` is the word's line in `strata --help`.
//
// core/tools/CMakeLists.txt and tests/words.py read this list too: one row per line.
#pragma once
#include <array>
#include <string_view>

// clang-format off
#define STRATA_WORDS(OWN, PROGRAM) \
  OWN(train) \
  OWN(eval) \
  PROGRAM(sample, "strata", "Generate text with trained weights") \
  OWN(launch) \
  PROGRAM(plan, "strata", "Predict the memory and traffic of each rank in a step, without training") \
  PROGRAM(verify, "strata", "Compare a config's gradients with those of a single process") \
  PROGRAM(compare, "strata", "Compare training runs: speed, memory, traffic and numbers") \
  PROGRAM(bench, "strata-sdk", "Measure a plugin's speed against a lower bound") \
  OWN(plugins) \
  PROGRAM(schedule, "strata", "Draw pipeline schedules") \
  PROGRAM(trace, "strata", "Compare the measured timeline of the pipeline stages with the predicted one") \
  OWN(config) \
  PROGRAM(data, "strata", "Create and inspect token files") \
  OWN(checkpoint) \
  OWN(doctor)
// clang-format on

namespace strata::cli {

struct ProgramWord {
  std::string_view name, package, text;
};

#define STRATA_NOTHING(word)
#define STRATA_ROW(word, package, text) ProgramWord{#word, package, text},
inline constexpr std::array program_words{STRATA_WORDS(STRATA_NOTHING, STRATA_ROW)};
#undef STRATA_NOTHING
#undef STRATA_ROW

}  // namespace strata::cli
