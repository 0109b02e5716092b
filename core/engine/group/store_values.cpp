#include "group/store_values.hpp"

#include <cstdlib>
#include <utility>

#include "group/store_connection.hpp"

namespace strata::group {

namespace {

constexpr std::uint64_t longest_text = std::uint64_t{1} << 28;
constexpr std::uint64_t most_keys = 1 << 20;  // of one request

void put_text(std::string& out, const std::string& text) {
  put_number<std::uint64_t>(out, text.size());
  out += text;
}

}  // namespace

std::string StoreRequestReader::text() {
  const auto size = number<std::uint64_t>();
  if (size > longest_text) wrong = true;
  if (wrong || incomplete || bytes_.size() - at_ < size) {
    incomplete = true;
    return {};
  }
  const std::size_t begin = std::exchange(at_, at_ + static_cast<std::size_t>(size));
  return bytes_.substr(begin, static_cast<std::size_t>(size));
}

std::uint64_t StoreRequestReader::count() {
  const auto count = number<std::uint64_t>();
  if (count > most_keys) wrong = true;
  return wrong || incomplete ? 0 : count;
}

bool StoreValues::answer(StoreRequestReader& in, std::string& out) {
  switch (in.number<StoreCommand>()) {
    case StoreCommand::Set: {
      std::string key = in.text(), value = in.text();
      if (!in.incomplete) values_[key] = value;
      return true;
    }
    case StoreCommand::CompareSet: {
      std::string key = in.text(), expected = in.text(), wanted = in.text();
      if (!in.incomplete) put_text(out, compare_set(key, expected, wanted));
      return true;
    }
    case StoreCommand::Get: {
      const std::string key = in.text();
      if (!in.incomplete) put_text(out, value_of(key));
      return true;
    }
    case StoreCommand::Add: {
      const std::string key = in.text();
      const auto more = in.number<std::int64_t>();
      if (!in.incomplete) put_number(out, add(key, more));
      return true;
    }
    case StoreCommand::Check: {
      bool all = true;
      for (std::uint64_t left = in.count(); left > 0 && !in.incomplete; --left)
        all = values_.contains(in.text()) && all;
      if (!in.incomplete) put_number(out, static_cast<std::uint8_t>(all ? 0 : 1));
      return true;
    }
    case StoreCommand::CountKeys:
      put_number(out, static_cast<std::int64_t>(values_.size()));
      return true;
    case StoreCommand::Delete: {
      const std::string key = in.text();
      if (!in.incomplete) put_number(out, static_cast<std::int64_t>(values_.erase(key)));
      return true;
    }
    case StoreCommand::Append: {
      const std::string key = in.text(), more = in.text();
      if (!in.incomplete) values_[key] += more;
      return true;
    }
    case StoreCommand::MultiGet: {
      std::string values;
      for (std::uint64_t left = in.count(); left > 0 && !in.incomplete; --left) put_text(values, value_of(in.text()));
      if (!in.incomplete) out += values;
      return true;
    }
    case StoreCommand::MultiSet: {
      std::map<std::string, std::string> given;
      for (std::uint64_t left = in.count(); left > 0 && !in.incomplete; --left) {
        std::string key = in.text();
        given[std::move(key)] = in.text();
      }
      if (in.incomplete) return true;
      given.merge(values_);  // those that are there already stay as given
      values_.swap(given);
      return true;
    }
    case StoreCommand::Ping: {
      const auto nonce = in.number<std::uint32_t>();
      if (!in.incomplete) put_number(out, nonce);
      return true;
    }
    case StoreCommand::Validate:
      break;
  }
  return false;
}

std::string StoreValues::value_of(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::string() : found->second;
}

// As c10d's: a key that is not there counts as an empty value, and is made only if that was expected.
std::string StoreValues::compare_set(const std::string& key, const std::string& expected, const std::string& wanted) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    if (!expected.empty()) return expected;
    return values_[key] = wanted;
  }
  if (found->second == expected) found->second = wanted;
  return found->second;
}

// As c10d's: a counter is a number in decimal digits.
std::int64_t StoreValues::add(const std::string& key, std::int64_t more) {
  std::string& value = values_[key];
  const std::int64_t sum = std::strtoll(value.c_str(), nullptr, 10) + more;
  value = std::to_string(sum);
  return sum;
}

}  // namespace strata::group
