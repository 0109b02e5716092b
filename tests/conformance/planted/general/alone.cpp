// The smallest plugin, for defects of its manifest and its symbols.
#include <strata/error.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>

namespace {

using namespace strata;

#if defined(PLANTED_UNDOCUMENTED)
#define ALONE_OPTIONS(OPTION) OPTION(integer, depth, 1, "min=0", "", " ")
#else
#define ALONE_OPTIONS(OPTION) OPTION(integer, depth, 1, "min=0", "", "Of nothing.")
#endif
STRATA_OPTIONS(AloneOptions, ALONE_OPTIONS)

class Alone final : public Scheduler {
 public:
  Alone(PluginContext&, const AloneOptions&) {}
  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    if (shape.chunks() != 1 || layers.empty()) throw UserError("one stage, one chunk, one layer at least");
    return {{0}, {{0, static_cast<int>(layers.size())}}};
  }
  std::vector<ComputeAction> order(const PipelineShape& shape, int) const override {
    std::vector<ComputeAction> order;
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      order.push_back({ComputeKind::Forward, 0, micro_batch});
      order.push_back({ComputeKind::Backward, 0, micro_batch});
    }
    return order;
  }
};

}  // namespace

#if defined(PLANTED_TWO_EXPORTS)
extern "C" STRATA_EXPORT void planted_second_export();
void planted_second_export() {}
#endif

#if defined(PLANTED_UNDEFINED_SYMBOL)
extern "C" void planted_function_that_nobody_has();
namespace {
[[gnu::constructor]] void call_it() {
  planted_function_that_nobody_has();
}
}  // namespace
#endif

#if defined(PLANTED_OTHER_MANIFEST)
// The entry names a text of its own: a plugin that was put together from two builds.
#define strata_plugin_entry_v1 planted_entry
#endif
STRATA_PLUGIN(Alone, AloneOptions, ALONE_OPTIONS)
#if defined(PLANTED_OTHER_MANIFEST)
#undef strata_plugin_entry_v1
extern "C" STRATA_EXPORT const strata::PluginEntry* strata_plugin_entry_v1() {
  static const strata::PluginEntry entry{sizeof(strata::PluginEntry), STRATA_ABI_MAJOR, STRATA_ABI_MINOR, "{}",
                                         strata_plugin_create};
  return &entry;
}
#endif
