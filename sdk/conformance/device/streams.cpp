#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/device/checks.hpp"
#include "conformance/drawn/search.hpp"

#include <strata/format.hpp>

namespace strata::conformance::device_checks {

namespace {

constexpr std::array<std::pair<StreamKind, const char*>, 3> streams{
    {{StreamKind::Compute, "Compute"}, {StreamKind::Communication, "Communication"}, {StreamKind::Offload, "Offload"}}};

}  // namespace

void events_order_work(const UsableDevice& device, Draws& draws) {
  std::array<std::unique_ptr<Event>, 3> events;
  for (auto& event : events) {
    event = device->make_event();
    require(event != nullptr, "make_event() returns null");
  }
  // One that was never recorded does nothing.
  if (draws.chance(2)) events[0]->block(streams[static_cast<std::size_t>(draws.between(0, 2))].first);
  if (draws.chance(2)) events[1]->synchronize();
  const at::Tensor values = at::zeros({draws.size(1 << 20)}, device.options(at::kFloat));
  device->synchronize();
  // On drawn streams x becomes 2 x or x + 1: out of order it is another number.
  double wanted = 0.0;
  std::size_t last = 0;
  std::string chain;
  const auto steps = draws.between(1, 18);
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto now = static_cast<std::size_t>(draws.between(0, 2));
    const bool doubles = draws.chance(2);
    Event& before = *events[static_cast<std::size_t>(step + 2) % 3];
    if (step > 0 && now != last) before.block(streams[now].first);
    const auto within = static_cast<std::size_t>(draws.between(0, 2));
    const bool nests = draws.chance(3), throws = draws.chance(4);
    int runs = 0;
    const std::string on = std::string("on(") + streams[now].second + ")";
    try {
      device->on(streams[now].first, [&] {
        ++runs;
        values.mul_(doubles ? 2.0 : 1.0).add_(doubles ? 0.0 : 1.0);
        if (nests) device->on(streams[within].first, [&] { runs += 10; });
        if (nests) require(runs == 11, on + ": work that began work elsewhere went on before that was done");
        if (throws) throw std::runtime_error("from the work");
      });
      require(!throws, on + " did not rethrow its work's exception");
    } catch (const std::runtime_error& error) {
      require(throws && std::string(error.what()) == "from the work", on + " threw: " + error.what());
    }
    require(runs == (nests ? 11 : 1), on + " must run its work once before it returns, on the caller's thread");
    events[static_cast<std::size_t>(step) % 3]->record(streams[now].first);
    wanted = doubles ? 2 * wanted : wanted + 1;
    last = now;
    chain += std::string(doubles ? " 2 x on " : " x + 1 on ") + streams[now].second;
  }
  events[static_cast<std::size_t>(steps + 2) % 3]->synchronize();
  require(values.eq(wanted).all().item<bool>(),
          format("updates of one tensor,{}, each after the event of the one before, do not give {}; block() must make "
                 "a stream wait for the point that was recorded last",
                 chain, wanted));
}

void drawn(Subject& subject) {
  const UsableDevice device(subject);
  search(subject, "device.drawn", 500, [](Subject& of, Draws& draws, const Tell& tell) {
    using Check = std::pair<const char*, void (*)(const UsableDevice&, Draws&)>;
    const std::vector<Check> checks{{"work on streams", events_order_work},
                                    {"host buffers", host_buffers},
                                    {"sum_of_squares", sum_of_squares},
                                    {"adamw_step", adamw_step}};
    const auto [what, run] = draws.pick(checks);
    tell(what);
    run(UsableDevice(of), draws);
    return true;
  });
}

}  // namespace strata::conformance::device_checks
