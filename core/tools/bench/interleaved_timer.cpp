#include "tools/bench/interleaved_timer.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "report/run_summary.hpp"
#include "stage/seconds_since.hpp"

namespace strata::bench {

double InterleavedTimer::timed(const Work& work, int repetitions) const {
  if (ranks_ != nullptr) ranks_->barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int repetition = 0; repetition < repetitions; ++repetition) work();
  return std::max(stage::seconds_since(begin), 1e-9) / repetitions;
}

// The first run warms up pages and caches; the second is timed. All ranks use the same number of repetitions.
int InterleavedTimer::repetitions(const Work& work) const {
  work();
  std::vector<double> seconds{timed(work, 1)};
  take_slowest(seconds);
  return static_cast<int>(std::clamp(std::ceil(settings_.seconds / seconds.front()), 1.0, 1e6));
}

void InterleavedTimer::take_slowest(std::vector<double>& seconds) const {
  if (ranks_ == nullptr) return;
  const at::Tensor all = at::empty({static_cast<std::int64_t>(seconds.size())});
  std::copy(seconds.begin(), seconds.end(), all.data_ptr<float>());
  ranks_->all_reduce(all, ReduceOperation::Max).wait();
  std::copy_n(all.data_ptr<float>(), seconds.size(), seconds.begin());
}

const Work& InterleavedTimer::fastest(const std::vector<Work>& works) const {
  if (works.size() == 1) return works.front();
  std::vector<int> times;
  for (const Work& work : works) times.push_back(repetitions(work));
  std::vector<std::vector<double>> seconds(works.size());  // by work and round
  for (int round = 0; round < settings_.rounds; ++round)
    for (std::size_t i = 0; i < works.size(); ++i) seconds[i].push_back(timed(works[i], times[i]));
  std::vector<double> medians;
  for (std::vector<double>& of_work : seconds) {
    take_slowest(of_work);
    medians.push_back(report::median(of_work));
  }
  return works[static_cast<std::size_t>(std::ranges::min_element(medians) - medians.begin())];
}

Row InterleavedTimer::time(Row row, const Work& plugin, const std::vector<Work>& floors) const {
  settings_.say(row.name + ", " + row.size);
  const Work& floor = fastest(floors);
  const int plugin_times = repetitions(plugin), floor_times = repetitions(floor);
  for (int round = 0; round < settings_.rounds; ++round) {
    if (round % 2 == 0) row.values.push_back(timed(plugin, plugin_times));
    row.floor_values.push_back(timed(floor, floor_times));
    if (round % 2 == 1) row.values.push_back(timed(plugin, plugin_times));
  }
  take_slowest(row.values);
  take_slowest(row.floor_values);
  return row;
}

}  // namespace strata::bench
