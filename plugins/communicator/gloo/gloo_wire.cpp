#include "gloo_wire.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "broken_pipe.hpp"
#include "listeners.hpp"

namespace strata::gloo_communicator {

namespace {
// Gloo has no wait without a timeout. This one is longer than any run; the engine ends waits with abort().
constexpr std::chrono::milliseconds no_deadline = std::chrono::hours(24 * 365);

std::string seconds(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

// Erases gloo's "[/path/in/its/sources.cc:538] " and "[enforce fail at /path/socket.cc:95] rv != -1. -1 vs -1. ".
void erase_places(std::string& text) {
  for (std::size_t at = 0; (at = text.find('[', at)) != std::string::npos;) {
    const bool with_condition = text.compare(at, 17, "[enforce fail at ") == 0;
    const std::size_t end = text.find("] ", at);
    if (end == std::string::npos) return;
    if (!with_condition && text[at + 1] != '/') {
      ++at;
      continue;
    }
    text.erase(at, end + 2 - at);
    for (const char* const sign : {" ", " vs "}) {  // the condition, and its two values
      const std::size_t stop = with_condition ? text.find(". ", at) : std::string::npos;
      if (stop != std::string::npos && text.substr(at, stop - at).find(sign) != std::string::npos)
        text.erase(at, stop + 2 - at);
    }
  }
}

// The error's text, without libtorch's stack trace and gloo's places in its sources.
std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  text.resize(std::min(text.find('\n'), text.size()));
  erase_places(text);
  return text;
}

// Returns the sockets on which the device listens.
std::vector<int> make_device(c10d::ProcessGroupGloo::Options& options, const std::string& address) {
  static std::mutex mutex;  // between the two looks no other device may come
  const std::lock_guard lock(mutex);
  const std::vector<int> before = listening_sockets();
  options.devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  std::vector<int> after = listening_sockets();
  std::erase_if(after, [&](int socket) { return std::find(before.begin(), before.end(), socket) != before.end(); });
  return after;
}
}  // namespace

class GlooWire::Message final : public HostMessage {
 public:
  Message(GlooWire& wire, c10::intrusive_ptr<c10d::Work> work, int peer)
      : wire_(wire), work_(std::move(work)), peer_(peer) {}

  void wait() override {
    if (work_ == nullptr) return;
    wire_.set_waiting(work_);
    try {
      if (!work_->wait(no_deadline)) throw EnvironmentError("the group is shut down");
    } catch (const EnvironmentError&) {
      wire_.set_waiting({});  // do not keep a failed operation longer than its tensors
      throw;
    } catch (const std::exception& error) {
      wire_.set_waiting({});
      throw EnvironmentError("the connection to rank {} of the group was lost: {}", peer_, first_line(error));
    }
    wire_.set_waiting({});
    work_.reset();
  }

 private:
  GlooWire& wire_;
  c10::intrusive_ptr<c10d::Work> work_;
  int peer_;
};

void GlooWire::set_waiting(c10::intrusive_ptr<c10d::Work> work) {
  const std::lock_guard lock(waiting_mutex_);
  if (aborted_ && work != nullptr) throw EnvironmentError("the group is shut down");
  waiting_ = std::move(work);
}

void GlooWire::abort() {
  const std::lock_guard lock(waiting_mutex_);
  aborted_ = true;
  if (waiting_ != nullptr) waiting_->abort();
}

std::unique_ptr<HostMessage> GlooWire::post(int peer, std::byte* data, std::int64_t bytes, bool outgoing) {
  std::vector<at::Tensor> tensors{at::from_blob(data, {bytes}, at::TensorOptions().dtype(at::kByte))};
  const std::lock_guard lock(connections_->posting);
  const BrokenPipesAreErrors guard;  // gloo writes in the thread that posts
  c10d::ProcessGroupGloo& gloo = *connections_->gloo;
  constexpr std::int64_t sizes = std::int64_t{1} << 27;  // a tag has 31 bits
  const int tag = static_cast<int>((bytes % sizes) << 4) | collective_ << 1 | static_cast<int>(of_collectives_);
  c10::intrusive_ptr<c10d::Work> work = outgoing ? gloo.send(tensors, peer, tag) : gloo.recv(tensors, peer, tag);
  return std::make_unique<Message>(*this, std::move(work), peer);
}

std::unique_ptr<HostMessage> GlooWire::send(int peer, const std::byte* data, std::int64_t bytes) {
  return post(peer, const_cast<std::byte*>(data), bytes, true);  // gloo only reads it
}

std::unique_ptr<HostMessage> GlooWire::receive(int peer, std::byte* data, std::int64_t bytes) {
  return post(peer, data, bytes, false);
}

std::shared_ptr<GlooWire::Connections> GlooWire::connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                         const GroupSetup& setup) {
  auto connections = std::make_shared<Connections>();
  const BrokenPipesAreErrors guard;  // for the threads that gloo starts
  try {
    const auto options = c10d::ProcessGroupGloo::Options::create(setup.timeout);
    options->threads = 1;  // gloo's own collectives are not used
    const std::vector<int> listeners = make_device(*options, setup.interface_address);
    connections->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, setup.rank, setup.size, options);
    for (const int listener : listeners) close_listener(listener);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw EnvironmentError("group {}: rank {} of {} could not connect through {} within {}: {}", setup.name, setup.rank,
                           setup.size, setup.interface_address, seconds(setup.timeout), first_line(error));
  }
  return connections;
}

}  // namespace strata::gloo_communicator
