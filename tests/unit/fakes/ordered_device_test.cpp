// The device that notices what nothing orders.
#include <ATen/ATen.h>
#include <strata/fakes/counting_group.hpp>
#include <strata/fakes/ordered_device.hpp>

#include "catch.hpp"

using namespace strata;
using fakes::OrderedDevice;

TEST_CASE("a read on another stream than the write is a race, unless an event is between them") {
  OrderedDevice device;
  const auto event = device.make_event();
  const at::Tensor values = at::zeros({8}), target = at::zeros({4});
  const bool ordered = GENERATE(false, true);
  device.synchronize();
  values.add_(1);
  event->record(StreamKind::Compute);
  if (ordered) event->block(StreamKind::Communication);
  device.on(StreamKind::Communication, [&] { target.copy_(values.narrow(0, 4, 4)); });
  if (ordered)
    CHECK(device.races().empty());
  else
    CHECK(device.races() ==
          std::vector<std::string>{"aten::copy_ on Communication reads what aten::add_ on Compute writes; nothing "
                                   "orders them"});
}

TEST_CASE("a write over another stream's read is a race, one next to it is not") {
  OrderedDevice device;
  const at::Tensor values = at::zeros({8});
  device.synchronize();
  at::Tensor sum;
  device.on(StreamKind::Communication, [&] { sum = values.narrow(0, 0, 4).sum(); });
  values.narrow(0, 4, 4).fill_(1);
  CHECK(device.races().empty());
  values.narrow(0, 3, 2).fill_(1);
  CHECK(device.races().size() == 1);
}

TEST_CASE("a group's operation is ordered after its stream and before wait()'s") {
  OrderedDevice device;
  fakes::OrderedGroup group(fakes::counting_group(2));
  const at::Tensor whole = at::zeros({4}), part = at::ones({2});
  device.synchronize();
  const bool waits = GENERATE(false, true);
  part.add_(1);
  Pending gather = group.all_gather(whole, part);
  if (waits) gather.wait();
  static_cast<void>(whole.sum());
  CHECK(device.races().size() == (waits ? 0 : 1));
}

TEST_CASE("a group of one copies on the current stream, and its wait orders nothing") {
  OrderedDevice device;
  fakes::OrderedGroup group(fakes::counting_group(1));
  const at::Tensor whole = at::zeros({2}), part = at::ones({2});
  device.synchronize();
  device.on(StreamKind::Communication, [&] { group.all_gather(whole, part).wait(); });
  static_cast<void>(whole.sum());
  CHECK(device.races().size() == 1);
}

TEST_CASE("the host touches memory in use by the device only after a wait") {
  OrderedDevice device;
  const fakes::HostAccesses host;
  const auto event = device.make_event();
  const at::Tensor memory = at::zeros({8});
  const Span span{memory.mutable_data_ptr(), memory.nbytes()};
  const bool waits = GENERATE(false, true);
  device.synchronize();
  memory.add_(1);
  event->record(StreamKind::Compute);
  if (waits) event->synchronize();
  host.reads(span);
  CHECK(device.races().size() == (waits ? 0 : 1));
}
