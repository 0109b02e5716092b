// Parameters, outputs and costs of a decoder's layers, as Model::describe() returns them.
#pragma once
#include <strata/toolbox/decoder.hpp>

namespace strata {

LayerInfo describe_embedding(const DecoderShape& shape, const BatchShape& batch);
LayerInfo describe_block(const DecoderShape& shape, int number, const BatchShape& batch);
LayerInfo describe_head(const DecoderShape& shape, const BatchShape& batch);

}  // namespace strata
