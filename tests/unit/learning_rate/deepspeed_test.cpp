// DeepSpeed's schedules over drawn settings, beside its classes written once more and driven as its engine drives them:
// the schedule is created, which sets the first rate and momentum, and is stepped after every update
// (DeepSpeed 0.19.5, runtime/lr_schedules.py, and _take_model_step of runtime/engine.py). DeepSpeed's own classes are
// beside them in tests/deepspeed/schedules_test.py.
#include <cmath>
#include <random>

#include "run.hpp"

namespace strata {
namespace {

constexpr double base = 3e-4;

// What DeepSpeed's optimizer holds when it updates.
struct Used {
  double rate = 0.0;
  double momentum = 0.0;
};

// A schedule after `last + 1` of its steps; -1: just created.
using Schedule = std::function<Used(int last)>;

void check_used(const step::RunLearningRate& ours, const Schedule& theirs, bool with_momentum = false) {
  for (int update = 0; update < ours.steps() + 40; ++update) {
    CAPTURE(update);
    const Used used = theirs(update - 1);
    CHECK(ours.rate(update) == Approx(used.rate).epsilon(1e-12).margin(1e-15));
    if (with_momentum) CHECK(*ours.momentum(update) == Approx(used.momentum).epsilon(1e-12));
  }
}

class Draw {
 public:
  explicit Draw(unsigned seed) : engine_(seed) {}
  double number(double low, double high) { return std::uniform_real_distribution(low, high)(engine_); }
  int whole(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }
  bool coin() { return whole(0, 1) == 1; }

 private:
  std::mt19937 engine_;
};

constexpr int draws = 40;

}  // namespace

TEST_CASE("warmup_lr and warmup_decay_lr have the rates that DeepSpeed's optimizer uses") {
  for (unsigned seed = 0; seed < draws; ++seed) {
    Draw draw(seed);
    const int width = draw.whole(1, 60), total = draw.whole(1, 120), steps = draw.whole(1, 120);
    const bool log = draw.coin(), own_peak = draw.coin();
    const double low = draw.number(0, 1e-3), high = own_peak ? draw.number(0, 1e-2) : base;
    CAPTURE(seed, width, total, steps, log, low, high);
    fakes::OptionTexts options{
        {"warmup_num_steps", text(width)}, {"warmup_type", log ? "log" : "linear"}, {"warmup_min_lr", text(low)}};
    if (own_peak) options.emplace_back("warmup_max_lr", text(high));
    const int w = std::max(2, width);
    const auto warmup = [=](int last, double after) {
      if (last < 0) return Used{low};
      const double gamma = last >= w ? after : log ? std::log1p(last) / std::log(w) : 1.0 * last / w;
      return Used{low + (high - low) * gamma};
    };
    check_used(learning_rate_of("warmup_lr", options, {steps, 0, base}), [=](int last) { return warmup(last, 1.0); });
    options.emplace_back("total_num_steps", text(total));
    check_used(learning_rate_of("warmup_decay_lr", options, {steps, 0, base}),
               [=](int last) { return warmup(last, std::max(0.0, (total - last) / std::max(1.0, 1.0 * total - w))); });
  }
}

TEST_CASE("warmup_cosine_lr has the rates that DeepSpeed's optimizer uses") {
  for (unsigned seed = 0; seed < draws; ++seed) {
    Draw draw(seed);
    const int width = draw.whole(1, 60), total = draw.whole(1, 120), steps = draw.whole(1, 120);
    const bool log = draw.coin();
    const double low = draw.number(0, 1), end = draw.number(0, 1);
    CAPTURE(seed, width, total, steps, log, low, end);
    const int w = std::max(2, width);
    check_used(learning_rate_of("warmup_cosine_lr",
                                {{"warmup_num_steps", text(width)},
                                 {"warmup_type", log ? "log" : "linear"},
                                 {"warmup_min_ratio", text(low)},
                                 {"cos_min_ratio", text(end)},
                                 {"total_num_steps", text(total)}},
                                {steps, 0, base}),
               [=](int last) {
                 if (last < 0) return Used{0.0};
                 if (last < w)
                   return Used{base * (low + (1 - low) * (log ? std::log1p(last) / std::log(w) : 1.0 * last / w))};
                 const double progress = std::min(1.0, (last - w + 1) / std::max(1.0, 1.0 * total - w));
                 return Used{base * (end + (1 - end) * 0.5 * (1 + std::cos(pi * progress)))};
               });
  }
}

TEST_CASE("one_cycle has the rates and the momentum that DeepSpeed's optimizer uses") {
  for (unsigned seed = 0; seed < draws; ++seed) {
    Draw draw(seed);
    const int first = draw.whole(1, 40), second = draw.whole(1, 40), total = first + second, steps = draw.whole(1, 150);
    const int stairs_up = draw.whole(0, 5), stairs_down = draw.whole(0, 5), decay = draw.whole(0, 9);
    const double low = draw.number(0, 1e-3), high = draw.number(0, 1e-2), fall = decay == 0 ? 0 : draw.number(0, 1);
    const double least = draw.number(0.1, 0.8), most = draw.number(0.1, 0.8),
                 growth = decay == 0 ? 0 : draw.number(0, 1e-4);
    CAPTURE(seed, first, second, steps, stairs_up, stairs_down, decay, low, high, fall, least, most, growth);
    const auto scale = [=](int at) {  // `at`: batches begun
      const bool up = at <= first;
      const int position = up ? at : total - at, size = up ? first : second, stairs = up ? stairs_up : stairs_down;
      return stairs == 0 ? 1.0 * position / size : std::floor(position * stairs / size) / stairs;
    };
    check_used(
        learning_rate_of("one_cycle",
                         {{"cycle_min_lr", text(low)},
                          {"cycle_max_lr", text(high)},
                          {"cycle_first_step_size", text(first)},
                          {"cycle_second_step_size", text(second)},
                          {"cycle_first_stair_count", text(stairs_up)},
                          {"cycle_second_stair_count", text(stairs_down)},
                          {"decay_step_size", text(decay)},
                          {"decay_lr_rate", text(fall)},
                          {"cycle_momentum", "true"},
                          {"cycle_min_mom", text(least)},
                          {"cycle_max_mom", text(most)},
                          {"decay_mom_rate", text(growth)}},
                         {steps, 0, {}}),
        [=](int last) {
          if (last < 0) return Used{low, least};
          if (last < total) return Used{low + (high - low) * scale(last + 1), most - (most - least) * scale(last + 1)};
          const double intervals = decay == 0 ? 0.0 : 1.0 * (last - total + 1) / decay;
          return Used{low / (1 + fall * intervals), most * (1 + growth * intervals)};
        },
        /*with_momentum=*/true);
  }
}

TEST_CASE("lr_range_test has the rates that DeepSpeed's optimizer uses") {
  for (unsigned seed = 0; seed < draws; ++seed) {
    Draw draw(seed);
    const int size = draw.whole(1, 40);
    const bool stairs = draw.coin();
    const double low = draw.number(0, 1e-3), step = draw.number(0, 2);
    CAPTURE(seed, size, stairs, low, step);
    check_used(learning_rate_of("lr_range_test",
                                {{"lr_range_test_min_lr", text(low)},
                                 {"lr_range_test_step_size", text(size)},
                                 {"lr_range_test_step_rate", text(step)},
                                 {"lr_range_test_staircase", stairs ? "true" : "false"}},
                                {100, 0, {}}),
               [=](int last) {
                 if (last < 0) return Used{low};
                 const double interval = 1.0 * (last + 1) / size;
                 return Used{low * (1 + step * (stairs ? std::floor(interval) : interval))};
               });
  }
}

}  // namespace strata
