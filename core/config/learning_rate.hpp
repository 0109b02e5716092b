// defines: Schedule, LearningRate, learning_rate
#pragma once
#include <cstdint>

namespace strata::config {

enum class Schedule { Constant, Linear, Cosine };

struct LearningRate {
  double base = 0;
  Schedule schedule = Schedule::Constant;
  std::int64_t warmup = 0;  // steps
  double final_ratio = 0;   // of base, where Linear and Cosine end
  std::int64_t steps = 0;   // of the whole run, warm-up included
};

// The learning rate of optimizer step `step`, which counts from 0:
//   step < warmup   base (step + 1) / warmup: the first step already moves, step warmup-1 is the first at base
//   then            with p = (step - warmup) / (steps - warmup), kept within 0 and 1:
//     Constant      base
//     Linear        base (1 - (1 - final_ratio) p)
//     Cosine        base (final_ratio + (1 - final_ratio) (1 + cos(pi p)) / 2)
// So warmup 0 and 1 both start at base, base final_ratio is reached at `steps`, one past the last step, and a warm-up
// as long as the run or longer is never followed by a decay.
double learning_rate(const LearningRate& rate, std::int64_t step);

}  // namespace strata::config
