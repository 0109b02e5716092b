#include <strata/own_exchange.hpp>

namespace strata {

ExchangingOptimizer::~ExchangingOptimizer() = default;
OwnExchange::~OwnExchange() = default;

}  // namespace strata
