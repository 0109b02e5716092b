#include "group/store_client.hpp"

#include <strata/format.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace strata::group {

namespace {

using Kind = StoreProblem::Kind;
using std::chrono::milliseconds;

constexpr milliseconds longest_attempt{5000};  // longest wait for one answer, before another connection is tried
constexpr milliseconds between_attempts{50};   // two attempts
constexpr milliseconds refused_for{2000};      // refused for this long, the server has ended
constexpr milliseconds longest_greeting_at_start{
    10'000};                                // a server that is silent for this long at the start is another program
constexpr milliseconds first_word{10'000};  // when a long start is reported
constexpr milliseconds longest_look{50};    // of wait(), between two looks

const std::string key_prefix = "/";  // c10d's clients put it before every key

std::string shown_time(milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

std::string text_of(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace

StoreClient::StoreClient(StorePlace place) : StoreClient(std::move(place), NotYetConnected{}) {
  const std::lock_guard lock(mutex_);
  connect_at_start();
}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  return c10::intrusive_ptr<StoreClient>::unsafe_steal_from_new(new StoreClient(place_, NotYetConnected{}));
}

void StoreClient::connect_at_start() {
  const auto begin = Clock::now(), end = begin + place_.timeout;
  const std::string where = format("{}:{}", place_.host, place_.port);
  bool told = false;
  while (true) {
    const auto attempt_end = std::min(end, Clock::now() + std::min(longest_greeting_at_start, place_.timeout));
    std::string problem;
    try {
      connection_ = std::make_unique<StoreConnection>(place_.host, place_.port, place_.run, attempt_end, closed_);
      return;
    } catch (const StoreProblem& found) {
      const std::string cure =
          "; MASTER_ADDR and MASTER_PORT must name a port that " + place_.server + " serves and no other program uses";
      if (found.kind == Kind::Stranger || found.kind == Kind::Silent)
        throw EnvironmentError("the run's store at {}: {}{}", where, found.what(), cure);
      problem = found.what();
    }
    if (Clock::now() >= end)
      throw EnvironmentError(
          "no connection to the run's store at {} within {} ({}); check that {}, which serves it, has started", where,
          shown_time(place_.timeout), problem, place_.server);
    if (!told && Clock::now() - begin >= first_word)
      spdlog::warn("no connection to the run's store at {} for {} s ({}); trying until communicator.timeout_s, {}",
                   where, first_word.count() / 1000, problem, shown_time(place_.timeout));
    told = told || Clock::now() - begin >= first_word;
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
}

// `once`: a request that was sent is not repeated, as it may have been carried out.
void StoreClient::request(const StoreRequest& request, const Read& read, bool once) {
  const std::lock_guard lock(mutex_);
  while (true) {
    if (lost_) throw EnvironmentError(*lost_);
    const auto begin = Clock::now();
    const auto deadline = begin + std::min(longest_attempt, place_.timeout);
    bool sent = false;
    try {
      if (!connection_)
        connection_ = std::make_unique<StoreConnection>(place_.host, place_.port, place_.run, deadline, closed_);
      sent = true;
      connection_->send(request.bytes(), deadline);
      read(*connection_, deadline);
      silent_since_.reset();
      refused_since_.reset();
      return;
    } catch (const StoreProblem& problem) {
      connection_.reset();
      take(problem, begin);
      if (once && sent) throw AddInDoubt("the run's store: " + std::string(problem.what()));
    }
    std::this_thread::sleep_for(between_attempts);
  }
}

// Throws EnvironmentError if the store is lost.
void StoreClient::take(const StoreProblem& problem, Clock::time_point attempted) {
  const auto now = Clock::now();
  if (!silent_since_) silent_since_ = attempted;
  if (problem.kind != Kind::Refused) refused_since_.reset();
  if (problem.kind == Kind::Refused && !refused_since_) refused_since_ = now;
  const bool has_ended = refused_since_ && now - *refused_since_ >= std::min(refused_for, place_.timeout);
  const bool silent = now - *silent_since_ >= place_.timeout;
  if (!closed_ && !has_ended && !silent && problem.kind != Kind::Stranger) return;
  lost_ = format("the run's store at {}:{} no longer responds: {}", place_.host, place_.port,
                 has_ended ? place_.server + ", which serves it, has ended"
                 : silent  ? "it did not respond for " + shown_time(place_.timeout) + " (communicator.timeout_s), so " +
                                place_.server + ", which serves it, is stopped or its host cannot be reached (" +
                                problem.what() + ")"
                          : std::string(problem.what()));
  throw EnvironmentError(*lost_);
}

void StoreClient::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  StoreRequest request(StoreCommand::Set);
  request.text(key_prefix + key).text(text_of(value)).ping();
  this->request(request, [](StoreConnection& from, Clock::time_point end) { from.pong(end); });
}

std::vector<std::uint8_t> StoreClient::compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                                  const std::vector<std::uint8_t>& wanted) {
  StoreRequest request(StoreCommand::CompareSet);
  request.text(key_prefix + key).text(text_of(expected)).text(text_of(wanted));
  std::vector<std::uint8_t> value;
  this->request(request, [&](StoreConnection& from, Clock::time_point end) { value = from.bytes(end); });
  return value;
}

std::vector<std::uint8_t> StoreClient::get(const std::string& key) {
  wait({key}, timeout_);
  StoreRequest request(StoreCommand::Get);
  request.text(key_prefix + key);
  std::vector<std::uint8_t> value;
  this->request(request, [&](StoreConnection& from, Clock::time_point end) { value = from.bytes(end); });
  return value;
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t value) {
  StoreRequest request(StoreCommand::Add);
  request.text(key_prefix + key).put(value);
  std::int64_t sum = 0;
  const bool once = value != 0;
  this->request(
      request, [&](StoreConnection& from, Clock::time_point end) { sum = from.number<std::int64_t>(end); }, once);
  return sum;
}

bool StoreClient::deleteKey(const std::string& key) {
  StoreRequest request(StoreCommand::Delete);
  request.text(key_prefix + key);
  std::int64_t deleted = 0;
  this->request(request,
                [&](StoreConnection& from, Clock::time_point end) { deleted = from.number<std::int64_t>(end); });
  return deleted == 1;
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  StoreRequest request(StoreCommand::Check);
  request.put<std::uint64_t>(keys.size());
  for (const std::string& key : keys) request.text(key_prefix + key);
  std::uint8_t missing = 0;
  this->request(request,
                [&](StoreConnection& from, Clock::time_point end) { missing = from.number<std::uint8_t>(end); });
  return missing == 0;
}

std::int64_t StoreClient::getNumKeys() {
  std::int64_t keys = 0;
  request(StoreRequest(StoreCommand::CountKeys),
          [&](StoreConnection& from, Clock::time_point end) { keys = from.number<std::int64_t>(end); });
  return keys;
}

// Polls with growing pauses: a request that waits at the server is indistinguishable from one that the network lost.
void StoreClient::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const auto end = Clock::now() + (timeout == kNoTimeout ? timeout_ : timeout);
  for (milliseconds pause{1}; !check(keys); pause = std::min(2 * pause, longest_look)) {
    if (Clock::now() >= end)
      throw EnvironmentError("no rank set '{}' in the run's store within {}", keys.front(),
                             shown_time(timeout == kNoTimeout ? timeout_ : timeout));
    std::this_thread::sleep_for(pause);
  }
}

void StoreClient::append(const std::string& key, const std::vector<std::uint8_t>& value) {
  StoreRequest request(StoreCommand::Append);
  request.text(key_prefix + key).text(text_of(value)).ping();
  this->request(
      request, [](StoreConnection& from, Clock::time_point end) { from.pong(end); }, /*once=*/true);
}

std::vector<std::vector<std::uint8_t>> StoreClient::multiGet(const std::vector<std::string>& keys) {
  StoreRequest request(StoreCommand::MultiGet);
  request.put<std::uint64_t>(keys.size());
  for (const std::string& key : keys) request.text(key_prefix + key);
  std::vector<std::vector<std::uint8_t>> values;
  wait(keys, timeout_);
  this->request(request, [&](StoreConnection& from, Clock::time_point end) {
    values.clear();
    for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(from.bytes(end));
  });
  return values;
}

void StoreClient::multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) {
  StoreRequest request(StoreCommand::MultiSet);
  request.put<std::uint64_t>(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) request.text(key_prefix + keys[i]).text(text_of(values.at(i)));
  request.ping();
  this->request(request, [](StoreConnection& from, Clock::time_point end) { from.pong(end); });
}

std::string StoreClient::local_address() {
  const std::lock_guard lock(mutex_);
  return connection_ ? connection_->local_address() : "";
}

}  // namespace strata::group
