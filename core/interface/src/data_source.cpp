#include <strata/data_source.hpp>
#include <strata/error.hpp>

namespace strata {

Samples::~Samples() = default;
DataSet::~DataSet() = default;
DataSource::~DataSource() = default;

std::int64_t DataSet::token_count() const {
  std::int64_t count = 0;
  for (const TokenFileInfo& file : files()) count += file.tokens;
  return count;
}

bool DataSet::has_mask() const {
  return false;
}

void DataSet::copy_mask(std::int64_t /*first*/, std::int64_t /*count*/, std::uint8_t* /*is_target*/) const {
  throw Bug("DataSet::copy_mask: has_mask() is true, and the plugin does not override copy_mask()");
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
