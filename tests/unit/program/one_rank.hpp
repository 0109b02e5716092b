// The program of a run of one rank, and what its end is refused for.
#pragma once
#include <cstddef>
#include <string>

#include "catch.hpp"
#include "program/lower.hpp"
#include "program/validate_program.hpp"
#include "schedulers.hpp"

inline strata::program::StepPlan one_stage() {
  using namespace strata::program;
  return plan_step("scheduler/sequential", *make_scheduler("sequential"), {1, 1, 1}, costs_of(2));
}

inline strata::program::Program one_rank(const strata::program::LayerOptions& layers,
                                         const strata::Lookahead& lookahead = {.resident = true}) {
  return strata::program::lower_training(one_stage(), layers, lookahead, 0);
}

inline void refuses(const strata::program::Program& program, const strata::program::LayerOptions& layers,
                    const std::string& sentence) {
  CHECK_THROWS_WITH(
      strata::program::validate_end_of_step(program, layers.parameters, layers.replicated, layers.sums_of_round),
      Catch::Contains(sentence) && Catch::Contains("<-- here"));
}

// The program with the instruction of this text moved to another place.
inline strata::program::Program moved(strata::program::Program program, const std::string& text, std::size_t to) {
  const std::size_t from = place_of(program, text);
  const strata::program::Instruction instruction = program[from];
  program.erase(program.begin() + static_cast<std::ptrdiff_t>(from));
  program.insert(program.begin() + static_cast<std::ptrdiff_t>(to), instruction);
  return program;
}
