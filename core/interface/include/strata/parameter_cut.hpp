// Where the elements of a tensor-parallel rank's part lie in the whole parameter.
#pragma once
#include <strata/export.hpp>
#include <strata/parameter.hpp>

#include <cstdint>
#include <functional>
#include <vector>

namespace strata {

// The whole's element for each of a part's, both row-major: runs of `length` neighbours, whose starts are `distance`
// apart in the whole, the first at `first`. Length 0: the part is the whole. Padding gets places too: behind the whole,
// or of another part's elements.
struct PartPlaces {
  std::int64_t length = 0;
  std::int64_t distance = 0;
  std::int64_t first = 0;

  std::int64_t of(std::int64_t element) const {
    return length == 0 ? element : element / length * distance + first + element % length;
  }
  // How many elements from this one on are neighbours in the whole too; without runs more than there are.
  std::int64_t neighbours(std::int64_t element) const {
    return length == 0 ? std::int64_t{1} << 62 : length - element % length;
  }
};

// A parameter cut into equal parts as its Split says. Row-major, the whole is [runs][parts][length] and a part is
// [runs][length]: a part has one run of `length` neighbours in each of `runs` places. Where the split is padded, the
// whole is shorter than its parts, of which the last ends with elements that are nowhere in the whole. A parameter
// without a split has one part, itself, however many ranks there are.
class STRATA_EXPORT ParameterCut {
 public:
  // Throws UserError with the numbers where the dimension cannot be cut into so many parts.
  ParameterCut(const ParameterInfo& info, int ranks);

  int parts() const { return parts_; }
  // The part that a tensor-parallel rank keeps.
  int part_of(int rank) const { return parts_ == 1 ? 0 : rank; }
  const std::vector<std::int64_t>& shape() const { return shape_; }  // of one part
  std::int64_t elements() const { return runs_ * length_; }          // of one part, with padding
  std::int64_t whole_elements() const { return runs_ * whole_length_; }
  PartPlaces places(int part) const {
    return parts_ == 1 ? PartPlaces{} : PartPlaces{length_, whole_length_, part * length_};
  }
  // Whether every `unit` elements of a part, the last of which may be fewer, are such of the whole too.
  bool keeps_together(std::int64_t unit) const {
    return parts_ == 1 || (length_ % unit == 0 && (runs_ == 1 || whole_length_ % unit == 0));
  }

  // `whole` and `in_part` are where a run of neighbours begins, row-major.
  struct Run {
    int part = 0;
    std::int64_t whole = 0;
    std::int64_t in_part = 0;
    std::int64_t elements = 0;
  };
  // The runs of elements [begin, end) of a part, ascending; padding is left out.
  void for_each_run(int part, std::int64_t begin, std::int64_t end, const std::function<void(const Run&)>& visit) const;
  // The runs that make up elements [begin, end) of the whole, ascending.
  void for_each_run_of_whole(std::int64_t begin, std::int64_t end, const std::function<void(const Run&)>& visit) const;

 private:
  int parts_ = 1;
  std::vector<std::int64_t> shape_;
  std::int64_t runs_ = 1;
  std::int64_t length_ = 0;
  std::int64_t whole_length_ = 0;  // of a run of all parts
};

}  // namespace strata
