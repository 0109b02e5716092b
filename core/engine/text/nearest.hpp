#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace strata::text {

// Returns the number of letters to insert, remove, replace or swap with their neighbour to turn one word into the
// other. In `left`, which may be a pattern, `*` stands for any letters and `?` for one.
std::size_t edit_distance(std::string_view left, std::string_view right);

// Returns the candidate with the smallest distance, ignoring case, the first among equals; empty without candidates.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// Returns nearest() if it is near enough for a typing error; otherwise empty.
std::string near(std::string_view word, const std::vector<std::string>& candidates);

// Returns the end of an error about an unknown word: "did you mean X?" if one is near, otherwise "known: X, Y, Z".
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace strata::text
