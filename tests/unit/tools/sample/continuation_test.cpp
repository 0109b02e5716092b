// A model of three tokens, of which the next one follows from the last ones.
#include <ATen/ops/full.h>

#include "error_of.hpp"
#include "tools/sample/continuation.hpp"

using namespace strata;
using namespace strata::sample;

namespace {

using Ids = std::vector<std::int64_t>;

// Says `next` with certainty.
at::Tensor says(std::int64_t next, std::int64_t vocabulary) {
  at::Tensor logits = at::full({vocabulary}, -20.0F);
  logits[next] = 20.0F;
  return logits;
}

struct Made {
  Continuation text;
  Ids seen;               // by the caller
  std::vector<Ids> told;  // to the model
};

Made counted(const Ids& prompt, const ContinuationSettings& settings, std::int64_t vocabulary = 1000,
             const WrittenTokens& written = WrittenTokens("")) {
  Made made;
  made.text = continuation_of(
      prompt, settings, written,
      [&](std::span<const std::int64_t> text) {
        made.told.emplace_back(text.begin(), text.end());
        return says(text.back() + 1, vocabulary);
      },
      [&](std::int64_t token) { made.seen.push_back(token); });
  return made;
}

}  // namespace

TEST_CASE("a text is continued token by token, from the last ones that fit") {
  const Made made = counted({7, 8}, {.tokens = 4, .seen = 3});
  CHECK((made.text.tokens == Ids{9, 10, 11, 12}));
  CHECK((made.seen == made.text.tokens));
  CHECK_FALSE(made.text.ended);
  CHECK((made.told == std::vector<Ids>{{7, 8}, {7, 8, 9}, {8, 9, 10}, {9, 10, 11}}));
}

TEST_CASE("a document's end ends it, and is not a part of it") {
  const Made made = counted({7}, {.tokens = 4, .seen = 3, .document_end = 10});
  CHECK((made.text.tokens == Ids{8, 9}));
  CHECK((made.seen == Ids{8, 9}));
  CHECK(made.text.ended);
  CHECK(counted({7}, {.tokens = 4, .seen = 3, .document_end = 12}).text.tokens.size() == 4);
}

TEST_CASE("a token that cannot be written is never chosen, and refused where it is likely") {
  const ContinuationSettings settings{.choice = {.temperature = 1.0, .top_p = 1.0}, .tokens = 500, .seen = 3};
  const auto flat = [](std::span<const std::int64_t>) { return at::full({300}, 1.0F); };  // bytes have 256 of 300
  const Continuation bytes = continuation_of({7}, settings, WrittenTokens(""), flat, [](std::int64_t) {});
  CHECK(std::ranges::max(bytes.tokens) < 256);
  const Continuation numbers = continuation_of({7}, settings, WrittenTokens::as_numbers(), flat, [](std::int64_t) {});
  CHECK(std::ranges::max(numbers.tokens) >= 256);
  CHECK_THAT(error_of([&] { (void)counted({254}, {.tokens = 4, .seen = 3}); }),
             Contains("256 or above with probability 1.000") && Contains("--tokenizer"));
  CHECK(counted({254}, {.tokens = 4, .seen = 3}, 1000, WrittenTokens::as_numbers()).text.tokens.size() == 4);
}
