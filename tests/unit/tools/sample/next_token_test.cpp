#include "tools/sample/next_token.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "error_of.hpp"

using namespace strata;
using sample::Choice;
using sample::next_token;

namespace {

// Probabilities 0.5, 0.05, 0.25, 0.2 at the temperature 1.
std::vector<float> four() {
  std::vector<float> logits;
  for (const double probability : {0.5, 0.05, 0.25, 0.2})
    logits.push_back(static_cast<float>(3.0 + std::log(probability)));
  return logits;
}

constexpr int draws = 20000;

// How often each token is chosen, of 1.
std::map<std::int64_t, double> shares(const std::vector<float>& logits, const Choice& choice) {
  std::map<std::int64_t, double> shares;
  for (int position = 0; position < draws; ++position) shares[next_token(logits, choice, position)] += 1.0 / draws;
  return shares;
}

// Four standard deviations of the draws.
auto about(double probability) {
  return Approx(probability).margin(4.0 * std::sqrt(0.25 / draws));
}

constexpr float infinite = std::numeric_limits<float>::infinity(), no_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("at the temperature 0 the most likely token is chosen, the first of equal ones") {
  CHECK(next_token(four(), {.temperature = 0.0}, 5) == 0);
  CHECK(next_token(std::vector<float>{1, 7, 2, 7}, {.temperature = 0.0}, 5) == 1);
  CHECK(next_token(std::vector<float>{-infinite, -3, -infinite}, {.temperature = 0.0}, 5) == 1);
}

TEST_CASE("tokens are drawn in proportion to their probabilities at the temperature") {
  auto found = shares(four(), {.temperature = 1.0, .top_p = 1.0});
  for (const auto& [token, probability] : std::map<int, double>{{0, 0.5}, {1, 0.05}, {2, 0.25}, {3, 0.2}})
    CHECK(found[token] == about(probability));
  found = shares(four(), {.temperature = 0.5, .top_p = 1.0});  // squares, of the sum 0.355
  CHECK(found[0] == about(0.25 / 0.355));
  CHECK(found[3] == about(0.04 / 0.355));
}

TEST_CASE("top_p keeps the fewest likely tokens with so much probability, and the first always") {
  auto found = shares(four(), {.temperature = 1.0, .top_p = 0.7});
  CHECK(found.size() == 2);
  CHECK(found[0] == about(0.5 / 0.75));
  CHECK(shares(four(), {.temperature = 1.0, .top_p = 0.79}).size() == 3);
  CHECK(shares(four(), {.temperature = 1.0, .top_p = 0.0}).size() == 1);
  CHECK(shares(four(), {.temperature = 10.0, .top_p = 0.79}).size() == 4);  // of the probabilities at that temperature
}

TEST_CASE("top_k keeps k tokens, and top_p applies to their probabilities") {
  auto found = shares(four(), {.temperature = 1.0, .top_p = 1.0, .top_k = 3});
  CHECK(found.size() == 3);
  CHECK(found[2] == about(0.25 / 0.95));
  CHECK(shares(four(), {.temperature = 1.0, .top_p = 0.78, .top_k = 3}).size() == 2);  // 0.75 / 0.95 = 0.789
  CHECK(shares(four(), {.temperature = 1.0, .top_p = 1.0, .top_k = 9}).size() == 4);
  CHECK(shares(std::vector<float>{1, 1, 1}, {.temperature = 1.0, .top_p = 1.0, .top_k = 2}).size() == 2);
}

TEST_CASE("the choice is a function of seed and position") {
  const Choice one{.temperature = 1.0, .top_p = 1.0, .seed = 1}, other{.temperature = 1.0, .top_p = 1.0, .seed = 2};
  int by_seed = 0, by_position = 0;
  for (int position = 0; position < 1000; ++position) {
    const std::int64_t token = next_token(four(), one, position);
    CHECK(next_token(four(), one, position) == token);
    by_seed += next_token(four(), other, position) == token ? 1 : 0;
    by_position += next_token(four(), one, position + 1) == token ? 1 : 0;
  }
  // Two draws are equal with probability 0.355; four standard deviations.
  CHECK(std::abs(by_seed - 355) < 61);
  CHECK(std::abs(by_position - 355) < 61);
}

// As those of another layout; some are equal on one and not on the other.
TEST_CASE("logits that differ by rounding give the same tokens") {
  std::vector<float> logits(1000), rounded(1000);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(3.0 * std::sin(static_cast<double>(i % 50)));
    rounded[i] = std::nextafter(logits[i], i % 3 == 0 ? infinite : -infinite);
  }
  int apart = 0;
  for (int position = 0; position < 5000; ++position)
    apart += next_token(logits, {.top_p = 1.0}, position) == next_token(rounded, {.top_p = 1.0}, position) ? 0 : 1;
  CHECK(apart <= 2);  // borders between tokens move by less than 1e-6: of 1000 in 5000 draws they pass 0.5 at most
}

TEST_CASE("logits that are no numbers are refused") {
  for (const float wrong : {no_number, infinite})
    CHECK_THAT(error_of([&] { (void)next_token(std::vector<float>{1, wrong, 2}, {}, 0); }), Contains("diverged"));
  CHECK_THAT(error_of([&] { (void)next_token(std::vector<float>{-infinite}, {.temperature = 0.0}, 0); }),
             Contains("diverged"));
}

TEST_CASE("the probability of tokens from one on") {
  CHECK(sample::probability_from(four(), 2) == Approx(0.45));
  CHECK(sample::probability_from(four(), 4) == 0.0);
  CHECK(sample::probability_from(four(), 9) == 0.0);
}
