// What layers keep for backward: the same bytes on meta tensors as on the CPU, and as many as describe() says.
#include <ATen/ATen.h>
#include <strata/fakes/plugin_library.hpp>
#include <strata/model.hpp>

#include "catch.hpp"
#include "counting_allocator.hpp"
#include "layers_in_order.hpp"

namespace {

struct Shape {
  std::int64_t samples;
  std::int64_t positions;
  at::ScalarType dtype;
  bool parallel = true;
  std::int64_t mlp_chunk = 0;
};

struct Bytes {
  std::int64_t kept = 0;  // by the graph between forward and backward, output and input not counted
  std::int64_t forward_most = 0;
  std::int64_t backward_most = 0;
  std::int64_t left = 0;  // after backward
};

using Plugin = strata::fakes::LoadedPlugin<strata::Model>;

Plugin model_of(const Shape& shape) {
  return Plugin(strata::fakes::PluginLibrary(GPT_NEOX_LIBRARY),
                {{"hidden_size", "64"},
                 {"layers", "1"},
                 {"heads", "4"},
                 {"vocabulary", "1000"},
                 {"mlp_chunk", std::to_string(shape.mlp_chunk)},
                 {"parallel_residual", shape.parallel ? "true" : "false"}});
}

Bytes measure(const strata::Model& model, std::size_t index, const Shape& shape, at::Device device) {
  LayersInOrder run(model, {shape.samples, shape.positions, shape.dtype});
  run.make_parameters(shape.dtype, at::kFloat, device);
  const at::TensorOptions integers = at::TensorOptions(at::kLong).device(device);
  const strata::MicroBatch batch{at::zeros({shape.samples, shape.positions}, integers),
                                 at::zeros({shape.samples, shape.positions}, integers)};
  strata::Tensors input;
  std::vector<at::Tensor> leaves;
  for (strata::Parameter* parameter : run.layer(index).parameters()) leaves.push_back(parameter->tensor);
  if (index > 0) {
    input.push_back(at::zeros({shape.samples * shape.positions, 64}, at::TensorOptions(shape.dtype).device(device))
                        .set_requires_grad(true));
    leaves.push_back(input[0]);
  }
  run.layer(index).forward(input, batch);  // makes the rotary table, which all layers share
  CountingAllocator counter(device.type());
  Bytes bytes;
  {
    strata::LayerOutput output = run.layer(index).forward(input, batch);
    bytes.forward_most = counter.most;
    const bool is_loss = output.loss_sum.defined();
    const at::Tensor result = is_loss ? output.loss_sum : output.activations[0];
    bytes.kept = counter.now - static_cast<std::int64_t>(result.nbytes());
    const at::Tensor seed = at::ones_like(result.detach());
    counter.most = counter.now;
    torch::autograd::backward({result}, {seed}, false, false, leaves);
    bytes.backward_most = counter.most;
  }
  bytes.left = counter.now;
  return bytes;
}

}  // namespace

TEST_CASE("layers keep on meta tensors what they keep on the CPU") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const bool parallel : {true, false}) {
      for (const std::int64_t positions : {16, 100}) {  // few rows: the head keeps logits; many: the weight's gradient
        const Shape shape{3, positions, dtype, parallel, parallel ? 0 : 32};
        const Plugin model = model_of(shape);
        for (std::size_t layer = 0; layer < 3; ++layer) {
          const Bytes cpu = measure(*model, layer, shape, at::kCPU), meta = measure(*model, layer, shape, at::kMeta);
          CAPTURE(c10::toString(dtype), parallel, positions, layer);
          CHECK(meta.kept == cpu.kept);
          CHECK(meta.left == cpu.left);  // the gradient of the input
          if (dtype == at::kFloat) {     // in half precision the CPU's matmuls also take scratch memory
            CHECK(meta.forward_most == cpu.forward_most);
            // In backward the CPU's operators hold at most one number of each row and head more: 4640 bytes of 4800.
            constexpr std::int64_t heads = 4, bytes = 4;
            CHECK(cpu.backward_most - meta.backward_most >= 0);
            CHECK(cpu.backward_most - meta.backward_most <= shape.samples * shape.positions * heads * bytes);
          }
          const strata::LayerInfo info = model->describe(static_cast<int>(layer), {3, positions, dtype});
          CHECK(info.activation_bytes == cpu.kept);
        }
      }
    }
  }
}

TEST_CASE("an MLP by chunks keeps its inner activations for one chunk only") {
  const Shape whole{3, 100, at::kFloat}, chunked{3, 100, at::kFloat, true, 32};
  const Bytes all = measure(*model_of(whole), 1, whole, at::kCPU);
  const Bytes one = measure(*model_of(chunked), 1, chunked, at::kCPU);
  constexpr std::int64_t inner = 2 * 256 * 4;  // bytes of a row, before and after the GELU
  CHECK(all.kept - one.kept == 300 * inner);
  // In backward the whole has its kept ones and the gradient of one more; a chunk makes that for its own rows, and the
  // result and its gradient are two tensors of [rows, hidden].
  CHECK(all.backward_most - one.backward_most > (300 - 2 * 32) * inner);
}
