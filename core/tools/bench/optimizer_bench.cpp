// Times an optimizer's step. Floor: one pass over the tensors of a piece that it must read and write.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <strata/fakes/optimizer_update.hpp>

#include "text/size.hpp"
#include "tools/bench/kinds.hpp"
#include "tools/bench/streams.hpp"

namespace strata::bench {

namespace {

// The inputs of the optimizer in a run: a gradient, and possibly a rounded copy of an fp32 master.
struct Case {
  const char* name;
  at::ScalarType gradient;
  at::ScalarType parameter;
};

Piece make_piece(const Optimizer& optimizer, std::int64_t elements, const Case& given) {
  Piece piece;
  const std::int64_t columns = std::min<std::int64_t>(elements, 1024);
  ParameterInfo parameter;
  parameter.name = "bench.weight";
  parameter.shape = {elements / columns, columns};
  parameter.linear_only = true;
  piece.info = PieceInfo::whole(parameter);
  piece.master = at::full({piece.info.end}, 0.5);
  piece.gradient = at::full({piece.info.end}, 1e-3, at::TensorOptions().dtype(given.gradient));
  if (given.parameter != at::kFloat || optimizer.trains_elsewhere())
    piece.parameter = at::zeros({piece.info.end}, at::TensorOptions().dtype(given.parameter));
  for (const StateTensor& state : optimizer.state(piece.info))
    piece.state.push_back(at::zeros({state.elements(piece.info)}, at::TensorOptions().dtype(state.dtype)));
  return piece;
}

Streams streams_of(const Piece& piece) {
  const auto stream = [](const at::Tensor& tensor, bool read, bool written) {
    return Stream{static_cast<std::int64_t>(tensor.nbytes()), read, written, tensor};
  };
  std::vector<Stream> streams{stream(piece.master, true, true), stream(piece.gradient, true, false)};
  if (piece.parameter.defined()) streams.push_back(stream(piece.parameter, false, true));
  for (const at::Tensor& state : piece.state) streams.push_back(stream(state, true, true));
  return Streams(streams);
}

}  // namespace

std::vector<Row> bench_optimizer(Optimizer& optimizer, const Sizes& sizes, const InterleavedTimer& timer) {
  std::vector<Row> rows;
  for (const std::int64_t size : sizes)
    for (const Case& given : {Case{"step, fp32", at::kFloat, at::kFloat},
                              {"step, fp32 master and bf16 copy", at::kFloat, at::kBFloat16},
                              {"step, bf16 gradient, fp32 master and bf16 copy", at::kBFloat16, at::kBFloat16}}) {
      Piece piece = make_piece(optimizer, std::max<std::int64_t>(size / 4, 1), given);
      const Streams floor = streams_of(piece);
      StepScalars scalars{1e-4, 0, at::full({}, 1.0), at::full({}, 1.0)};
      rows.push_back(timer.time(
          {.name = given.name,
           .size = text::format_bytes(static_cast<std::int64_t>(piece.master.nbytes())),
           .floor = floor.name(),
           .work = floor.bytes(),
           .work_unit = "B"},
          [&] {
            fakes::update(optimizer, piece, scalars);
            ++scalars.updates;
          },
          floor.passes()));
    }
  return rows;
}

}  // namespace strata::bench
