#include "token_width.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

namespace strata::nanogpt {
namespace {

using toolbox::TokenFile;
using toolbox::TokenType;

constexpr std::int64_t most_pairs = 2048, blocks = 8;
// High halves of u32 ids: vocabularies end far below 64 * 65536 = 4194304.
constexpr std::int64_t high_halves = 64;
constexpr std::int64_t low_halves = 256;  // surely no high half
// Large numbers that all stand in every second place do so by chance with a probability of 2^-20.
constexpr std::int64_t enough = 20;

// Numbers from the begin to the end of a file in pairs: as pairs of u16 tokens, or the halves of u32 tokens.
std::vector<std::array<std::int64_t, 2>> pairs_of(const TokenFile& file) {
  const bool wide = file.type() == TokenType::U32;
  const std::int64_t width = wide ? 1 : 2;  // tokens in a pair
  const std::int64_t all = file.token_count() / width;
  const std::int64_t count = all > most_pairs ? blocks : 1;
  const std::int64_t block = std::min(all, most_pairs) / count;
  std::vector<std::array<std::int64_t, 2>> pairs;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(block * width));
  for (std::int64_t index = 0; index < count; ++index) {
    const std::int64_t first = count == 1 ? 0 : index * ((all - block) / (count - 1)) / 2 * 2;
    file.copy(first * width, block * width, tokens.data());
    for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(width)) {
      if (wide) {
        pairs.push_back({tokens[at] & 0xffff, tokens[at] >> 16});
      } else {
        pairs.push_back({tokens[at], tokens[at + 1]});
      }
    }
  }
  return pairs;
}

// Of the first or of the second numbers of all pairs.
struct Half {
  std::int64_t ids = 0;      // that are not 0
  std::int64_t largest = 0;  // of all
  std::int64_t high = 0;     // that are too large for the high half of an id
  std::int64_t low = 0;      // that are large enough to be a low half only

  void add(std::int64_t number) {
    ids += number != 0;
    largest = std::max(largest, number);
    high += number >= high_halves;
    low += number >= low_halves;
  }
};

struct Halves {
  Half first, second;
  bool every_other_empty = true;  // the second, fourth ... pair is of zeros
};

Halves halves_of(const std::vector<std::array<std::int64_t, 2>>& pairs) {
  Halves halves;
  for (std::size_t index = 0; index < pairs.size(); ++index) {
    const auto [first, second] = pairs[index];
    halves.first.add(first);
    halves.second.add(second);
    halves.every_other_empty = halves.every_other_empty && (index % 2 == 0 || (first == 0 && second == 0));
  }
  return halves;
}

// `low` and `high` are the halves of u32 ids.
bool are_halves(const Half& low, const Half& high) {
  return high.ids == 0 ? low.ids > 0 : high.high == 0 && low.low >= enough;
}

// The pairs are two u16 ids each.
bool are_narrow(const Halves& halves, std::size_t pairs) {
  if (halves.second.high > static_cast<std::int64_t>(pairs) / 8) return true;
  return halves.second.ids >= enough && halves.first.low < enough;
}

// True if the ids are in the other byte order. Every text has many ids below 256; swapped, they are multiples of 256.
// Distinct multiples are counted, since the id of a pad token may be one.
bool are_swapped(const std::vector<std::array<std::int64_t, 2>>& pairs) {
  constexpr std::int64_t times = 8;
  std::set<std::int64_t> multiples;
  std::int64_t small = 0, swapped = 0;
  for (const std::array<std::int64_t, 2>& pair : pairs)
    for (const std::int64_t number : pair) {
      if (number == 0) continue;
      small += number < 256;
      if (number % 256 != 0) continue;
      ++swapped;
      multiples.insert(number);
    }
  return static_cast<std::int64_t>(multiples.size()) >= enough && swapped > times * small;
}

// The second numbers are, or every second one of them is, what whole numbers from 1 to 2^20 begin with in fp32 or fp64.
bool are_floats(const std::vector<std::array<std::int64_t, 2>>& pairs) {
  const auto all_within = [&](std::size_t step, std::int64_t least, std::int64_t end) {
    std::int64_t within = 0;
    for (std::size_t index = step - 1; index < pairs.size(); index += step) {
      const std::int64_t number = pairs[index][1];
      if (number != 0 && (number < least || number >= end)) return false;
      within += number != 0;
    }
    return within >= enough;
  };
  return all_within(1, 0x3f80, 0x4980) || all_within(2, 0x3ff0, 0x4130);
}

}  // namespace

void check_width(const TokenFile& file) {
  constexpr std::size_t fewest = 32;
  const std::vector<std::array<std::int64_t, 2>> pairs = pairs_of(file);
  if (pairs.size() < fewest) return;
  const Halves halves = halves_of(pairs);
  const std::string looked_at = std::to_string(2 * pairs.size());
  const auto refuse = [&](const std::string& why) { throw UserError(Place{file.path()}, why); };
  const bool wide = file.type() == TokenType::U32;
  const std::string if_right =
      std::string(", or set token_type to ") + (wide ? "u32 if u32" : "u16 if u16") + " is right";
  if (are_swapped(pairs))
    refuse(
        "its ids are multiples of 256, as in big-endian files; swap the bytes with NumPy: numpy.fromfile(FILE, "
        "'>u2').astype('<u2').tofile('tokens.bin'), '>u4' and '<u4' for tokens.u32.bin" +
        if_right);
  if (are_floats(pairs))
    refuse(
        "its numbers are in floating point; write them as integers with NumPy: numpy.fromfile(FILE, "
        "'f4').astype('u4').tofile('tokens.u32.bin')" +
        if_right);
  if (halves.every_other_empty && halves.first.ids >= enough)
    refuse("the last two of every four 16-bit numbers are 0 in " + looked_at +
           " sampled ones, as in tokens of 8 bytes; write them as u32 with NumPy: numpy.fromfile(FILE, "
           "'i8').astype('u4').tofile('tokens.u32.bin')" +
           if_right);
  if (!wide && are_halves(halves.first, halves.second))
    refuse("every second token is " +
           (halves.second.ids == 0 ? "0" : "at most " + std::to_string(halves.second.largest)) + ", of " + looked_at +
           " sampled ones, as when u32 tokens are read as u16, the type given by the file's name; name the file "
           "*.u32.bin or set token_type to u32, or to u16 if u16 is right");
  if (wide && are_narrow(halves, pairs.size()))
    refuse(
        format("its ids go up to {}, as when u16 tokens are read as u32, the type given by the file's name; rename the "
               "file or set token_type to u16, or to u32 if u32 is right",
               (halves.second.largest << 16) + halves.first.largest));
}

}  // namespace strata::nanogpt
