#include <strata/model.hpp>

namespace strata {

ModelContext::~ModelContext() = default;
Layer::~Layer() = default;
Model::~Model() = default;

}  // namespace strata
