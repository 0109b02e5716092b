// The parameters of a decoder's layers, in the order in which the layers have them.
#pragma once
#include <strata/toolbox/decoder.hpp>

#include <vector>

namespace strata {

std::vector<ParameterInfo> embedding_parameters(const DecoderShape& shape);
std::vector<ParameterInfo> block_parameters(const DecoderShape& shape, int number);
std::vector<ParameterInfo> head_parameters(const DecoderShape& shape);

}  // namespace strata
