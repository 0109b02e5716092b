#include <strata/error.hpp>
#include <strata/fakes/partition_ranks.hpp>

namespace strata::fakes {

FlatParameterInfo flat_parameter_info(int id, std::int64_t elements, const DTypes& dtypes, bool trainable) {
  FlatParameterInfo info;
  info.id = id;
  info.name = format("layer {}", id);
  info.layers = {id};
  info.elements = elements;
  info.trainable = trainable;
  info.dtypes = dtypes;
  info.parameters = {{{"p" + std::to_string(id), {elements}, {}, trainable, ""}, 0}};
  return info;
}

std::vector<FlatParameterInfo> odd_flat_parameters(const DTypes& dtypes) {
  std::vector<FlatParameterInfo> infos{flat_parameter_info(0, 1, dtypes), flat_parameter_info(1, 2, dtypes),
                                       flat_parameter_info(2, 37, dtypes), flat_parameter_info(3, 1000, dtypes),
                                       flat_parameter_info(4, 11, dtypes, false)};
  infos[2].name = "tie embedding";
  infos[2].layers = {0, 3};
  return infos;
}

PartitionGroups::PartitionGroups(const PluginLibrary& library, const OptionTexts& options, const DataRanks& ranks,
                                 Movement movement)
    : ranks_(ranks) {
  const LoadedPlugin<Partitioner> asked(library, options, ranks.in_the_run(0), ranks.mesh);
  specs_ = asked->groups(ranks.mesh);
  for (const GroupSpec& spec : specs_) {
    for (const std::vector<int>& members : spec.members) {
      std::vector<int> in_the_run;
      for (const int member : members) in_the_run.push_back(ranks.in_the_run(member));
      auto groups = local_groups(in_the_run, std::chrono::seconds(30), movement);
      for (std::size_t i = 0; i < members.size(); ++i) groups_[{spec.name, members[i]}] = std::move(groups[i]);
    }
  }
}

CheckedGroup& PartitionGroups::of(const std::string& name, int rank) const {
  const auto found = groups_.find({name, rank});
  if (found == groups_.end()) throw Bug("rank {} takes the group '{}', which groups() did not ask for", rank, name);
  return *found->second;
}

int PartitionGroups::under_way(int rank) const {
  int sum = 0;
  for (const auto& [key, group] : groups_)
    if (key.second == rank) sum += fakes::under_way(*group);
  return sum;
}

void PartitionGroups::give_up() const {
  for (const auto& [key, group] : groups_) fakes::give_up(*group);
}

PartitionRank::PartitionRank(const PluginLibrary& library, const OptionTexts& options, const PartitionGroups& groups,
                             int rank, const std::vector<FlatParameterInfo>& infos)
    : PartitionRank(library, options, at::kCPU, rank, groups.data_ranks(), infos) {
  for (const GroupSpec& spec : plugin_->groups(groups.data_ranks().mesh))
    groups_[spec.name] = &groups.of(spec.name, rank);
  attach();
}

PartitionRank::PartitionRank(const PluginLibrary& library, const OptionTexts& options, const DataRanks& ranks, int rank,
                             const std::vector<FlatParameterInfo>& infos)
    : PartitionRank(library, options, at::kMeta, rank, ranks, infos) {
  for (const GroupSpec& spec : plugin_->groups(ranks.mesh)) {
    for (const std::vector<int>& members : spec.members) {
      for (std::size_t place = 0; place < members.size(); ++place) {
        if (members[place] != rank) continue;
        counting_[spec.name] = std::make_unique<CountingGroup>(spec.name, static_cast<int>(place), members);
        groups_[spec.name] = counting_[spec.name].get();
      }
    }
  }
  attach();
}

PartitionRank::PartitionRank(const PluginLibrary& library, const OptionTexts& options, at::DeviceType device, int rank,
                             const DataRanks& ranks, const std::vector<FlatParameterInfo>& infos)
    : device_(at::Device(device)),
      store_(at::Device(device)),
      slots_(store_, device_),
      plugin_(library, options, ranks.in_the_run(rank), ranks.mesh) {
  for (const FlatParameterInfo& info : infos) {
    own_.push_back(std::make_unique<FlatParameter>(info, at::Device(device)));
    flat_.push_back(own_.back().get());
  }
}

PartitionRank::~PartitionRank() = default;

void PartitionRank::attach() {
  plugin_->attach(*this);
  owned_ = plugin_->owned();
}

Traffic PartitionRank::traffic() const {
  Traffic sum;
  for (const auto& [name, group] : groups_) sum += group->traffic();
  return sum;
}

Group& PartitionRank::group(const std::string& name) {
  const auto found = groups_.find(name);
  if (found == groups_.end()) throw Bug("the group '{}' is none of those that groups() asked for", name);
  return *found->second;
}

void run_step(PartitionRank& rank, int micro_batches,
              const std::function<void(FlatParameter&, const at::Tensor&, int)>& fill) {
  Partitioner& partitioner = rank.partitioner();
  const bool resident = partitioner.lookahead().resident;
  const std::vector<FlatParameter*>& flat = rank.flat_parameters();
  FlatParameter* leaving = nullptr;
  const auto reduced = [&](FlatParameter* next) {
    if (leaving != nullptr) partitioner.finish_gradient(*leaving);
    leaving = next;
  };
  const auto leaves = [](const FlatParameter& parameter) { return parameter.info().id % 2 == 1; };
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
        const LentGradient gradient = partitioner.gradient(**parameter, accumulation);
        if (gradient.empty) gradient.values.zero_();
        fill(**parameter, gradient.values, micro_batch);
        partitioner.reduce(**parameter, accumulation);
        reduced(leaves(**parameter) ? *parameter : nullptr);
      }
      if (!resident) partitioner.release(**parameter, Phase::Backward);
    }
  }
  reduced(nullptr);
  for (FlatParameter* parameter : flat)
    if (parameter->info().trainable && !leaves(*parameter)) partitioner.finish_gradient(*parameter);
}

}  // namespace strata::fakes
