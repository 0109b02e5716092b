// The rates of golden_rates.txt, bit by bit.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "run.hpp"

namespace strata {

TEST_CASE("every schedule gives the rates that it gave before it was a plugin") {
  std::ifstream file(GOLDEN_RATES);
  int schedules = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream stream(line);
    std::string name, word, text;
    stream >> name >> word;
    fakes::OptionTexts options;
    for (stream >> word; word != "|"; stream >> word) {
      const std::size_t equals = word.find('=');
      options.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    }
    RunSettings run{60, 0, 6e-4};
    stream >> run.warmup >> word;
    CAPTURE(line.substr(0, 100));
    const runtime::RunLearningRate rate = learning_rate_of(name, options, run);
    std::int64_t update = 0;
    for (; stream >> text; ++update) {
      CAPTURE(update);
      CHECK(rate.rate(update) == std::strtod(text.c_str(), nullptr));
    }
    CHECK(update == 60);
    ++schedules;
  }
  CHECK(schedules == 20);
}

}  // namespace strata
