// What the cases of partitioners share: ranks that are threads, values that say where they came from, and what must
// come of them.
#pragma once
#include <strata/fakes/partition_ranks.hpp>

#include <functional>
#include <string>
#include <vector>

#include "runner/case.hpp"

namespace strata::conformance {

// A setting among so many data-parallel ranks.
struct Layout {
  fakes::OptionTexts options;
  int ranks = 1;
};
std::string to_string(const Layout& layout);  // "3 ranks with stage=2"

// Calls `work` for each setting on each number of ranks that the plugin takes, failures get the layout in front. Throws
// Failure when it takes none.
void for_each_layout(Subject& subject, const std::vector<int>& ranks, const std::function<void(const Layout&)>& work);
// The same for one setting; gives how many of them it takes, which may be none.
int for_layouts_of(Subject& subject, const fakes::OptionTexts& setting, const std::vector<int>& ranks,
                   const std::function<void(const Layout&)>& work);
// The same for the defaults, and where they are refused for all of `ranks`, for every setting.
void for_default_layouts(Subject& subject, const std::vector<int>& ranks,
                         const std::function<void(const Layout&)>& work);

// Runs `body` on every rank, attached to flat parameters like `infos`; when one fails the others' waits end. Each is
// shut down after its body.
void on_ranks_of(Subject& subject, const Layout& layout, const std::vector<FlatParameterInfo>& infos,
                 const std::function<void(fakes::PartitionRank&, int rank)>& body,
                 fakes::Movement movement = fakes::Movement::AtStart);

// One element, fewer elements than ranks, odd sizes, a frozen one, one that two layers share, one of several
// parameters.
std::vector<FlatParameterInfo> parameters_of_all_kinds(const DTypes& dtypes = {});
// A flat parameter of several parameters of these shapes.
FlatParameterInfo flat_parameter_of(int id, const std::vector<std::vector<std::int64_t>>& shapes,
                                    const DTypes& dtypes = {}, bool trainable = true);

// fp32 throughout; 16-bit parameters with fp32 gradients; 16-bit parameters whose gradients travel in 16 bits.
std::vector<DTypes> some_dtypes();

// Elements [begin, end) of flat parameter `id`; small integers, exact in every format.
at::Tensor parameter_values(int id, double offset, std::int64_t begin, std::int64_t end);
at::Tensor gradient_values(int rank, int micro_batch, std::int64_t begin, std::int64_t end);

// What results may differ by with these options, relative: 0, or the bound that the manifest's equivalence names. Throws
// Skip where it is simulated.
double tolerance_of(Subject& subject, const fakes::OptionTexts& options);

// Fills this rank's slices as the engine does and publishes all flat parameters.
void publish_values(fakes::PartitionRank& rank, double offset);
// Gathers `flat`, compares every parameter's view with the published values, releases it.
void require_values(fakes::PartitionRank& rank, FlatParameter& flat, double offset, Phase phase, double tolerance);
// A step whose gradients every rank fills with gradient_values; then the slices' sums are those over all ranks and
// micro-batches.
void run_and_check_gradients(fakes::PartitionRank& rank, int own_rank, int ranks, int micro_batches, double tolerance);

}  // namespace strata::conformance
