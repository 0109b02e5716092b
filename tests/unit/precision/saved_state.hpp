// defines: SavedState
#pragma once
#include <strata/state_stream.hpp>

#include <map>
#include <string>

// What a checkpoint keeps of a plugin.
struct SavedState final : strata::StateWriter, strata::StateReader {
  std::map<std::string, std::int64_t, std::less<>> integers;
  std::map<std::string, double, std::less<>> numbers;
  void integer(std::string_view name, std::int64_t value) override { integers.emplace(name, value); }
  void number(std::string_view name, double value) override { numbers.emplace(name, value); }
  void text(std::string_view, std::string_view) override {}
  void bytes(std::string_view, std::span<const std::byte>) override {}
  bool contains(std::string_view name) const override { return integers.contains(name) || numbers.contains(name); }
  std::int64_t integer(std::string_view name) const override { return integers.find(name)->second; }
  double number(std::string_view name) const override { return numbers.find(name)->second; }
  std::string text(std::string_view) const override { return {}; }
  std::vector<std::byte> bytes(std::string_view) const override { return {}; }
};
