// A PartitionContext without an engine: flat parameters, groups, slots and a state store, for ranks that are threads of
// this process (see on_ranks) or, on meta tensors, for one rank of a larger run.
#pragma once
#include <strata/fakes/counting_group.hpp>
#include <strata/fakes/local_group.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/fakes/resting_buffers.hpp>
#include <strata/partitioner.hpp>
#include <strata/plain_device.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata::fakes {

// Returns flat parameter "layer <id>" with one parameter "p<id>" of `elements` elements.
FlatParameterInfo flat_parameter_info(int id, std::int64_t elements, const DTypes& dtypes = {}, bool trainable = true);

// Returns flat parameters of error-prone sizes: one element, fewer elements than ranks, odd sizes, a frozen parameter,
// one shared by two layers.
std::vector<FlatParameterInfo> odd_flat_parameters(const DTypes& dtypes = {});

// Data-parallel ranks of a mesh that share their indices along the other axes with `place`. A number: a mesh with only
// the data axis.
struct DataRanks {
  DataRanks(int data) : mesh{{Axis::Data, data}} {}  // NOLINT(google-explicit-constructor)
  DataRanks(const MeshShape& shape, const MeshPlace& among) : mesh(shape), place(among) {}
  MeshShape mesh;
  MeshPlace place;

  int size() const { return mesh.data_parallel(); }
  int in_the_run(int rank) const { return data_parallel_ranks(mesh, place).at(static_cast<std::size_t>(rank)); }
};

// Groups of a partitioner among data-parallel ranks, which are threads.
class PartitionGroups {
 public:
  PartitionGroups(const PluginLibrary& library, const OptionTexts& options, const DataRanks& ranks,
                  Movement movement = Movement::AtStart);
  // Returns a rank's group of a name. Throws Bug if groups() did not return it.
  CheckedGroup& of(const std::string& name, int rank) const;
  int ranks() const { return ranks_.size(); }
  const DataRanks& data_ranks() const { return ranks_; }
  const std::vector<GroupSpec>& specs() const { return specs_; }
  // Returns the number of operations that a rank has started on any of its groups but not waited for.
  int under_way(int rank) const;
  // Ends all waits of all ranks, on behalf of a rank that cannot continue.
  void give_up() const;

 private:
  DataRanks ranks_;
  std::vector<GroupSpec> specs_;
  std::map<std::pair<std::string, int>, std::unique_ptr<CheckedGroup>> groups_;
};

// Partitioner of one rank, attached to its context. The destructor shuts it down.
class PartitionRank final : public PartitionContext {
 public:
  // Makes rank `rank` of `groups`, in host memory, on this thread.
  PartitionRank(const PluginLibrary& library, const OptionTexts& options, const PartitionGroups& groups, int rank,
                const std::vector<FlatParameterInfo>& infos);
  // Makes rank `rank` of `ranks` on meta tensors: allocations and traffic are counted, nothing is moved.
  PartitionRank(const PluginLibrary& library, const OptionTexts& options, const DataRanks& ranks, int rank,
                const std::vector<FlatParameterInfo>& infos);
  ~PartitionRank() override;

  // Returns the partitioner; its buffers are fetched and stored around the calls.
  Partitioner& partitioner() const { return *in_windows_; }
  // Returns the result of partitioner().owned(), which is called once.
  const std::vector<Slice>& owned() const { return owned_; }
  // Returns the values and the gradient of a slice, also while its buffer is away.
  at::Tensor at_rest(const BufferRange& range) const { return buffers_.at_rest(range); }
  at::Tensor parameter(const Slice& slice) const { return at_rest(slice.parameter); }
  at::Tensor gradient(const Slice& slice) const { return at_rest(slice.gradient); }
  // Returns the traffic of all groups of this rank together.
  Traffic traffic() const;
  void shutdown() { plugin_.shutdown(); }

  const std::vector<FlatParameter*>& flat_parameters() const override { return flat_; }
  Group& group(const std::string& name) override;
  Buffer& buffer(const BufferRequest& request) override { return buffers_.make(request); }
  bool moves(Category) const override { return false; }  // not configured, but see RestingBuffers
  StateStore& store() override { return store_; }
  SlotPool& slots() override { return slots_; }
  Device& device() override { return device_; }

 private:
  PartitionRank(const PluginLibrary& library, const OptionTexts& options, at::DeviceType device, int rank,
                const DataRanks& ranks, const std::vector<FlatParameterInfo>& infos);
  void attach();

  PlainDevice device_;
  StateStore store_;
  SlotPool slots_;
  RestingBuffers buffers_{store_};
  std::vector<std::unique_ptr<FlatParameter>> own_;
  std::vector<FlatParameter*> flat_;
  std::map<std::string, std::unique_ptr<CountingGroup>> counting_;
  std::map<std::string, CheckedGroup*> groups_;
  LoadedPlugin<Partitioner> plugin_;
  std::unique_ptr<Partitioner> in_windows_ = with_buffers(*plugin_, buffers_);
  std::vector<Slice> owned_;
};

// Makes the calls of one step in the engine's order, gathering every layer for each forward and each backward.
// Gradients of flat parameters with an odd number are finished, and their buffers taken away, after each micro-batch.
// `fill` gets each trainable flat parameter's full gradient buffer and the micro-batch, and adds to the buffer.
void run_step(PartitionRank& rank, int micro_batches,
              const std::function<void(FlatParameter& flat, const at::Tensor& buffer, int micro_batch)>& fill);

}  // namespace strata::fakes
