// What a partitioner sees of the engine, without one: flat parameters, groups, slots and a state store, for ranks that
// are threads of this process (see on_ranks) or, on meta tensors, for one rank of many that are not there.
#pragma once
#include <strata/fakes/counting_group.hpp>
#include <strata/fakes/local_group.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/partitioner.hpp>
#include <strata/plain_device.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata::fakes {

// "layer <id>" with one parameter "p<id>" of so many elements.
FlatParameterInfo flat_parameter_info(int id, std::int64_t elements, const DTypes& dtypes = {}, bool trainable = true);

// What partitioners get wrong first: one element, fewer elements than ranks, odd sizes, a frozen one, one that two
// layers share.
std::vector<FlatParameterInfo> odd_flat_parameters(const DTypes& dtypes = {});

// The groups that a partitioner asks for among `ranks` data-parallel ranks that are threads.
class PartitionGroups {
 public:
  PartitionGroups(const PluginLibrary& library, const OptionTexts& options, int ranks,
                  Movement movement = Movement::AtStart);
  // A rank's own group of that name. Throws Bug when groups() did not ask for it.
  CheckedGroup& of(const std::string& name, int rank) const;
  int ranks() const { return ranks_; }
  // Operations that this rank has started, on any of its groups, and not waited for.
  int under_way(int rank) const;
  // Ends all waits of all ranks: for a rank that cannot go on, so that the others do not wait for it.
  void give_up() const;

 private:
  int ranks_;
  std::map<std::pair<std::string, int>, std::unique_ptr<CheckedGroup>> groups_;
};

// One rank's partitioner, attached to its surroundings. Shut down when this goes.
class PartitionRank final : public PartitionContext {
 public:
  // Among threads: on rank `rank` of `groups`, in host memory.
  PartitionRank(const PluginLibrary& library, const OptionTexts& options, const PartitionGroups& groups, int rank,
                const std::vector<FlatParameterInfo>& infos);
  // Rank `rank` of `ranks` that are not there, on meta: allocations and traffic are counted, nothing is moved.
  PartitionRank(const PluginLibrary& library, const OptionTexts& options, int ranks, int rank,
                const std::vector<FlatParameterInfo>& infos);
  ~PartitionRank() override;

  Partitioner& partitioner() const { return *plugin_; }
  const std::vector<Slice>& owned() const { return owned_; }  // what partitioner().owned() gave; it is called once
  // Of every group this rank has, together.
  Traffic traffic() const;
  void shutdown() { plugin_.shutdown(); }

  const std::vector<FlatParameter*>& flat_parameters() const override { return flat_; }
  Group& group(const std::string& name) override;
  StateStore& store() override { return store_; }
  SlotPool& slots() override { return slots_; }
  Device& device() override { return device_; }

 private:
  PartitionRank(const PluginLibrary& library, const OptionTexts& options, at::DeviceType device, int rank, int ranks,
                const std::vector<FlatParameterInfo>& infos);
  void attach();

  PlainDevice device_;
  StateStore store_;
  SlotPool slots_;
  std::vector<std::unique_ptr<FlatParameter>> own_;
  std::vector<FlatParameter*> flat_;
  std::map<std::string, std::unique_ptr<CountingGroup>> counting_;
  std::map<std::string, CheckedGroup*> groups_;
  LoadedPlugin<Partitioner> plugin_;
  std::vector<Slice> owned_;
};

// The calls of one step in the engine's order, every layer gathered for each forward and each backward. `fill` is given
// each trainable flat parameter's whole gradient buffer and the micro-batch, and adds to it.
void run_step(PartitionRank& rank, int micro_batches,
              const std::function<void(FlatParameter& flat, const at::Tensor& buffer, int micro_batch)>& fill);

}  // namespace strata::fakes
