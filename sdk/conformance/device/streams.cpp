#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <chrono>
#include <stdexcept>

#include "device/checks.hpp"
#include "device/usable_device.hpp"

namespace strata::conformance::device_checks {

namespace {

constexpr std::array<std::pair<StreamKind, const char*>, 3> streams{
    {{StreamKind::Compute, "Compute"}, {StreamKind::Communication, "Communication"}, {StreamKind::Offload, "Offload"}}};

}  // namespace

void streams_run_work(Subject& subject) {
  const UsableDevice device(subject);
  for (const auto& [stream, name] : streams) {
    int runs = 0;
    const at::Tensor values = at::zeros({1000}, device.options(at::kFloat));
    device->synchronize();
    device->on(stream, [&] {
      ++runs;
      values.add_(3.0);
      device->on(StreamKind::Compute, [&] { ++runs; });  // work may begin work elsewhere
    });
    device->synchronize();
    require(runs == 2, std::string("on(") + name + ") ran its work and the work nested in it " + std::to_string(runs) +
                           " times before it returned; each must run once, on the caller's thread");
    require(values.sum().item<double>() == 3000.0,
            std::string("after synchronize() the work of on(") + name + ") is not done");
    bool passed_on = false;
    try {
      device->on(stream, [] { throw std::runtime_error("from the work"); });
    } catch (const std::runtime_error& error) {
      passed_on = std::string(error.what()) == "from the work";
    }
    require(passed_on, std::string("on(") + name + ") did not rethrow its work's exception");
  }
}

void events_order_work(Subject& subject) {
  const UsableDevice device(subject);
  std::array<std::unique_ptr<Event>, 3> done;
  for (auto& event : done) event = device->make_event();
  require(done[0] != nullptr && done[1] != nullptr && done[2] != nullptr, "make_event() returns null");
  at::Tensor values = at::zeros({1 << 20}, device.options(at::kFloat));
  device->synchronize();
  // A chain over the streams: x becomes 2 x, x + 1 and 3 x in turn. Out of order it is another number.
  double wanted = 0.0;
  for (int step = 0; step < 18; ++step) {
    const std::size_t now = static_cast<std::size_t>(step) % 3, last = (now + 2) % 3;
    if (step > 0) done[last]->block(streams[now].first);
    const double factor = now == 0 ? 2.0 : now == 1 ? 1.0 : 3.0, term = now == 1 ? 1.0 : 0.0;
    device->on(streams[now].first, [&] { values.mul_(factor).add_(term); });
    done[now]->record(streams[now].first);
    wanted = wanted * factor + term;
  }
  done[17 % 3]->synchronize();
  device->synchronize();
  require(values.eq(wanted).all().item<bool>(),
          "18 updates of one tensor on three streams in turn, each after the event of the previous one, do not give " +
              std::to_string(wanted) + "; block() must make a stream wait for the recorded point");
}

void event_without_record(Subject& subject) {
  const UsableDevice device(subject);
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<Event> event = device->make_event();
  for (const auto& [stream, name] : streams) event->block(stream);
  event->synchronize();
  device->synchronize();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  require(seconds < 5.0, "an event that was never recorded made the host wait for " + std::to_string(seconds) +
                             " s; it must do nothing");
}

}  // namespace strata::conformance::device_checks
