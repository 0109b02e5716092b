// defines: Variant, with_options, library_of, RunGroups, Rank, flat_info, run_step
// What a partitioner plugin sees of the engine in these tests.
#pragma once
#include <strata/fakes/counting_group.hpp>
#include <strata/fakes/local_group.hpp>
#include <strata/partitioner.hpp>
#include <strata/plain_device.hpp>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loaded_plugin.hpp"

// A partitioner with the options that are not at their defaults.
struct Variant {
  std::string plugin;
  std::vector<std::pair<std::string, strata::OptionValue>> options;
};

// Every option of every partitioner in the tree: those that a plugin does not have are not read.
inline strata::OptionValues with_options(const Variant& variant) {
  constexpr std::int64_t many = 1'000'000'000;
  strata::OptionValues values;
  for (const char* name :
       {"reduce_bucket_size", "allgather_bucket_size", "prefetch_bucket_size", "max_live_parameters"})
    values.set(name, many);
  for (const auto& [name, value] : {std::pair<const char*, std::int64_t>{"prefetch_layers", 1},
                                    {"max_reuse_distance", 1},
                                    {"persistence_threshold", 0},
                                    {"model_persistence_threshold", 9'000'000'000'000'000'000},
                                    {"shard_size", 2}})
    values.set(name, value);
  for (const auto& [name, value] : {std::pair<const char*, bool>{"overlap_comm", true},
                                    {"prescale_gradients", true},
                                    {"reduce_scatter", true},
                                    {"secondary_shard", false}})
    values.set(name, value);
  values.set("gradient_predivide_factor", 1.0);
  values.set("gradient_reduction", std::string("each_micro_batch"));
  values.set("stage", std::string("3"));
  for (const auto& [name, value] : variant.options) {
    if (!values.contains(name)) throw std::runtime_error("no partitioner has the option " + name);
    values.set(name, value);
  }
  return values;
}

inline std::string library_of(const Variant& variant) {
  return std::string(PLUGIN_FOLDER) + "/libstrata_partitioner_" + variant.plugin + ".so";
}

// The groups that a partitioner asks for, among ranks that are threads.
class RunGroups {
 public:
  RunGroups(const Variant& variant, int ranks) {
    const LoadedPlugin<strata::Partitioner> asking(library_of(variant).c_str(), with_options(variant));
    for (const strata::GroupSpec& spec : asking->groups({1, ranks, 1})) {
      for (const std::vector<int>& members : spec.members) {
        auto groups = strata::fakes::local_groups(static_cast<int>(members.size()));
        for (std::size_t i = 0; i < members.size(); ++i) groups_[{spec.name, members[i]}] = std::move(groups[i]);
      }
    }
  }
  strata::Group& of(const std::string& name, int rank) const { return *groups_.at({name, rank}); }

 private:
  std::map<std::pair<std::string, int>, std::unique_ptr<strata::CheckedGroup>> groups_;
};

// One rank's surroundings of a partitioner.
class Rank final : public strata::PartitionContext {
 public:
  // Among threads.
  Rank(const Variant& variant, const RunGroups& groups, int rank, const std::vector<strata::FlatParameterInfo>& infos)
      : Rank(variant, at::kCPU, infos) {
    find_group_ = [&groups, rank](const std::string& name) -> strata::Group& { return groups.of(name, rank); };
    partitioner->attach(*this);
  }
  // Rank 0 of so many that are not there, on meta.
  Rank(const Variant& variant, int ranks, const std::vector<strata::FlatParameterInfo>& infos)
      : Rank(variant, at::kMeta, infos) {
    for (const strata::GroupSpec& spec : partitioner->groups({1, ranks, 1}))
      counting[spec.name] = std::make_unique<strata::CountingGroup>(spec.name, 0, spec.members.front());
    find_group_ = [this](const std::string& name) -> strata::Group& { return *counting.at(name); };
    partitioner->attach(*this);
  }
  ~Rank() override { partitioner->shutdown(); }

  const std::vector<strata::FlatParameter*>& flat_parameters() const override { return flat_; }
  strata::Group& group(const std::string& name) override { return find_group_(name); }
  strata::StateStore& store() override { return store_; }
  strata::SlotPool& slots() override { return slots_; }
  strata::Device& device() override { return device_; }

  std::map<std::string, std::unique_ptr<strata::CountingGroup>> counting;
  LoadedPlugin<strata::Partitioner> partitioner;

 private:
  Rank(const Variant& variant, at::DeviceType device, const std::vector<strata::FlatParameterInfo>& infos)
      : partitioner(library_of(variant).c_str(), with_options(variant)),
        device_(at::Device(device)),
        store_(at::Device(device)),
        slots_(store_, device_) {
    for (const strata::FlatParameterInfo& info : infos) {
      own_.push_back(std::make_unique<strata::FlatParameter>(info, at::Device(device)));
      flat_.push_back(own_.back().get());
    }
  }
  std::function<strata::Group&(const std::string&)> find_group_;
  strata::PlainDevice device_;
  strata::StateStore store_;
  strata::SlotPool slots_;
  std::vector<std::unique_ptr<strata::FlatParameter>> own_;
  std::vector<strata::FlatParameter*> flat_;
};

inline strata::FlatParameterInfo flat_info(int id, std::int64_t elements, const strata::DTypes& dtypes = {},
                                           bool trainable = true) {
  strata::FlatParameterInfo info;
  info.id = id;
  info.name = "layer " + std::to_string(id);
  info.layers = {id};
  info.elements = elements;
  info.trainable = trainable;
  info.dtypes = dtypes;
  info.parameters = {{{"p" + std::to_string(id), {elements}, {}, trainable, ""}, 0}};
  return info;
}

// The calls of one step in the engine's order, every layer gathered for each forward and each backward. `fill`: given
// the whole gradient buffer of a flat parameter and the micro-batch, adds to it.
template <class Fill>
void run_step(Rank& rank, int micro_batches, Fill&& fill) {
  using namespace strata;
  Partitioner& partitioner = *rank.partitioner;
  const bool resident = partitioner.lookahead().resident;
  const auto& flat = rank.flat_parameters();
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    const Accumulation accumulation{micro_batch == 0, micro_batch + 1 == micro_batches};
    for (FlatParameter* parameter : flat) {
      if (resident) continue;
      partitioner.prefetch(*parameter, Phase::Forward);
      partitioner.gather(*parameter, Phase::Forward);
      partitioner.release(*parameter, Phase::Forward);
    }
    for (auto parameter = flat.rbegin(); parameter != flat.rend(); ++parameter) {
      if (!resident) partitioner.gather(**parameter, Phase::Backward);
      if ((*parameter)->info().trainable) {
        fill(**parameter, partitioner.gradient(**parameter, accumulation), micro_batch);
        partitioner.reduce(**parameter, accumulation);
      }
      if (!resident) partitioner.release(**parameter, Phase::Backward);
    }
  }
  partitioner.finish_gradients();
}
