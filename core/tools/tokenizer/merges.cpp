#include "tools/tokenizer/merges.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <string>
#include <utility>

namespace strata::tokenizer {
namespace {

constexpr std::size_t longest_short = 32;

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32 | right;
}

}  // namespace

Merges::Merges(std::vector<std::uint32_t> byte_ids, std::size_t count, UnknownByte unknown)
    : byte_ids_(std::move(byte_ids)), unknown_(unknown), slots_(std::bit_ceil(2 * count + 2)) {
  strata_check(byte_ids_.size() == 256, "Merges: a token for each byte, or none");
}

// Where a pair is, or the empty slot where it would be.
std::size_t Merges::slot_of(std::uint64_t pair) const {
  std::uint64_t hash = pair * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 32;
  std::size_t slot = hash & (slots_.size() - 1);
  while (slots_[slot].merge.rank != none && slots_[slot].pair != pair) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void Merges::add(std::uint32_t left, std::uint32_t right, Merge merge) {
  const std::uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {pair, merge};
}

Merges::Merge Merges::find(std::uint32_t left, std::uint32_t right) const {
  return slots_[slot_of(pair_of(left, right))].merge;
}

// Calls `put` with the tokens with which a word begins. Returns how many bytes have none.
template <typename Put>
std::size_t Merges::each_part(std::string_view word, const Put& put) const {
  std::size_t left_out = 0;
  bool is_unknown = false;
  for (const char byte : word) {
    const std::uint32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id != none) {
      put(id);
    } else if (!unknown_.id) {
      ++left_out;
    } else if (!is_unknown || !unknown_.fuses) {
      put(*unknown_.id);
    }
    is_unknown = id == none;
  }
  return left_out;
}

std::size_t Merges::apply(std::string_view word, std::vector<std::uint32_t>& ids) const {
  return word.size() <= longest_short ? apply_short(word, ids) : apply_long(word, ids);
}

// Looks for the best pair among all, again after each merge.
std::size_t Merges::apply_short(std::string_view word, std::vector<std::uint32_t>& ids) const {
  std::array<std::uint32_t, longest_short> parts;
  std::array<Merge, longest_short> merges;  // of each part with the next one
  std::size_t count = 0;
  const std::size_t left_out = each_part(word, [&](std::uint32_t id) { parts[count++] = id; });
  for (std::size_t index = 0; index + 1 < count; ++index) merges[index] = find(parts[index], parts[index + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t index = 1; index + 1 < count; ++index) {
      if (merges[index].rank < merges[best].rank) best = index;
    }
    if (merges[best].rank == none) break;
    parts[best] = merges[best].id;
    --count;
    std::copy(parts.begin() + best + 2, parts.begin() + count + 1, parts.begin() + best + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + count, merges.begin() + best);
    if (best + 1 < count) merges[best] = find(parts[best], parts[best + 1]);
    if (best > 0) merges[best - 1] = find(parts[best - 1], parts[best]);
  }
  ids.insert(ids.end(), parts.begin(), parts.begin() + count);
  return left_out;
}

// Keeps the pairs in a heap and the parts in a list. A pair in the heap may be gone when its turn comes.
std::size_t Merges::apply_long(std::string_view word, std::vector<std::uint32_t>& ids) const {
  struct Part {
    std::uint32_t id, before, next;
  };
  struct Candidate {
    std::uint32_t rank, position, left, right, id;
    bool operator<(const Candidate& other) const {
      return std::pair(rank, position) > std::pair(other.rank, other.position);  // the top of the heap is the largest
    }
  };
  constexpr std::uint32_t gone = UINT32_MAX;
  if (word.size() >= gone) {
    throw UserError("the text has a word of {} bytes, and the tokenizer supports fewer than 4294967295; split it",
                    word.size());
  }
  std::vector<Part> parts;
  parts.reserve(word.size());
  const std::size_t left_out = each_part(word, [&](std::uint32_t id) {
    const auto index = static_cast<std::uint32_t>(parts.size());
    parts.push_back({id, index - 1, index + 1});
  });
  const auto end = static_cast<std::uint32_t>(parts.size());
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](std::uint32_t position) {
    const Part& part = parts[position];
    if (part.next == end) return;
    const Merge merge = find(part.id, parts[part.next].id);
    if (merge.rank != none) candidates.push({merge.rank, position, part.id, parts[part.next].id, merge.id});
  };
  for (std::uint32_t index = 0; index < end; ++index) consider(index);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Part& part = parts[best.position];
    if (part.id != best.left || part.next == end || parts[part.next].id != best.right) continue;
    part.id = best.id;
    parts[part.next].id = gone;
    part.next = parts[part.next].next;
    if (part.next != end) parts[part.next].before = best.position;
    consider(best.position);
    if (best.position > 0) consider(part.before);
  }
  for (std::uint32_t index = 0; index < end; index = parts[index].next) ids.push_back(parts[index].id);
  return left_out;
}

}  // namespace strata::tokenizer
