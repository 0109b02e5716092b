#include "group/fact.hpp"

#include <strata/format.hpp>

#include <algorithm>

namespace strata::group {

namespace {

constexpr char field_end = '\x1f';  // as ASCII has it: a unit separator

std::string shown(const std::vector<Fact>& facts, std::size_t index) {
  if (index >= facts.size()) return "no more";
  const Fact& fact = facts[index];
  const std::string name = fact.where.empty() ? fact.name : fact.name + " " + fact.where;
  return fact.value.empty() ? name : name + " (" + fact.value + ")";
}

}  // namespace

std::string written(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts)
    for (std::string field : {fact.name, fact.value, fact.where}) {
      std::ranges::replace(field, field_end, '?');
      text += field + field_end;
    }
  return text;
}

std::vector<Fact> read_facts(const std::string& text) {
  std::vector<std::string> fields;
  for (std::size_t begin = 0, end = 0; (end = text.find(field_end, begin)) != std::string::npos; begin = end + 1)
    fields.push_back(text.substr(begin, end - begin));
  std::vector<Fact> facts;
  for (std::size_t first = 0; first + 2 < fields.size(); first += 3)
    facts.push_back({fields[first], fields[first + 1], fields[first + 2]});
  return facts;
}

std::string difference(int rank, const std::vector<Fact>& facts, int other_rank, const std::vector<Fact>& others) {
  const auto equal = [](const Fact& one, const Fact& other) {
    return one.name == other.name && one.value == other.value;
  };
  const auto [mine, theirs] = std::ranges::mismatch(facts, others, equal);
  if (mine == facts.end() && theirs == others.end()) return "";
  const auto index = static_cast<std::size_t>(mine - facts.begin());
  return contrast(rank, shown(facts, index), other_rank, shown(others, index));
}

std::string contrast(int rank, const std::string& value, int other_rank, const std::string& other) {
  if (other_rank < rank) return contrast(other_rank, other, rank, value);
  return format("rank {} has {}, rank {} has {}", rank, value, other_rank, other);
}

}  // namespace strata::group
