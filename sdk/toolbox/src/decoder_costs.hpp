// Parameters, outputs, statistics and costs of a decoder's layers, as Model::describe() returns them.
#pragma once
#include <strata/toolbox/decoder.hpp>

namespace strata {

inline const StatisticInfo largest_logit_info{"largest_logit", StatisticKind::Maximum};

LayerInfo describe_embedding(const DecoderShape& shape, const BatchShape& batch);
LayerInfo describe_block(const DecoderShape& shape, int number, const BatchShape& batch);
LayerInfo describe_head(const DecoderShape& shape, const BatchShape& batch);

}  // namespace strata
