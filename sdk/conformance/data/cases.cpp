// Cases for data plugins, with files that the plugin itself writes.
#include "data/written_files.hpp"

namespace strata::conformance {

std::vector<Case> data_cases() {
  using namespace data_checks;
  return {
      {"data.drawn",
       "Tokens are read back as they were written, in any ranges and on any rank, and an own order has each sample "
       "once, "
       "the same on every rank and from any position on.",
       drawn, std::chrono::seconds(300), true},
      {"data.outside_the_row", "Reading a range outside the data throws Bug.", outside_the_row},
      {"data.recognizes", "recognizes() does not claim files of other formats.", recognizes},
      {"data.no_file", "A missing file is refused with a UserError that names it.", no_file},
      {"data.empty_file", "An empty file is refused.", empty_file},
      {"data.cut_files", "A truncated file is refused when it is opened, or is read as fewer tokens.", cut_files},
      {"data.cut_while_open", "A file truncated while it is open gives the same tokens or an EnvironmentError.",
       cut_while_open},
      {"data.damaged_files", "A damaged file is read or refused; it does not crash the process.", damaged_files},
      {"data.order_as_declared", "own_order() gives an order if and only if the manifest declares own_order.",
       order_as_declared},
      {"data.leaks_nothing", "A data set closes its files when it is destroyed.", leaks_nothing},
  };
}

}  // namespace strata::conformance
