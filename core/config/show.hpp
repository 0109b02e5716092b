#pragma once
#include <string>
#include <vector>

#include "config/run_config.hpp"

namespace strata::config {

enum class ListingFormat { Table, Markdown, Csv, Json };

// table, markdown, csv or json. Throws UserError.
ListingFormat listing_format(const std::string& name);

// The lines of a resolved config in columns key, value, origin. Ends with a line break. Json: a list of objects with
// these members.
std::string format_listing(const std::vector<Resolved>& listing, ListingFormat format);

}  // namespace strata::config
