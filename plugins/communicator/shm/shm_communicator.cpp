// Communicator shm: collectives through shared memory for tensors in host memory, between processes of one user on one
// host. The kernel is only called to wake sleeping ranks.
#include <strata/communicator.hpp>
#include <strata/plugin_context.hpp>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "shm_transport.hpp"

namespace {

using namespace strata;

#define SHM_OPTIONS(OPTION)                                                                                        \
  OPTION(size, slot_size, "512KiB", "min=4KiB,max=1GiB", "",                                                       \
         "Shared-memory buffer of a rank for collectives, two per group. It should be well below the size of the " \
         "processor's cache.")                                                                                     \
  OPTION(                                                                                                          \
      size, ring_size, "1MiB", "min=4KiB,max=1GiB", "",                                                            \
      "Buffer for activations and gradients in transit between two ranks, allocated for each pair that communicates.")
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
