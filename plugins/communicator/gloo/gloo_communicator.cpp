// Communicator gloo: collectives over TCP for tensors in host memory, between processes on one or several hosts.
// Traffic is not encrypted or authenticated; connections use the loopback address unless the run spans hosts.
#include <strata/communicator.hpp>
#include <strata/plugin_context.hpp>

#include "gloo_transport.hpp"

namespace {

using namespace strata;

STRATA_NO_OPTIONS(GlooOptions)

class Gloo final : public Communicator {
 public:
  Gloo(PluginContext&, const GlooOptions&) {}
  std::vector<std::string> device_types() const override { return {"cpu"}; }
  std::string unavailable() const override { return {}; }
  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupSetup& setup) override {
    return make_host_backend(setup, std::make_unique<gloo_communicator::GlooTransport>(store, setup));
  }
};

}  // namespace

STRATA_PLUGIN(Gloo, GlooOptions)
