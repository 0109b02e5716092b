#include "bench/interleaved_timer.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "step/seconds_since.hpp"

namespace strata::bench {

double InterleavedTimer::timed(const Work& work, int repetitions) const {
  if (ranks_ != nullptr) ranks_->barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int repetition = 0; repetition < repetitions; ++repetition) work();
  return std::max(runtime::seconds_since(begin), 1e-9) / repetitions;
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

Row InterleavedTimer::time(Row row, const Work& plugin, const std::vector<Work>& floors) const {
  settings_.say(row.name + ", " + row.size);
  const int plugin_times = repetitions(plugin);
  std::vector<int> floor_times;
  for (const Work& floor : floors) floor_times.push_back(repetitions(floor));
  std::vector<double> of_floors;  // round by round
  for (int round = 0; round < settings_.rounds; ++round) {
    double of_plugin = 0.0;
    if (round % 2 == 0) of_plugin = timed(plugin, plugin_times);
    for (std::size_t i = 0; i < floors.size(); ++i) of_floors.push_back(timed(floors[i], floor_times[i]));
    if (round % 2 == 1) of_plugin = timed(plugin, plugin_times);
    row.values.push_back(of_plugin);
  }
  take_slowest(row.values);
  take_slowest(of_floors);
  for (auto begin = of_floors.begin(); begin != of_floors.end(); begin += std::ssize(floors))
    row.floor_values.push_back(*std::min_element(begin, begin + std::ssize(floors)));
  return row;
}

}  // namespace strata::bench
