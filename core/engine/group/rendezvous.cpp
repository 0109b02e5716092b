#include "group/rendezvous.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "group/fact.hpp"
#include "group/store_client.hpp"

namespace strata::group {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds shortest_pause{1}, longest_pause{500};
constexpr milliseconds long_wait{500};  // from then on the missing are looked for, after pauses that double

// The first part of `text` that differs from `other`'s; parts end with semicolons.
std::string first_different_part(const std::string& text, const std::string& other) {
  const auto [end, others_end] = std::ranges::mismatch(text, other);
  const auto at = static_cast<std::size_t>(end - text.begin());
  const std::size_t before = at == 0 ? std::string::npos : text.rfind(';', at - 1);
  std::size_t begin = before == std::string::npos ? 0 : before + 1;
  if (begin < text.size() && text[begin] == ' ') ++begin;
  return begin < text.size() ? text.substr(begin, text.find(';', begin) - begin) : "no more";
}

}  // namespace

// Counts this rank; the last of `members` sets the key for which the others wait. If the answer was
// lost, it is unknown whether this rank was counted: then the search of a long wait finds all.
void Rendezvous::arrive(const std::string& base, std::size_t members) {
  try {
    const std::string counter = format("{}count of {}", base, members);  // not with ranks of another WORLD_SIZE
    if (store_->add(counter, 1) == static_cast<std::int64_t>(members)) store_->set(base + "all", "here");
  } catch (const AddInDoubt&) {
  }
}

// Until `come()`, or until every member's key is there, so a count lost with its connection delays no rank.
// `took` is called once for each member that a long wait finds there.
void Rendezvous::wait(const std::string& place, const std::function<bool()>& come, std::vector<int> members,
                      const KeyOf& key_of, const std::function<void(int came)>& took) {
  const auto begin = Clock::now();
  milliseconds search_after = long_wait;
  while (!come()) {
    const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    if (waited >= search_after) {
      const std::size_t came = std::erase_if(members, [&](int member) {
        if (!store_->check({key_of(member)})) return false;
        if (took) took(member);
        return true;
      });
      if (members.empty()) break;
      if (came > 0 || search_after == long_wait) hooks_.waits(place, members);
      search_after *= 2;
    }
    std::this_thread::sleep_for(std::clamp(waited / 8, shortest_pause, longest_pause));
    hooks_.look();
  }
}

void Rendezvous::meet(const std::string& place, const std::vector<int>& members) {
  const std::string base = "meet/" + place + "/";
  const KeyOf key = [&](int rank) { return base + std::to_string(rank); };
  store_->set(key(rank_), "here");
  arrive(base, members.size());
  wait(
      place, [&] { return store_->check({base + "all"}); }, members, key);
}

void Rendezvous::compare(const std::string& what, const std::string& others, int other, const std::string& remedy,
                         const FindDifference& find_difference) {
  if (const std::string found = find_difference(other, others); !found.empty())
    throw EnvironmentError(hooks_.differ(what + " differ between ranks: " + found + "; " + remedy));
}

void Rendezvous::agree(const std::string& what, const std::string& text, const std::string& remedy) {
  agree(what, text, remedy, [&](int other_rank, const std::string& other) {
    if (other == text) return std::string();
    return contrast(rank_, first_different_part(text, other), other_rank, first_different_part(other, text));
  });
}

void Rendezvous::agree(const std::string& what, const std::string& text, const std::string& remedy,
                       const FindDifference& find_difference) {
  const std::string base = "agree/" + what + "/", place = "comparing " + what;
  const KeyOf key = [&](int rank) { return base + std::to_string(rank); };
  store_->set(key(rank_), text);
  arrive(base, static_cast<std::size_t>(size_));
  if (rank_ != 0) {
    wait(
        place, [&] { return store_->check({key(0)}); }, {0}, key);
    return compare(what, store_->get_to_str(key(0)), 0, remedy, find_difference);
  }
  std::vector<int> others(static_cast<std::size_t>(size_ - 1));
  std::iota(others.begin(), others.end(), 1);
  // Those who are late are not waited for where others differ already.
  const auto took = [&](int came) { compare(what, store_->get_to_str(key(came)), came, remedy, find_difference); };
  wait(
      place, [&] { return store_->check({base + "all"}); }, others, key, took);
  std::vector<std::string> keys;
  for (const int other : others) keys.push_back(key(other));
  if (keys.empty()) return;
  const std::vector<std::vector<std::uint8_t>> texts = store_->multiGet(keys);
  for (const int other : others) {
    const std::vector<std::uint8_t>& value = texts.at(static_cast<std::size_t>(other - 1));
    compare(what, std::string(value.begin(), value.end()), other, remedy, find_difference);
  }
}

}  // namespace strata::group
