// Shared memory: collectives of tensors in host memory among processes of one host that run as one user. Nothing passes
// the kernel but the calls that wake sleepers.
#include <strata/communicator.hpp>
#include <strata/plugin_context.hpp>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "shm_transport.hpp"

namespace {

using namespace strata;

#define SHM_OPTIONS(OPTION)                                                                                          \
  OPTION(size, slot_size, "512KiB", "min=4KiB,max=1GiB", "",                                                         \
         "What a rank shares at once in a collective, twice per group; best well inside the processor's own cache.") \
  OPTION(size, ring_size, "1MiB", "min=4KiB,max=1GiB", "",                                                           \
         "Room between two ranks for activations and gradients under way; taken where two ranks talk.")
STRATA_OPTIONS(ShmOptions, SHM_OPTIONS)

class Shm final : public Communicator {
 public:
  Shm(PluginContext& /*context*/, const ShmOptions& options) : options_(options) {}
  std::vector<std::string> device_types() const override { return {"cpu"}; }
  std::string unavailable() const override { return shm_communicator::missing_here(); }
  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupSetup& setup) override {
    return make_host_backend(
        setup, std::make_unique<shm_communicator::ShmTransport>(store, setup, options_.slot_size, options_.ring_size));
  }

 private:
  ShmOptions options_;
};

}  // namespace

STRATA_PLUGIN(Shm, ShmOptions, SHM_OPTIONS)
