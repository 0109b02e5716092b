// Cases for data plugins, with files that the plugin itself writes.
#include "data/written_files.hpp"

namespace strata::conformance {

std::vector<Case> data_cases() {
  using namespace data_checks;
  return {
      {"data.reads_what_it_wrote",
       "Files that the plugin writes are read back as the same tokens, for any number of tokens.", reads_what_it_wrote},
      {"data.any_range",
       "Reading a range of tokens gives the same result every time and on every rank, and writes only the destination.",
       any_range},
      {"data.outside_the_row", "Reading a range outside the data throws Bug.", outside_the_row},
      {"data.large_ids", "A large id is read back unchanged, or write() refuses it.", large_ids},
      {"data.replaces", "write() replaces an existing file.", replaces},
      {"data.settings", "Every option setting reads back what it wrote, or is refused.", settings},
      {"data.recognizes", "recognizes() does not claim files of other formats.", recognizes},
      {"data.no_file", "A missing file is refused with a UserError that names it.", no_file},
      {"data.empty_file", "An empty file is refused.", empty_file},
      {"data.cut_files", "A truncated file is refused when it is opened, or is read as fewer tokens.", cut_files},
      {"data.cut_while_open", "A file truncated while it is open gives the same tokens or an EnvironmentError.",
       cut_while_open},
      {"data.damaged_files", "A damaged file is read or refused; it does not crash the process.", damaged_files},
      {"data.order_as_declared", "own_order() gives an order if and only if the manifest declares own_order.",
       order_as_declared},
      {"data.order_is_a_permutation",
       "The plugin's own order has each sample once, and at least as many as a run takes.", order_is_a_permutation},
      {"data.order_is_pure", "The plugin's own order is the same every time and on every rank.", order_is_pure},
      {"data.leaks_nothing", "A data set closes its files when it is destroyed.", leaks_nothing},
  };
}

}  // namespace strata::conformance
