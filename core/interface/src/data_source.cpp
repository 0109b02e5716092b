#include <strata/data_source.hpp>

namespace strata {

Samples::~Samples() = default;
DataSet::~DataSet() = default;
DataSource::~DataSource() = default;

std::int64_t DataSet::token_count() const {
  std::int64_t count = 0;
  for (const TokenFileInfo& file : files()) count += file.tokens;
  return count;
}

std::vector<std::pair<std::string, std::int64_t>> DataSet::facts() const {
  return {};
}

std::unique_ptr<Samples> DataSet::own_order(const SampleRequest& /*request*/) const {
  return nullptr;
}

bool DataSource::recognizes(const std::string& /*path*/) const {
  return false;
}

}  // namespace strata
