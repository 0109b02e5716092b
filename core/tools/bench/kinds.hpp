// The measurements of each kind of plugin and their floors, one file per kind. `sizes` is never empty.
#pragma once
#include <strata/communicator.hpp>
#include <strata/data_source.hpp>
#include <strata/device.hpp>
#include <strata/model.hpp>
#include <strata/offload_device.hpp>
#include <strata/optimizer.hpp>
#include <strata/partitioner.hpp>
#include <strata/precision_policy.hpp>
#include <strata/scheduler.hpp>

#include "tools/bench/bench.hpp"
#include "tools/bench/bench_ranks.hpp"
#include "tools/bench/interleaved_timer.hpp"

namespace strata::bench {

// Operators, against one pass over their tensors (on an accelerator: against a copy there); host copies, against a
// plain copy.
std::vector<Row> bench_device(Device& device, const Sizes& sizes, const InterleavedTimer& timer);
// Every collective, against a copy of the bytes that a rank must send. [collective]
std::vector<Row> bench_communicator(Group& ranks, const Sizes& sizes, const InterleavedTimer& timer);
// A step's gathers and reductions, against the same collectives called directly on the same groups. `make` creates an
// instance for each size; `groups` are the groups it needs. [collective]
using MakePlugin = std::function<std::unique_ptr<cli::ChosenPlugin>()>;
std::vector<Row> bench_partitioner(const MakePlugin& make, const NamedGroups& groups, const Sizes& sizes,
                                   const InterleavedTimer& timer);
// linear(), against libtorch's in the same number format or in fp32, whichever is faster.
std::vector<Row> bench_precision(PrecisionPolicy& policy, const Sizes& sizes, const InterleavedTimer& timer);
// The bubble, against the time that the last stage must wait; planning, against writing down the same number of
// actions.
std::vector<Row> bench_scheduler(const std::string& name, const Scheduler& scheduler, const Sizes& sizes,
                                 const InterleavedTimer& timer);
// Transfers, against a plain copy, or against reading and writing a file in `folder`.
std::vector<Row> bench_offload(OffloadDevice& device, const std::string& folder, const Sizes& sizes,
                               const InterleavedTimer& timer);
// A step, against one pass over the same tensors.
std::vector<Row> bench_optimizer(Optimizer& optimizer, const Sizes& sizes, const InterleavedTimer& timer);
// Forward and backward of a layer, against a matmul with the FLOP of its weights.
std::vector<Row> bench_model(const Model& model, const Sizes& sizes, const InterleavedTimer& timer);
// Reading samples in a shuffled order, against reading an equal number of bytes of the files in that order.
std::vector<Row> bench_data(const DataSource& plugin, const Sizes& sizes, const InterleavedTimer& timer);

}  // namespace strata::bench
