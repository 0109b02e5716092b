// A layer of given parameters that computes nothing.
#pragma once
#include <strata/model.hpp>

#include <utility>
#include <vector>

class ListedLayer final : public strata::Layer {
 public:
  explicit ListedLayer(std::vector<strata::ParameterInfo> infos) {
    for (strata::ParameterInfo& info : infos) own_.push_back({std::move(info), {}});
  }
  std::vector<strata::Parameter*> parameters() override {
    std::vector<strata::Parameter*> list;
    for (strata::Parameter& parameter : own_) list.push_back(&parameter);
    return list;
  }
  strata::LayerOutput forward(const strata::Tensors&, const strata::MicroBatch&) override { return {}; }

 private:
  std::vector<strata::Parameter> own_;
};
