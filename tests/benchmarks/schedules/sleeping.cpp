// Precision sleeping: fp32 whose three matrix products each sleep for a while. A pipeline stage then takes as long as
// its number of matrices says, however many ranks share a core, so that the schedule is measured and not the machine.
#include <sys/prctl.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/skip_policy.hpp>

#include <chrono>
#include <thread>

namespace {

using namespace strata;

#define SLEEPING_OPTIONS(OPTION)                                                                     \
  STRATA_SKIP_OPTION(OPTION)                                                                         \
  OPTION(integer, forward_us, 2500, "min=0,max=1000000", "us", "Sleep in a product of the forward.") \
  OPTION(integer, input_us, 2500, "min=0,max=1000000", "us",                                         \
         "Sleep in a product of the backward that gives the gradient of the input.")                 \
  OPTION(integer, weight_us, 2500, "min=0,max=1000000", "us",                                        \
         "Sleep in a product of the backward that gives the gradient of a weight.")
STRATA_OPTIONS(SleepingOptions, SLEEPING_OPTIONS)

class Sleeping final : public UnscaledPolicy {
 public:
  Sleeping(PluginContext&, const SleepingOptions& options)
      : UnscaledPolicy(options.max_consecutive_skips), options_(options) {
    prctl(PR_SET_TIMERSLACK, 1);  // nanoseconds; 50 microseconds is the default
  }

  DTypes dtypes(const ParameterInfo&) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }

  at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) override {
    const Until until(options_.forward_us);
    return PrecisionPolicy::linear(x, w, b);
  }
  at::Tensor input_gradient(const at::Tensor& dy, const Parameter& w) override {
    const Until until(options_.input_us);
    return PrecisionPolicy::input_gradient(dy, w);
  }
  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& w, const at::Tensor& into,
                           bool first) override {
    const Until until(options_.weight_us);
    PrecisionPolicy::add_weight_gradient(dy, x, w, into, first);
  }

 private:
  // Sleeps for the rest of the time.
  class Until {
   public:
    explicit Until(std::int64_t microseconds)
        : end_(std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds)) {}
    Until(const Until&) = delete;
    Until& operator=(const Until&) = delete;
    ~Until() { std::this_thread::sleep_until(end_); }

   private:
    std::chrono::steady_clock::time_point end_;
  };

  SleepingOptions options_;
};

}  // namespace

STRATA_PLUGIN(Sleeping, SleepingOptions, SLEEPING_OPTIONS)
