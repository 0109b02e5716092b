// What is measured of a plugin of each kind, and beside what. Each in a file of its own; `sizes` is never empty.
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
#include "tools/bench/plugin_under_test.hpp"

namespace strata::bench {

using Sizes = std::vector<std::int64_t>;

// Operators over one pass over their streams (on a device of its own: over a copy there), host copies over a plain
// copy.
std::vector<Row> bench_device(Device& device, const Sizes& sizes, const InterleavedTimer& timer);
// Every collective over a copy of the bytes that a rank must send. [collective]
std::vector<Row> bench_communicator(Group& ranks, const Sizes& sizes, const InterleavedTimer& timer);
// A step's gathers and reductions over the same collectives, called on the same groups and nothing around them. `make`
// gives an instance a size; `groups` are what it asks for. [collective]
using MakePlugin = std::function<std::unique_ptr<PluginUnderTest>()>;
std::vector<Row> bench_partitioner(const MakePlugin& make, const NamedGroups& groups, const Sizes& sizes,
                                   const InterleavedTimer& timer);
// linear() over libtorch's in the same number format or in fp32, whichever is faster.
std::vector<Row> bench_precision(PrecisionPolicy& policy, const Sizes& sizes, const InterleavedTimer& timer);
// The bubble over what the last stage must wait; planning over writing down as many actions.
std::vector<Row> bench_scheduler(const std::string& name, const Scheduler& scheduler, const Sizes& sizes,
                                 const InterleavedTimer& timer);
// Transfers over a plain copy, or over reading and writing a file in `folder`.
std::vector<Row> bench_offload(OffloadDevice& device, const std::string& folder, const Sizes& sizes,
                               const InterleavedTimer& timer);
// A step over one pass over the same streams.
std::vector<Row> bench_optimizer(Optimizer& optimizer, const Sizes& sizes, const InterleavedTimer& timer);
// Forward and backward of a layer over a matmul of the FLOP that its weights take.
std::vector<Row> bench_model(const Model& model, const Sizes& sizes, const InterleavedTimer& timer);
// Reading samples in a shuffled order over reading as many bytes of the files in that order.
std::vector<Row> bench_data(const DataSource& plugin, const Sizes& sizes, const InterleavedTimer& timer);

}  // namespace strata::bench
