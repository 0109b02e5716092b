#include "tools/tokenizer/word_cache.hpp"

namespace strata::tokenizer {
namespace {

constexpr std::size_t slot_count = std::size_t{1} << 19;  // 12 MiB
constexpr std::size_t most_words = slot_count / 2;
constexpr std::size_t most_bytes = std::size_t{1} << 24;  // of long words

std::uint64_t mixed(std::uint64_t left, std::uint64_t right) {
  left = (left ^ right >> 31) * 0x9e3779b97f4a7c15u;
  right = (right ^ left >> 29) * 0xbf58476d1ce4e5b9u;
  return left ^ right ^ right >> 32;
}

std::uint64_t load(const char* bytes, std::size_t count) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, count);
  return value;
}

}  // namespace

WordCache::WordCache() : slots_(slot_count) {}

WordCache::Key WordCache::key_of(std::string_view word) {
  Key key;
  if (word.size() <= 16) {
    key.first = load(word.data(), word.size() < 8 ? word.size() : 8);
    if (word.size() > 8) key.second = load(word.data() + 8, word.size() - 8);
    key.hash = mixed(key.first, key.second);
    return key;
  }
  std::uint64_t hash = word.size();
  std::size_t position = 0;
  for (; position + 8 <= word.size(); position += 8) hash = mixed(hash, load(word.data() + position, 8));
  key.first = key.hash = mixed(hash, load(word.data() + position, word.size() - position));
  return key;
}

bool WordCache::is(const Slot& slot, const Key& key, std::string_view word) const {
  if (slot.first != key.first || slot.bytes != word.size()) return false;
  if (word.size() <= 16) return slot.second == key.second;
  return std::memcmp(&words_[slot.second], word.data(), word.size()) == 0;
}

std::span<const std::uint32_t> WordCache::find(std::string_view word) const {
  const Key key = key_of(word);
  for (std::size_t index = key.hash % slot_count; slots_[index].bytes != 0; index = (index + 1) % slot_count) {
    const Slot& slot = slots_[index];
    if (!is(slot, key, word)) continue;
    return {slot.count == 1 ? &slot.ids : &ids_[slot.ids], slot.count};
  }
  return {};
}

void WordCache::insert(std::string_view word, std::span<const std::uint32_t> ids) {
  if (used_ == most_words || words_.size() + word.size() > most_bytes) forget();
  Key key = key_of(word);
  std::size_t index = key.hash % slot_count;
  while (slots_[index].bytes != 0) index = (index + 1) % slot_count;
  if (word.size() > 16) {
    key.second = words_.size();
    words_.insert(words_.end(), word.begin(), word.end());
  }
  const auto begin = ids.size() == 1 ? ids[0] : static_cast<std::uint32_t>(ids_.size());
  if (ids.size() > 1) ids_.insert(ids_.end(), ids.begin(), ids.end());
  slots_[index] = {key.first, key.second, begin, static_cast<std::uint16_t>(ids.size()),
                   static_cast<std::uint16_t>(word.size())};
  ++used_;
}

void WordCache::forget() {
  slots_.assign(slot_count, {});
  used_ = 0;
  ids_.clear();
  words_.clear();
}

}  // namespace strata::tokenizer
