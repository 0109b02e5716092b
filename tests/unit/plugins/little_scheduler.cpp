// A plugin that does nothing but show that it was made, with which options, and shut down.
#include <strata/error.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>

#include <stdexcept>

#include "little_options.hpp"

namespace {

class Little : public strata::Scheduler {
 public:
  Little(strata::PluginContext& context, const LittleOptions& options) : context_(context), options_(options) {
    if (options.fails_with == "user") throw strata::UserError("depth and ratio do not go together");
    if (options.fails_with == "environment") throw strata::EnvironmentError("no such device");
    if (options.fails_with == "runtime") throw std::runtime_error("first line\nstack trace");
    if (options.fails_with == "integer") throw 7;
    context.log(strata::LogLevel::Info, "made");
  }
  ~Little() override { context_.log(strata::LogLevel::Info, "destroyed"); }
  void shutdown() override {
    context_.log(strata::LogLevel::Info, "shut down");
    if (options_.depth == 13) throw strata::EnvironmentError("a thread did not end");
  }
  int state_version() const override { return 3; }
  strata::Placement place(const std::vector<strata::LayerCost>& /*layers*/,
                          const strata::PipelineShape& /*shape*/) const override {
    return {};
  }
  std::vector<strata::ComputeAction> order(const strata::PipelineShape& /*shape*/, int /*stage*/) const override {
    return std::vector<strata::ComputeAction>(static_cast<std::size_t>(options_.depth));
  }

 private:
  strata::PluginContext& context_;
  LittleOptions options_;
};

}  // namespace

STRATA_PLUGIN(Little, LittleOptions, LITTLE_OPTIONS)
