// The rectangles of a piece: each of its elements once, at its place in the whole parameter.
#include <ATen/ops/arange.h>
#include <strata/parameter_cut.hpp>
#include <strata/toolbox/row_blocks.hpp>

#include <vector>

#include "catch.hpp"

using namespace strata;

namespace {

// Of a part of 2, or of the whole; `rows`: of one matrix.
void check_blocks(const ParameterInfo& info, int ranks, std::int64_t rows) {
  const ParameterCut cut(info, ranks);
  for (int part = 0; part < cut.parts(); ++part)
    for (const std::int64_t begin : {std::int64_t{0}, std::int64_t{1}, cut.elements() / 3})
      for (const std::int64_t end : {cut.elements(), cut.elements() - 1, cut.elements() / 2 + 1}) {
        CAPTURE(info.split.dimension, info.split.blocks, part, begin, end);
        PieceInfo piece = PieceInfo::whole(info);
        piece.begin = begin;
        piece.end = end;
        piece.places = cut.places(part);
        const at::Tensor numbers = at::arange(begin, end);  // each element's own, in the part
        std::vector<int> times(static_cast<std::size_t>(end - begin));
        for (const RowBlock& block : row_blocks(piece, info.shape.back(), rows)) {
          CHECK(block.row / rows == (block.row + block.rows - 1) / rows);
          const at::Tensor elements = block.of(numbers).contiguous();
          for (std::int64_t i = 0; i < elements.numel(); ++i) {
            const std::int64_t element = elements.const_data_ptr<std::int64_t>()[i];
            const std::int64_t row = block.row + i / block.columns, column = block.column + i % block.columns;
            CHECK(row * info.shape.back() + column == piece.places.of(element));
            ++times[static_cast<std::size_t>(element - begin)];
          }
        }
        for (std::int64_t element = begin; element < end; ++element)
          CHECK(times[static_cast<std::size_t>(element - begin)] ==
                (piece.places.of(element) < info.elements() ? 1 : 0));
      }
}

}  // namespace

TEST_CASE("blocks of rows match a piece's elements, in tensor-parallel parts too") {
  const auto of = [](std::vector<std::int64_t> shape, Split split) {
    ParameterInfo info;
    info.shape = std::move(shape);
    info.split = split;
    return info;
  };
  check_blocks(of({12, 10}, {}), 1, 12);
  check_blocks(of({12, 10}, {.dimension = 0}), 2, 12);
  check_blocks(of({12, 10}, {.dimension = 0, .blocks = 3}), 2, 12);
  check_blocks(of({12, 10}, {.dimension = 1}), 2, 12);
  check_blocks(of({12, 10}, {.dimension = 1}), 2, 4);
  check_blocks(of({7, 10}, {.dimension = 0, .padded = true}), 2, 7);
  check_blocks(of({20}, {.dimension = 0}), 2, 1);
}

TEST_CASE("a part's share of many rows is few blocks") {
  ParameterInfo info;
  info.shape = {64, 32};
  info.split.dimension = 1;
  PieceInfo piece = PieceInfo::whole(info);
  piece.end = 64 * 16;
  piece.places = ParameterCut(info, 2).places(1);
  CHECK(row_blocks(piece, 32, 64).size() == 1);
}
