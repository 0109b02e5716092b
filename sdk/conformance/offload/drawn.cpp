// Drawn uses of an offload device, compared with vectors of bytes.
#include <strata/error.hpp>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <exception>
#include <limits>
#include <list>
#include <thread>

#include "conformance/drawn/search.hpp"
#include "conformance/offload/checks.hpp"
#include "conformance/offload/device_under_test.hpp"

namespace strata::conformance::offload_checks {

namespace {

struct Held {
  Region region;
  std::vector<std::byte> wanted;  // as far as whole units of the alignment go
  std::byte* mapped = nullptr;    // what map() gave
  int under_way = 0;
};

// A transfer between a region and the middle of a buffer.
struct Moving {
  Held* held = nullptr;
  std::size_t at = 0, bytes = 0;
  bool is_write = false;
  Bytes buffer;
  std::unique_ptr<Transfer> transfer;

  bool meets(const Held& other, std::size_t begin, std::size_t count) const {
    return held == &other && begin < at + bytes && at < begin + count;
  }
};

// Whether `act` throws Bug. Throws Failure for another exception.
bool refused(const std::string& what, const std::function<void()>& act) {
  try {
    act();
    return false;
  } catch (const Bug&) {
    return true;
  } catch (const std::exception& error) {
    throw Failure(what + " must throw Bug; it threw " + error.what());
  }
}

// Whether the text has the figure, and another.
bool has_both_figures(std::string text, const std::string& asked) {
  const std::size_t at = text.find(asked);
  if (at == std::string::npos) return false;
  text.erase(at, asked.size());
  return std::ranges::any_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

class Course {
 public:
  Course(const DeviceUnderTest& device, Draws& draws)
      : device_(device), draws_(draws), unit_(device.limits().alignment), margin_(std::max<std::size_t>(unit_, 64)) {
    const std::int64_t bytes = draws.chance(10) ? std::int64_t{8} << 20 : std::int64_t{1} << 19;
    most_units_ = std::max<std::int64_t>(bytes / static_cast<std::int64_t>(unit_), 4);
  }

  void reserve() {
    if (held_.size() >= 12) return;
    const auto bytes = static_cast<std::size_t>(draws_.size(most_units_)) * unit_ -
                       static_cast<std::size_t>(draws_.between(0, static_cast<std::int64_t>(unit_) - 1));
    Region region;
    try {
      on_some_thread([&] { region = device_->reserve(bytes); });
    } catch (const EnvironmentError&) {
      return;  // no space
    }
    require(
        region.bytes == bytes && region.id != 0,
        format("reserve({}) gave region {} of {} bytes; a region must have the requested size and an id other than 0",
               bytes, region.id, region.bytes));
    for (const Held& other : held_)
      require(other.region.id != region.id, format("two regions that are both reserved have the id {}", region.id));
    Held& held = held_.emplace_back();
    held.region = region;
    held.wanted.resize(device_.down(bytes));
  }

  void start(bool is_write) {
    if (held_.empty()) return;
    Held& held = pick();
    const auto units = static_cast<std::int64_t>(held.wanted.size() / unit_);
    const std::int64_t count = units == 0 || draws_.chance(12) ? 0 : draws_.chance(4) ? units : draws_.size(units);
    const auto bytes = static_cast<std::size_t>(count) * unit_,
               at = static_cast<std::size_t>(draws_.between(0, units - count)) * unit_;
    make_way(held, at, bytes, is_write);
    Moving& one = moving_.emplace_back(&held, at, bytes, is_write, device_.buffer(bytes + 2 * margin_), nullptr);
    if (is_write)
      one.buffer.randomize(random_);
    else
      one.buffer.fill(std::byte{0x5A});
    std::byte* const data = one.buffer.data() + margin_;
    if (is_write) std::copy_n(data, bytes, held.wanted.begin() + static_cast<std::ptrdiff_t>(at));
    on_some_thread([&] {
      one.transfer =
          is_write ? device_->write(held.region, at, {data, bytes}) : device_->read(held.region, at, {data, bytes});
    });
    require(one.transfer != nullptr, std::string(is_write ? "write()" : "read()") + " returns null");
    ++held.under_way;
  }

  void write() { start(true); }
  void read() { start(false); }

  void wait() {
    if (!moving_.empty()) end(static_cast<std::size_t>(draws_.between(0, std::ssize(moving_) - 1)));
  }

  // Without wait(), nothing touches the span and the region any more.
  void drop() {
    if (moving_.empty()) return;
    const auto number = draws_.between(0, std::ssize(moving_) - 1);
    Moving one = std::move(moving_[static_cast<std::size_t>(number)]);
    moving_.erase(moving_.begin() + number);
    one.transfer.reset();
    --one.held->under_way;
    one.buffer.fill(std::byte{0x99});
    if (!one.is_write) return dropped_.push_back(std::move(one.buffer));
    for (std::size_t i = moving_.size(); i-- > 0;)
      if (moving_[i].held == one.held) end(i);
    give_back(*one.held);  // how much was written is open
  }

  void free() {
    if (held_.empty()) return;
    Held& held = pick();
    if (held.under_way > 0) return;
    check(held, "before its free()");
    give_back(held);
  }

  // Ranges outside a region, and regions that are not reserved.
  void ask_outside() {
    if (held_.empty()) return;
    Region region = pick().region;
    const std::size_t end = (region.bytes + unit_ - 1) / unit_ * unit_;
    const auto [at, bytes] = draws_.pick<std::pair<std::size_t, std::size_t>>(
        {{end, unit_},
         {0, end + unit_},
         {std::numeric_limits<std::size_t>::max() - unit_ + 1, 2 * unit_},
         {std::numeric_limits<std::size_t>::max() / 2 + 1, unit_},
         {0, unit_}});
    const bool is_stranger = at == 0 && bytes == unit_;
    if (is_stranger) region = draws_.pick<Region>({Region{}, {region.id + 1000, region.bytes}, last_freed_});
    if (is_stranger && std::ranges::count(held_, region.id, [](const Held& one) { return one.region.id; }) > 0) return;
    const bool is_write = draws_.chance(2), is_free = is_stranger && draws_.chance(2);
    const Bytes memory = device_.buffer(bytes);
    const std::string what = (is_free    ? "free()"
                              : is_write ? "a write of " + std::to_string(bytes) + " bytes at " + std::to_string(at)
                                         : "a read of " + std::to_string(bytes) + " bytes at " + std::to_string(at)) +
                             (is_stranger ? " of region " + std::to_string(region.id) + ", which is not reserved,"
                                          : " of a region of " + std::to_string(region.bytes));
    require(refused(what,
                    [&, at = at, bytes = bytes] {
                      if (is_free) return device_->free(region);
                      const Span span{memory.data(), bytes};
                      (is_write ? device_->write(region, at, span) : device_->read(region, at, span))->wait();
                    }),
            what + " was accepted; it must throw Bug with the region and the range");
  }

  // An address, an offset or a size that is not a multiple of the alignment: refused, or exact.
  void ask_unaligned() {
    if (held_.empty()) return;
    Held& held = pick();
    const auto units = static_cast<std::int64_t>(held.wanted.size() / unit_);
    if (units < 3) return;
    const auto odd = [&] { return static_cast<std::size_t>(draws_.between(0, static_cast<std::int64_t>(unit_) - 1)); };
    const std::size_t address = odd(), at = unit_ * static_cast<std::size_t>(draws_.between(0, units - 3)) + odd();
    const std::size_t bytes = odd() + unit_;
    const bool is_write = draws_.chance(2);
    make_way(held, at, bytes, is_write);
    Bytes memory = device_.buffer(bytes + unit_);
    memory.randomize(random_);
    std::byte* const data = memory.data() + address;
    const std::string what = format("{}{} bytes at {}, {} behind a multiple of limits().alignment, {},",
                                    is_write ? "a write of " : "a read of ", bytes, at, address, unit_);
    const bool is_refused = refused(what, [&] {
      (is_write ? device_->write(held.region, at, {data, bytes}) : device_->read(held.region, at, {data, bytes}))
          ->wait();
    });
    require(unit_ > 1 || !is_refused, what + " was refused");
    if (is_refused) return;
    std::byte* const wanted = held.wanted.data() + at;
    if (is_write) std::copy_n(data, bytes, wanted);
    compare(data, wanted, bytes, what + " was accepted and");
  }

  // More than there is; what is there stays usable.
  void ask_too_much() {
    const auto try_one = [&] {
      try {
        device_->free(device_->reserve(unit_));
        return true;
      } catch (const EnvironmentError&) {
        return false;
      }
    };
    if (!try_one()) return;
    constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
    const auto asked = draws_.pick<std::size_t>({all / 4, all - 4095, all - 100, all});
    const std::string what = format("reserve({})", asked);
    std::string text;
    try {
      device_->reserve(asked);
      throw Failure(what + " was accepted; it must allocate the whole region, or throw an EnvironmentError");
    } catch (const EnvironmentError& error) {
      text = error.what();
    }
    require(has_both_figures(text, std::to_string(asked)),
            what + " is refused with '" + text + "'; the message must give the requested and the available bytes");
    require(try_one(),
            format("after {}, which was refused, there is no space for {} bytes that there was before", what, unit_));
  }

  void map() {
    if (held_.empty()) return;
    Held& held = pick();
    const std::optional<Span> memory = device_->map(held.region);
    const bool mapped = device_->limits().mapped;
    require(memory.has_value() == mapped,
            std::string("limits().mapped is ") + (mapped ? "true, but map() returns nothing for a region"
                                                         : "false, but map() returns the memory of a region"));
    if (!mapped) return;
    auto* const data = static_cast<std::byte*>(memory->data);
    require(memory->bytes == held.region.bytes && reinterpret_cast<std::uintptr_t>(data) % unit_ == 0,
            format("map() of a region of {} bytes gives a span of {}, or one that is not aligned to limits().alignment",
                   held.region.bytes, memory->bytes));
    require(held.mapped == nullptr || held.mapped == data,
            "map() returns another address the second time; the first must stay valid until free()");
    held.mapped = data;
    if (held.under_way > 0 || held.wanted.empty()) return;
    const auto at = static_cast<std::size_t>(draws_.between(0, std::ssize(held.wanted) - 1));
    data[at] = held.wanted[at] = std::byte{0xA7};  // the host computes in place
  }

  void finish() {
    while (!moving_.empty()) end(moving_.size() - 1);
    for (const Bytes& one : dropped_)
      require(std::all_of(one.data(), one.data() + one.size(), [](std::byte byte) { return byte == std::byte{0x99}; }),
              "a read that was dropped without wait() filled its target later, when the memory may have another use");
    for (const Held& held : held_) check(held, "at the end");
    for (const Held& held : held_) device_->free(held.region);
  }

 private:
  // Ranges under way overlap only where all are read.
  void make_way(const Held& held, std::size_t at, std::size_t bytes, bool is_write) {
    for (std::size_t i = 0; i < moving_.size();)
      if (moving_[i].meets(held, at, bytes) && (is_write || moving_[i].is_write))
        end(i);
      else
        ++i;
  }

  void give_back(const Held& held) {
    on_some_thread([&] { device_->free(held.region); });
    last_freed_ = held.region;
    held_.remove_if([&](const Held& one) { return &one == &held; });
  }

  Held& pick() {
    auto at = held_.begin();
    std::advance(at, draws_.between(0, std::ssize(held_) - 1));
    return *at;
  }

  // Calls come from one thread at a time, and not always from the same.
  void on_some_thread(const std::function<void()>& work) {
    if (!draws_.chance(8)) return work();
    std::exception_ptr thrown;
    std::thread([&] {
      try {
        work();
      } catch (...) {
        thrown = std::current_exception();
      }
    }).join();
    if (thrown != nullptr) std::rethrow_exception(thrown);
  }

  static std::string text_of(const Moving& one) {
    return format("{} of bytes {} to {} of a region of {}", one.is_write ? "a write" : "a read", one.at,
                  one.at + one.bytes, one.held->region.bytes);
  }

  void end(std::size_t number) {
    Moving one = std::move(moving_[number]);
    moving_.erase(moving_.begin() + static_cast<std::ptrdiff_t>(number));
    const std::size_t others = moving_.size();
    on_some_thread([&] { one.transfer->wait(); });
    --one.held->under_way;
    const std::string what = format("{}, waited for while {} others were under way,", text_of(one), others);
    if (one.is_write) return one.buffer.fill(std::byte{0xEE});  // it is the caller's again
    const std::byte* const data = one.buffer.data() + margin_;
    const auto is_filled = [](std::byte byte) { return byte == std::byte{0x5A}; };
    require(std::all_of<const std::byte*>(one.buffer.data(), data, is_filled) &&
                std::all_of(data + one.bytes, data + one.bytes + margin_, is_filled),
            what + " wrote outside its target");
    compare(data, one.held->wanted.data() + one.at, one.bytes, what);
  }

  void check(const Held& held, const std::string& when) const {
    device_.expect(held.region, 0, held.wanted.data(), held.wanted.size(),
                   "one of " + std::to_string(held_.size()) + " regions " + when);
    if (held.mapped != nullptr)
      compare(
          held.mapped, held.wanted.data(), held.wanted.size(),
          "the memory that map() gave for a region of " + std::to_string(held.region.bytes) + " bytes, " + when + ",");
  }

  static void compare(const std::byte* found, const std::byte* wanted, std::size_t bytes, const std::string& what) {
    const std::size_t place = first_difference(found, wanted, bytes);
    require(place == bytes,
            format("{} holds at byte {} of {} something else than was written there last, or zeros where nothing was",
                   what, place, bytes));
  }

  const DeviceUnderTest& device_;
  Draws& draws_;
  std::size_t unit_, margin_;
  std::int64_t most_units_ = 0;
  std::mt19937_64 random_{1};
  std::list<Held> held_;  // Moving points into it
  std::vector<Moving> moving_;
  std::vector<Bytes> dropped_;
  Region last_freed_;
};

void check_limits(const OffloadDevice& device) {
  const OffloadLimits limits = device.limits();
  require(device.tier() != Tier::Device,
          "tier() is Device; an offload device holds bytes on another tier, Host or Disk");
  require(limits.alignment > 0 && (limits.alignment & (limits.alignment - 1)) == 0,
          format("limits().alignment is {}; it must be a power of two, 1 for no alignment", limits.alignment));
  require(limits.transfers_in_flight >= 1,
          format("limits().transfers_in_flight is {}; it must be at least 1", limits.transfers_in_flight));
}

bool carry_out(Subject& subject, Draws& draws, const Tell& tell) {
  const fakes::OptionTexts options = draws.options(subject.manifest().options);
  std::optional<DeviceUnderTest> device;
  try {
    device.emplace(subject, options);
  } catch (const UserError&) {
    return false;  // it takes other options
  }
  check_limits(**device);
  Course course(*device, draws);
  std::string said = "options: " + to_string(options) + ";";
  using Call = std::pair<const char*, void (Course::*)()>;
  const std::vector<Call> calls{{" reserve", &Course::reserve},     {" write", &Course::write},
                                {" read", &Course::read},           {" write", &Course::write},
                                {" read", &Course::read},           {" wait", &Course::wait},
                                {" wait", &Course::wait},           {" map", &Course::map},
                                {" free", &Course::free},           {" drop", &Course::drop},
                                {" reserve", &Course::reserve},     {" unaligned", &Course::ask_unaligned},
                                {" outside", &Course::ask_outside}, {" too much", &Course::ask_too_much}};
  for (auto left = draws.between(1, 60); left > 0; --left) {
    const auto [name, call] = draws.pick(calls);
    tell(said += name);
    (course.*call)();
  }
  course.finish();
  return true;
}

}  // namespace

void drawn(Subject& subject) {
  search(subject, "offload.drawn", 300, carry_out);
}

}  // namespace strata::conformance::offload_checks
