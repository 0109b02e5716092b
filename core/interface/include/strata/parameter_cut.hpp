// Places of a tensor-parallel rank's part in the whole parameter.
#pragma once
#include <strata/export.hpp>
#include <strata/parameter.hpp>

#include <cstdint>
#include <functional>
#include <vector>

namespace strata {

// Maps elements of a part to elements of the whole, both row-major: runs of `length` neighbours, whose starts are
// `distance` apart in the whole, the first at `first`. Length 0: the part is the whole. Padding maps to meaningless
// places: past the end of the whole, or elements of another part.
struct PartPlaces {
  std::int64_t length = 0;
  std::int64_t distance = 0;
  std::int64_t first = 0;

  std::int64_t of(std::int64_t element) const {
    return length == 0 ? element : element / length * distance + first + element % length;
  }
  // Returns the number of elements from `element` on that are neighbours in the whole too. If the part is the whole,
  // returns a number larger than any part.
  std::int64_t neighbours(std::int64_t element) const {
    return length == 0 ? std::int64_t{1} << 62 : length - element % length;
  }
};

// A parameter cut into equal parts by its Split. Row-major, the whole is [runs][parts][length] and a part is
// [runs][length]: a part has one run of `length` neighbours in each of `runs` places. With a padded split the parts
// together are longer than the whole, and the last part ends with elements that have no place in it. A parameter
// without a split has one part, itself, for any number of ranks.
class STRATA_EXPORT ParameterCut {
 public:
  // Throws UserError, with the numbers, if the dimension cannot be cut into `ranks` parts, and Bug if the Split does
  // not fit the parameter's shape.
  ParameterCut(const ParameterInfo& info, int ranks);

  int parts() const { return parts_; }
  // Returns the index of the part that a tensor-parallel rank keeps.
  int part_of(int rank) const { return parts_ == 1 ? 0 : rank; }
  const std::vector<std::int64_t>& shape() const { return shape_; }  // shape of one part
  std::int64_t elements() const { return runs_ * length_; }          // elements of one part, with padding
  std::int64_t whole_elements() const { return runs_ * whole_length_; }
  PartPlaces places(int part) const {
    return parts_ == 1 ? PartPlaces{} : PartPlaces{length_, whole_length_, part * length_};
  }
  // True if every unit of a part (the last may be smaller) is a unit of the whole.
  bool keeps_together(std::int64_t unit) const {
    return parts_ == 1 || (length_ % unit == 0 && (runs_ == 1 || whole_length_ % unit == 0));
  }

  // A run of neighbours: begins at element `whole` of the whole and at element `in_part` of the part, row-major.
  struct Run {
    int part = 0;
    std::int64_t whole = 0;
    std::int64_t in_part = 0;
    std::int64_t elements = 0;
  };
  // Visits the runs of elements [begin, end) of a part, ascending and without padding.
  void for_each_run(int part, std::int64_t begin, std::int64_t end, const std::function<void(const Run&)>& visit) const;
  // Visits the runs that make up elements [begin, end) of the whole, ascending.
  void for_each_run_of_whole(std::int64_t begin, std::int64_t end, const std::function<void(const Run&)>& visit) const;

 private:
  int parts_ = 1;
  std::vector<std::int64_t> shape_;
  std::int64_t runs_ = 1;
  std::int64_t length_ = 0;
  std::int64_t whole_length_ = 0;  // length of a run of all parts
};

}  // namespace strata
