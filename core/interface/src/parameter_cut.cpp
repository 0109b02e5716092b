#include <strata/error.hpp>
#include <strata/parameter_cut.hpp>

#include <algorithm>
#include <string>

namespace strata {

namespace {

void check(const ParameterInfo& info, int ranks) {
  const Split& split = info.split;
  if (split.dimension >= static_cast<int>(info.shape.size()) || split.blocks < 1 || split.unit < 1)
    throw Bug(
        "the model splits {} along dimension {} in {} blocks of units of {}; the dimension must be one of its {}, and "
        "both numbers at least 1",
        info.name, split.dimension, split.blocks, split.unit, info.shape.size());
  const std::int64_t extent = info.shape[static_cast<std::size_t>(split.dimension)];
  const std::int64_t units = extent / split.blocks / split.unit;
  if (units * split.blocks * split.unit != extent)
    throw Bug("the model splits {} along an extent of {}, which is not a multiple of {} blocks x {} that stay together",
              info.name, extent, split.blocks, split.unit);
  if (split.padded && split.blocks != 1) throw Bug("the model splits {} in blocks and pads them", info.name);
  if (split.padded && units > (units + ranks - 1) / ranks * (ranks - 1)) return;  // no part is padding only
  if (split.padded)
    throw UserError(
        "parallel.tensor is {}, and {} has {} units along the dimension that is cut, too few for that; set it lower",
        ranks, info.name, units);
  if (units % ranks == 0) return;
  throw UserError(
      "parallel.tensor is {}, and {} can be cut into equal parts of {} units only; set it to a divisor of {}", ranks,
      info.name, units, units);
}

}  // namespace

ParameterCut::ParameterCut(const ParameterInfo& info, int ranks)
    : shape_(info.shape), length_(info.elements()), whole_length_(length_) {
  if (info.split.dimension < 0) return;
  check(info, ranks);
  parts_ = ranks;
  const auto dimension = static_cast<std::size_t>(info.split.dimension);
  for (std::size_t i = 0; i < dimension; ++i) runs_ *= info.shape[i];
  runs_ *= info.split.blocks;
  whole_length_ = info.elements() / runs_;
  const std::int64_t units = info.shape[dimension] / info.split.blocks / info.split.unit;
  shape_[dimension] = (units + ranks - 1) / ranks * info.split.unit * info.split.blocks;
  length_ = whole_length_ / units * ((units + ranks - 1) / ranks);
}

void ParameterCut::for_each_run(int part, std::int64_t begin, std::int64_t end,
                                const std::function<void(const Run&)>& visit) const {
  strata_check(part >= 0 && part < parts_ && begin >= 0 && end <= elements(), "a range outside of a parameter's part");
  if (parts_ == 1) {
    if (begin < end) visit({part, begin, begin, end - begin});
    return;
  }
  const std::int64_t real = std::min(length_, whole_length_ - part * length_);
  while (begin < end) {
    const std::int64_t run = begin / length_, at = begin % length_;
    const std::int64_t stop = std::min(end, run * length_ + real);
    if (begin < stop) visit({part, run * whole_length_ + part * length_ + at, begin, stop - begin});
    begin = (run + 1) * length_;
  }
}

void ParameterCut::for_each_run_of_whole(std::int64_t begin, std::int64_t end,
                                         const std::function<void(const Run&)>& visit) const {
  strata_check(begin >= 0 && end <= runs_ * whole_length_, "a range outside of a parameter");
  while (begin < end) {
    const std::int64_t run = begin / whole_length_, at = begin % whole_length_;
    const std::int64_t part = at / length_;
    const std::int64_t stop =
        parts_ == 1 ? end : std::min(end, run * whole_length_ + std::min((part + 1) * length_, whole_length_));
    visit({static_cast<int>(part), begin, run * length_ + at % length_, stop - begin});
    begin = stop;
  }
}

}  // namespace strata
