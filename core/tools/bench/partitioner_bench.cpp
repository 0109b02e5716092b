// Times a partitioner's step between processes with the engine's calls but without computation: every flat parameter is
// gathered for forward and backward, its gradient is borrowed and reduced, its new values are published. Floor: the
// same collectives without the partitioner.
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <strata/error.hpp>
#include <strata/plain_device.hpp>

#include <deque>

#include "text/size.hpp"
#include "tools/bench/kinds.hpp"

namespace strata::bench {

namespace {

constexpr int layers = 4;

FlatParameterInfo layer_info(int id, std::int64_t elements) {
  FlatParameterInfo info;
  info.id = id;
  info.name = format("layer {}", id);
  info.layers = {id};
  info.elements = elements;
  info.parameters = {{{"layers." + std::to_string(id) + ".weight", {elements}, {}, true, ""}, 0}};
  return info;
}

class BenchedPartition final : public PartitionContext {
 public:
  BenchedPartition(const NamedGroups& groups, std::int64_t elements) : groups_(groups) {
    for (int id = 0; id < layers; ++id) {
      own_.push_back(std::make_unique<FlatParameter>(layer_info(id, elements), at::kCPU));
      flat_.push_back(own_.back().get());
    }
  }
  const std::vector<FlatParameter*>& flat_parameters() const override { return flat_; }
  Group& group(const std::string& name) override {
    const auto found = groups_.find(name);
    if (found == groups_.end()) throw Bug("a partitioner uses the group '{}', which its groups() did not return", name);
    return *found->second;
  }
  Buffer& buffer(const BufferRequest& request) override {
    Buffer& buffer = buffers_.emplace_back(request.flat->info().name);
    buffer.bring(store_.allocate(request.category, Tier::Device, buffer.name(), request.elements, request.dtype));
    return buffer;
  }
  bool moves(Category) const override { return false; }
  StateStore& store() override { return store_; }
  SlotPool& slots() override { return slots_; }
  Device& device() override { return device_; }

 private:
  const NamedGroups& groups_;
  PlainDevice device_{at::kCPU};
  StateStore store_{at::kCPU};
  SlotPool slots_{store_, device_};
  std::deque<Buffer> buffers_;
  std::vector<std::unique_ptr<FlatParameter>> own_;
  std::vector<FlatParameter*> flat_;
};

// From the end of one forward to the end of the next, because the next forward's gathers wait for what publish()
// starts.
void step(Partitioner& partitioner, const std::vector<FlatParameter*>& flat) {
  const bool resident = partitioner.lookahead().resident;
  for (auto parameter = flat.rbegin(); parameter != flat.rend(); ++parameter) {
    if (!resident) partitioner.gather(**parameter, Phase::Backward);
    partitioner.gradient(**parameter, {});
    partitioner.reduce(**parameter, {});
    if (!resident) partitioner.release(**parameter, Phase::Backward);
  }
  for (FlatParameter* parameter : flat) partitioner.finish_gradient(*parameter);
  for (FlatParameter* parameter : flat) partitioner.publish(*parameter);
  for (FlatParameter* parameter : flat) {
    if (resident) break;
    partitioner.prefetch(*parameter, Phase::Forward);
    partitioner.gather(*parameter, Phase::Forward);
    partitioner.release(*parameter, Phase::Forward);
  }
}

// Repeats the collectives of one step in one group: the same number of calls, with the bytes divided equally. They are
// in place, so that no rank copies its own part, and on zeros, so that sums do not grow.
class BareCollectives {
 public:
  BareCollectives(Group& group, const Traffic& traffic) : group_(group) {
    if (traffic.bytes_of(Collective::Send) > 0)
      throw UserError("this partitioner uses send and receive, for which bench has no floor");
    std::int64_t longest = 0;
    for (int number = 0; number < collective_count; ++number) {
      const auto collective = static_cast<Collective>(number);
      if (traffic.bytes_of(collective) == 0) continue;
      const std::int64_t calls = traffic.calls_of(collective), sent = traffic.bytes_of(collective) / calls;
      const std::int64_t of_a_rank = sent / (collective == Collective::AllReduce ? 2 : 1) / (group.size() - 1);
      calls_.push_back({collective, calls, std::max<std::int64_t>(of_a_rank / 4, 1)});
      longest = std::max(longest, calls_.back().part);
    }
    whole_ = at::zeros({longest * group.size()});
    if (traffic.bytes_of(Collective::AllToAll) > 0) other_ = at::zeros_like(whole_);
  }
  // Waits for each call before the next one, or collects them in `later`.
  void run(std::vector<Pending>* later) const {
    for (const Calls& calls : calls_) {
      const std::int64_t part = calls.part, all = part * group_.size();
      for (std::int64_t call = 0; call < calls.count; ++call) {
        Pending pending =
            start(calls.collective, group_, whole_.narrow(0, 0, all), whole_.narrow(0, part * group_.rank(), part),
                  other_.defined() ? other_.narrow(0, 0, all) : other_);
        if (later == nullptr) {
          pending.wait();
        } else {
          later->push_back(std::move(pending));
        }
      }
    }
  }

 private:
  struct Calls {
    Collective collective;
    std::int64_t count;
    std::int64_t part;  // elements of one rank's part
  };

  Group& group_;
  std::vector<Calls> calls_;
  at::Tensor whole_;
  at::Tensor other_;  // only for all-to-all
};

}  // namespace

std::vector<Row> bench_partitioner(const MakePlugin& make, const NamedGroups& groups, const Sizes& sizes,
                                   const InterleavedTimer& timer) {
  std::vector<Row> rows;
  for (const std::int64_t size : sizes) {
    BenchedPartition context(groups, std::max<std::int64_t>(size / 4, 1));
    const std::unique_ptr<cli::ChosenPlugin> plugin = make();
    Partitioner& partitioner = plugin->make<Partitioner>();
    partitioner.attach(context);
    const std::vector<Slice> owned = partitioner.owned();
    step(partitioner, context.flat_parameters());  // the first step allocates slots
    std::vector<BareCollectives> bare;
    std::int64_t sent = 0;
    for (const auto& [name, group] : groups) group->reset_traffic();
    step(partitioner, context.flat_parameters());
    for (const auto& [name, group] : groups) {
      const Traffic traffic = group->traffic();
      sent += traffic.total_bytes();
      if (traffic.total_bytes() > 0) bare.emplace_back(*group, traffic);
    }
    if (sent == 0)
      throw UserError("{} sends nothing between these ranks with these options, so there is nothing to measure",
                      plugin->name());
    const Work one_by_one = [&] {
      for (const BareCollectives& collectives : bare) collectives.run(nullptr);
    };
    const Work all_at_once = [&] {
      std::vector<Pending> pending;
      for (const BareCollectives& collectives : bare) collectives.run(&pending);
      for (Pending& one : pending) one.wait();
    };
    rows.push_back(
        timer.time({.name = "a step's gathers and reductions",
                    .size = format("{} x {}", layers, text::format_bytes(context.flat_parameters().front()->bytes())),
                    .floor = "the same collectives by themselves, " + text::format_bytes(sent) + " sent",
                    .work = static_cast<double>(sent),
                    .work_unit = "B"},
                   [&] { step(partitioner, context.flat_parameters()); }, {one_by_one, all_at_once}));
    plugin->shutdown();  // before its context is destroyed
  }
  return rows;
}

}  // namespace strata::bench
