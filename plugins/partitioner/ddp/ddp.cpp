// Partitioner ddp: data parallelism without sharding. Every rank keeps all parameters, gradients and optimizer state of
// its layers. Gradients are accumulated locally over the micro-batches and all-reduced once, after the last one, of an
// embedding maybe some rows; not where the optimizer sends something itself (<strata/own_exchange.hpp>).
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/own_exchange.hpp>
#include <strata/partitioner.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/row_sums.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace strata;

#define DDP_OPTIONS(OPTION) STRATA_SPARSE_OPTION(OPTION)
STRATA_OPTIONS(DdpOptions, DDP_OPTIONS)

class Ddp final : public Partitioner {
 public:
  Ddp(PluginContext& context, const DdpOptions& options)
      : context_(context),
        sparse_(options.sparse_gradients),
        exchange_(static_cast<OwnExchange*>(context.extension(OwnExchange::id))) {
    if (exchange_ != nullptr) exchange_->partitioner_can_leave_gradients(true);
  }

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("data", mesh);
  }

  void attach(PartitionContext& context) override {
    group_ = &context.group("data");
    if (sparse_)
      if (const std::string said = row_sums_.attach(context, *group_); !said.empty())
        context_.log(LogLevel::Info, said);
    replicas_.resize(context.flat_parameters().size());
    for (FlatParameter* flat : context.flat_parameters()) {
      const FlatParameterInfo& info = flat->info();
      Replica& replica = replicas_[static_cast<std::size_t>(info.id)];
      replica.flat = flat;
      replica.parameter = &context.buffer({.category = Category::Parameter,
                                           .flat = flat,
                                           .elements = info.elements,
                                           .dtype = info.dtypes.parameter,
                                           .resident = true});
      flat->bind(replica.parameter->tensor());
      if (!info.trainable) continue;
      replica.gradient = &context.buffer(
          {.category = Category::Gradient, .flat = flat, .elements = info.elements, .dtype = info.dtypes.gradient});
      if (group_->size() > 1 && info.dtypes.reduction != info.dtypes.gradient)
        replica.bucket =
            context.store().allocate(Category::Bucket, Tier::Device, info.name, info.elements, info.dtypes.reduction);
    }
  }

  Lookahead lookahead() const override {
    Lookahead lookahead;
    lookahead.resident = true;
    return lookahead;
  }

  void prefetch(FlatParameter&, Phase) override {}
  void gather(FlatParameter&, Phase) override {}
  void release(FlatParameter&, Phase) override {}

  LentGradient gradient(FlatParameter& flat, Accumulation accumulation) override {
    Replica& replica = replica_of(flat);
    if (std::exchange(replica.lent, true)) throw Bug("the gradient of {} is lent already", flat.info().name);
    return {replica.gradient->tensor(), accumulation.first};
  }

  void reduce(FlatParameter& flat, Accumulation accumulation) override {
    Replica& replica = replica_of(flat);
    if (!std::exchange(replica.lent, false))
      throw Bug("the gradient of {} is reduced and was not lent", flat.info().name);
    if (!accumulation.last || group_->size() == 1) return;
    if (exchange_ != nullptr && exchange_->leaves_gradients()) return;
    const at::Tensor& gradient = replica.gradient->tensor();
    if (replica.bucket.defined()) replica.bucket.copy_(gradient);
    const at::Tensor& values = replica.bucket.defined() ? replica.bucket : gradient;
    if (row_sums_.takes(flat)) replica.rows = row_sums_.start(flat, values, false);
    if (!replica.rows || !replica.rows->travels()) replica.pending = group_->all_reduce(values, ReduceOperation::Sum);
  }

  void finish_gradient(FlatParameter& flat) override {
    Replica& replica = replica_of(flat);
    if (!replica.rows && !replica.pending.waiting()) return;
    replica.pending.wait();
    if (replica.rows) row_sums_.finish(*replica.rows);
    replica.rows.reset();
    if (replica.bucket.defined()) replica.gradient->tensor().copy_(replica.bucket);
  }

  std::vector<Slice> owned() override {
    std::vector<Slice> slices;
    for (const Replica& replica : replicas_) {
      const std::int64_t elements = replica.flat->elements();
      const std::int64_t ranks = group_->size();
      slices.push_back({replica.flat,
                        0,
                        elements,
                        {replica.parameter, 0, elements},
                        {replica.gradient, 0, elements},
                        elements * group_->rank() / ranks,
                        elements * (group_->rank() + 1) / ranks});
    }
    return slices;
  }

  // A pending all-reduce writes into memory that is freed next.
  void shutdown() override {
    for (Replica& replica : replicas_) {
      const Pending ended = std::move(replica.pending);  // its destructor waits
      if (replica.rows) row_sums_.drop(*replica.rows);
    }
  }

  // Every rank computes the same update, so there is nothing to send.
  void publish(FlatParameter&) override {}

 private:
  struct Replica {
    FlatParameter* flat = nullptr;
    Buffer* parameter = nullptr;
    Buffer* gradient = nullptr;  // null if frozen
    at::Tensor bucket;           // the gradient in the reduction's dtype, if it differs
    Pending pending;
    std::optional<toolbox::RowExchange> rows;  // instead of pending, or in addition where no rows are sent
    bool lent = false;                         // set by gradient(), cleared by reduce(); any other order throws Bug
  };
  Replica& replica_of(const FlatParameter& flat) { return replicas_[static_cast<std::size_t>(flat.info().id)]; }

  PluginContext& context_;
  bool sparse_;
  toolbox::RowSums row_sums_;
  OwnExchange* exchange_;  // null: the host has none
  Group* group_ = nullptr;
  std::vector<Replica> replicas_;  // indexed by flat parameter id
};

}  // namespace

STRATA_PLUGIN(Ddp, DdpOptions, DDP_OPTIONS)
