// What a data plugin must do with files that it wrote itself.
#include "data/written_files.hpp"

namespace strata::conformance {

std::vector<Case> data_cases() {
  using namespace data_checks;
  return {
      {"data.reads_what_it_wrote", "Files that it writes are opened as the same tokens, of any number.",
       reads_what_it_wrote},
      {"data.any_range", "Any range of tokens is the same on every read, on every rank, and nothing else is written.",
       any_range},
      {"data.outside_the_row", "A range outside the row of tokens is a Bug.", outside_the_row},
      {"data.large_ids", "An id is read as it was written, or refused when it is written.", large_ids},
      {"data.replaces", "write() replaces what was there.", replaces},
      {"data.settings", "Every setting of its options reads what it wrote, or is refused.", settings},
      {"data.recognizes", "It does not take files of another kind for its own.", recognizes},
      {"data.no_file", "A path without a file is refused with a UserError that names it.", no_file},
      {"data.empty_file", "An empty file is refused.", empty_file},
      {"data.cut_files", "A file that was cut is refused when it is opened, or is a row of fewer tokens.", cut_files},
      {"data.cut_while_open", "A file cut while it is open gives the same tokens or an EnvironmentError.",
       cut_while_open},
      {"data.damaged_files", "Damaged files are read or refused; they do not end the process.", damaged_files},
      {"data.order_as_declared", "It has an order of its own if and only if it declares own_order.", order_as_declared},
      {"data.order_is_a_permutation", "Its own order holds each sample once, and as many as a run takes.",
       order_is_a_permutation},
      {"data.order_is_pure", "Its own order is the same whenever and wherever it is asked.", order_is_pure},
      {"data.leaks_nothing", "What a data set opened is closed with it.", leaks_nothing},
  };
}

}  // namespace strata::conformance
