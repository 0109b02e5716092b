#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace strata::config {

enum class Schedule { Constant, Linear, Cosine, Wsd, LrRangeTest, OneCycle, WarmupLr, WarmupDecayLr, WarmupCosineLr };
enum class WarmupType { Log, Linear };
enum class DecayStyle { Linear, Cosine, MinusSqrt, Exponential };

// Wsd: warm-up, a stable stretch at base, decay.
struct WarmupStableDecay {
  std::int64_t decay_steps = 0;
  DecayStyle decay_style = DecayStyle::Linear;
};

// LrRangeTest; parameters as DeepSpeed names them, here and below.
struct RangeTest {
  double min_lr = 1e-3;
  std::int64_t step_size = 2000;
  double step_rate = 1.0;
  bool staircase = false;
};

struct OneCycle {
  double min_lr = 0;
  double max_lr = 0;
  std::int64_t first_step_size = 2000;
  std::int64_t second_step_size = 2000;
  std::int64_t first_stair_count = 0;
  std::int64_t second_stair_count = 0;
  std::int64_t decay_step_size = 0;
  double decay_lr_rate = 0;
};

// WarmupLr and WarmupDecayLr.
struct Warmup {
  double min_lr = 0;
  double max_lr = 0;
  std::int64_t num_steps = 1000;
  WarmupType type = WarmupType::Log;
  std::int64_t total_num_steps = 0;
};

struct WarmupCosine {
  double min_ratio = 0;
  std::int64_t num_steps = 1000;
  WarmupType type = WarmupType::Log;
  double cos_min_ratio = 1e-4;
  std::int64_t total_num_steps = 0;
};

struct LearningRate {
  double base = 0;
  Schedule schedule = Schedule::Constant;
  std::int64_t warmup = 0;  // steps; of Constant, Linear, Cosine and Wsd
  double final_ratio = 0;   // of base, where Linear, Cosine and Wsd end
  std::int64_t steps = 0;   // of the whole run, warm-up included
  WarmupStableDecay wsd;
  RangeTest lr_range_test;
  OneCycle one_cycle;
  Warmup warmup_lr;  // of the schedule that is chosen
  WarmupCosine warmup_cosine_lr;
};

// The learning rate of optimizer step t, which counts from 0.
//
// Constant, Linear, Cosine, Wsd:
//   t < warmup      base (t + 1) / warmup: the first step already moves, step warmup-1 is the first at base
//   then            with p = (t - warmup) / (steps - warmup), kept within 0 and 1:
//     Constant      base
//     Linear        base (1 - (1 - final_ratio) p)
//     Cosine        base (final_ratio + (1 - final_ratio) (1 + cos(pi p)) / 2)
//     Wsd           base (final_ratio + (1 - final_ratio) d(q)) with q = (t - (steps - decay_steps)) / decay_steps,
//     kept
//                   within 0 and 1, and d(q) = 1 - q (Linear), (1 + cos(pi q)) / 2 (Cosine), 1 - sqrt(q) (MinusSqrt),
//                   2 0.5^q - 1 (Exponential)
// So warmup 0 and 1 both start at base, base final_ratio is reached at `steps`, one past the last step, and a warm-up
// as long as the run or longer is never followed by a decay.
//
// DeepSpeed's five, by its formulas, base not entering where they have rates of their own:
//   LrRangeTest     min_lr (1 + step_rate i), i = t / step_size, with staircase rounded down; grows without bound
//   OneCycle        T = first_step_size + second_step_size. t <= T: min_lr + (max_lr - min_lr) s, s rising from 0 to 1
//                   at first_step_size and falling to 0 at T; a stair count n other than 0 rounds s in its half down to
//                   a multiple of 1 / n. t > T: min_lr / (1 + decay_lr_rate (t - T) / decay_step_size), or min_lr when
//                   the rate or the size is 0
//   WarmupLr        min_lr + (max_lr - min_lr) g; with W = num_steps, 2 at least, t < W: g = log(t + 1) / log(W) (Log)
//                   or t / W (Linear); then 1
//   WarmupDecayLr   the same, but then g = max(0, (total_num_steps - t) / max(1, total_num_steps - W))
//   WarmupCosineLr  base r; t < W: r = min_ratio + (1 - min_ratio) g; then r = cos_min_ratio + (1 - cos_min_ratio)
//                   (1 + cos(pi p)) / 2 with p = min(1, (t - W + 1) / max(1, total_num_steps - W))
//
// [Note: DeepSpeed's t] DeepSpeed calls its scheduler after the optimizer's step. The rates that it prints after its
// step t of the three Warmup schedules are these, and its optimizer uses each one step later, the first rate twice.
double learning_rate(const LearningRate& rate, std::int64_t step);

// The steps of the run where the schedule turns from one formula to the next, ascending, 0 and the last step among
// them.
std::vector<std::int64_t> schedule_borders(const LearningRate& rate);

}  // namespace strata::config
