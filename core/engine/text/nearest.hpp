#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace strata::config {

// How many letters must be inserted, removed, replaced or swapped with their neighbour to make one of the other. In
// `left`, which may be a pattern, a `*` stands for any letters and a `?` for one.
std::size_t edit_distance(std::string_view left, std::string_view right);

// The candidate with the smallest distance, case not counting, the first among equals; empty without candidates.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// nearest(), where it is so near that the word may be a slip for it; else empty.
std::string near(std::string_view word, const std::vector<std::string>& candidates);

// The end of an error about an unknown word: "did you mean X?" when one is near, and else "known: X, Y, Z".
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace strata::config
