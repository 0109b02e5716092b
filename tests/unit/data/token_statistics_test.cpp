#include "tools/data/token_statistics.hpp"

#include <cmath>

#include "catch.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "unit/data/open_tokens.hpp"

using namespace strata::cli;

TEST_CASE("statistics: range, distinct ids and unigram entropy") {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", bytes<std::uint16_t>({7, 7, 3, 9}));
  const TokenStatistics statistics = statistics_of(open_tokens("nanogpt", folder / "a.bin"));
  CHECK(statistics.smallest == 3);
  CHECK(statistics.largest == 9);
  CHECK(statistics.distinct == 3);
  CHECK(statistics.unigram_entropy == Approx(1.5 * std::log(2.0)));
  write_file(folder / "b.u32", bytes<std::uint32_t>({70'000, 3'000'000'000}));
  const TokenStatistics wide = statistics_of(open_tokens("nanogpt", folder / "b.u32"));
  CHECK(wide.smallest == 70'000);
  CHECK(wide.largest == 3'000'000'000);
  CHECK(wide.unigram_entropy == Approx(std::log(2.0)));
}
