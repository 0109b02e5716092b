// Saved state of one plugin in memory, with save(), load() and comparison.
#pragma once
#include <strata/error.hpp>
#include <strata/state_stream.hpp>

#include <bit>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace strata::fakes {

class SavedState final : public StateWriter, public StateReader {
 public:
  void integer(std::string_view name, std::int64_t value) override { put(name, value); }
  void number(std::string_view name, double value) override { put(name, Number{std::bit_cast<std::uint64_t>(value)}); }
  void text(std::string_view name, std::string_view value) override { put(name, std::string(value)); }
  void bytes(std::string_view name, std::span<const std::byte> value) override {
    put(name, std::vector<std::byte>(value.begin(), value.end()));
  }
  void rank_bytes(std::string_view name, std::span<const std::byte> value) override { bytes(name, value); }

  bool contains(std::string_view name) const override { return values_.contains(name); }
  std::int64_t integer(std::string_view name) const override { return get<std::int64_t>(name); }
  double number(std::string_view name) const override { return std::bit_cast<double>(get<Number>(name).bits); }
  std::string text(std::string_view name) const override { return get<std::string>(name); }
  std::vector<std::byte> bytes(std::string_view name) const override { return get<std::vector<std::byte>>(name); }

  // Compares byte for byte, including NaN.
  bool operator==(const SavedState& other) const { return values_ == other.values_; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : values_) names.push_back(name);
    return names;
  }

 private:
  struct Number {
    std::uint64_t bits = 0;
    bool operator==(const Number&) const = default;
  };
  using Value = std::variant<std::int64_t, Number, std::string, std::vector<std::byte>>;

  void put(std::string_view name, Value value) {
    if (!values_.emplace(std::string(name), std::move(value)).second)
      throw Bug("a plugin saved two values named '{}'", name);
  }
  template <class T>
  const T& get(std::string_view name) const {
    const auto found = values_.find(name);
    if (found == values_.end() || !std::holds_alternative<T>(found->second))
      throw UserError("the saved state has no value of this type named '{}'", name);
    return std::get<T>(found->second);
  }
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace strata::fakes
