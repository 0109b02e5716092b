#include "checkpoint/plugin_files.hpp"

#include <nlohmann/json.hpp>

#include "group/numbers.hpp"
#include "plugins/plugin_call.hpp"

namespace strata::checkpoint {

std::vector<MeasuredState> measure_plugins(const stage::PluginSet& plugins, int rank) {
  std::vector<MeasuredState> states;
  for (const auto& [slot, named] : plugins.all()) {
    MeasuredState& state = states.emplace_back(named.name);
    plugins::plugin_call(named.name, "save()", rank, [&, &named = named] { named->save(state); });
  }
  return states;
}

std::vector<bool> alike_on_all_ranks(const std::vector<MeasuredState>& states, Group& world, at::Device device) {
  std::vector<std::int64_t> mine;
  for (const MeasuredState& state : states) mine.push_back(static_cast<std::int64_t>(state.checksum()));
  const std::vector<std::int64_t> all = group::gather_numbers(world, device, mine);
  std::vector<bool> alike(mine.size(), true);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != all[i % mine.size()]) alike[i % mine.size()] = false;
  return alike;
}

PluginFiles::PluginFiles(const std::filesystem::path& folder, const stage::PluginSet& plugins,
                         const stage::Stage& stage, const std::vector<MeasuredState>& states,
                         const std::vector<bool>& alike)
    : plugins_(plugins), rank_(stage.place.rank) {
  using Entry = PluginFileWriter::Entry;
  std::vector<Entry> all, of_rank;
  std::size_t i = 0;
  for (const auto& [slot, named] : plugins.all()) {
    const MeasuredState& state = states[i];
    Entry common{{slot, named.name, named->state_version(), state.values()}, {}}, mine = common;
    for (const MeasuredState::Bytes& bytes : state.bytes())
      (bytes.of_rank || !alike[i] ? mine : common).bytes.push_back(bytes);
    of_all_.push_back(alike[i]);
    if (alike[i]) {
      mine.plugin.values = nlohmann::json::object();
      all.push_back(common);
    }
    if (!alike[i] || !mine.bytes.empty()) of_rank.push_back(mine);
    ++i;
  }
  if (rank_ == 0) shared_.emplace(folder, plugins_file_name, all);
  if (!of_rank.empty()) own_.emplace(folder, rank_file_name(stage.place.rank, stage.groups.world().size()), of_rank);
}

bool PluginFiles::advance() {
  const auto& [slot, named] = plugins_.all()[next_];
  PluginFileWriter* const mine = own_ ? &*own_ : nullptr;
  PluginFileWriter* const common = of_all_[next_] ? (shared_ ? &*shared_ : nullptr) : mine;
  BytesWriter writer(slot, common, mine);
  plugins::plugin_call(named.name, "save()", rank_, [&, &named = named] { named->save(writer); });
  if (++next_ < plugins_.all().size()) return true;
  if (shared_) shared_saved_ = shared_->finish();
  if (own_) own_saved_ = own_->finish();
  return false;
}

}  // namespace strata::checkpoint
