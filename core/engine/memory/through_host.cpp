#include "memory/through_host.hpp"

#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <utility>

#include "memory/staging.hpp"

namespace strata::memory {

class ThroughHost::Read final : public Transfer {
 public:
  Read(Started started, at::Tensor host, at::Tensor staged)
      : started_(std::move(started)), host_(std::move(host)), staged_(std::move(staged)) {}
  void wait() override {
    started_->wait();
    staged_.copy_(host_, /*non_blocking=*/true);
  }

 private:
  Started started_;
  at::Tensor host_, staged_;
};

class ThroughHost::Written final : public Transfer {
 public:
  explicit Written(std::future<Started> started) : started_(std::move(started)) {}
  ~Written() override {
    if (started_.valid()) started_.wait();  // its memory is used until then; the home's own transfer ends itself
  }
  void wait() override { started_.get()->wait(); }

 private:
  std::future<Started> started_;
};

ThroughHost::~ThroughHost() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  let_go();
}

void ThroughHost::reserve(std::int64_t bytes) {
  if (bytes <= length_) return;
  let_go();
  store_.count(Category::Staging, Tier::Host, bytes);
  length_ = bytes;
  if (store_.dry_run()) return;
  memory_ = host_staging(bytes);
  locked_ = device_.page_lock({memory_.mutable_data_ptr(), static_cast<std::size_t>(bytes)});
  if (!locked_)
    spdlog::warn(
        "the system does not allow locking {} bytes of host memory for transfers between the device and a disk, so "
        "they are slower; see `ulimit -l`",
        bytes);
}

void ThroughHost::let_go() {
  store_.count(Category::Staging, Tier::Host, -std::exchange(length_, 0));
  if (std::exchange(locked_, false)) device_.page_unlock({memory_.mutable_data_ptr(), memory_.nbytes()});
  memory_ = at::Tensor();
}

at::Tensor ThroughHost::on_host(std::int64_t place, std::int64_t bytes) const {
  return memory_.narrow(0, place, bytes);
}

std::unique_ptr<Transfer> ThroughHost::read(OffloadDevice& home, Region region, std::int64_t place,
                                            const at::Tensor& staged) {
  const at::Tensor host = on_host(place, staged.numel());
  const std::lock_guard lock(calls_);
  return std::make_unique<Read>(home.read(region, 0, {host.mutable_data_ptr(), host.nbytes()}), host, staged);
}

std::unique_ptr<Transfer> ThroughHost::write(OffloadDevice& home, Region region, std::int64_t place,
                                             const at::Tensor& staged) {
  const at::Tensor host = on_host(place, staged.numel());
  host.copy_(staged, /*non_blocking=*/true);
  Write write{device_.make_event(), &home, region, {host.mutable_data_ptr(), host.nbytes()}, {}};
  write.copied->record(StreamKind::Compute);
  auto transfer = std::make_unique<Written>(write.started.get_future());
  {
    const std::lock_guard lock(mutex_);
    writes_.push_back(std::move(write));
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { send(); });
  return transfer;
}

void ThroughHost::send() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_ || !writes_.empty(); });
    if (writes_.empty()) return;
    Write write = std::move(writes_.front());
    writes_.pop_front();
    lock.unlock();
    try {
      write.copied->synchronize();
      const std::lock_guard call(calls_);
      write.started.set_value(write.home->write(write.region, 0, write.source));
    } catch (...) {
      write.started.set_exception(std::current_exception());
    }
  }
}

}  // namespace strata::memory
