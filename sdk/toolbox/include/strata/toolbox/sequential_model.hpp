#pragma once
#include <strata/model.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace strata {

// A model that is a plain list of layers:
//
//   model.add<Embedding>("embedding", vocabulary, width);   // makes Embedding(context, vocabulary, width)
//   model.add<Head>("head", width, vocabulary);
//
// A layer class derives from Layer. Its constructor takes a ModelContext& and the remaining arguments, allocates
// nothing, and sets names, shapes and initializers of its parameters. Their names in the model are "LAYER.PARAMETER".
// The model finds shapes, costs and statistics by running the layers on meta tensors: layers must support those, and
// their outputs must have the dtype context.batch().activation or an integer dtype.
class SequentialModel : public Model {
 public:
  // Makes a model without layers. Token ids are below `vocabulary`.
  explicit SequentialModel(std::int64_t vocabulary);
  ~SequentialModel() override;

  // Appends a layer. The arguments are copied, because layers may be created several times. Throws UserError if the
  // name is empty or taken.
  template <class L, class... Arguments>
  void add(const std::string& name, Arguments... arguments) {
    add_layer(name, [held = std::make_tuple(std::move(arguments)...)](ModelContext& context) -> std::unique_ptr<Layer> {
      return std::apply([&context](const auto&... values) { return std::make_unique<L>(context, values...); }, held);
    });
  }
  using MakeLayer = std::function<std::unique_ptr<Layer>(ModelContext& context)>;
  void add_layer(const std::string& name, MakeLayer make);

  void configure(const std::string& config_json) override;  // ignores it
  int layers() const override { return static_cast<int>(layers_.size()); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t maximum_sequence_length() const override;  // no limit
  LayerInfo describe(int layer, const BatchShape& batch) const override;
  std::unique_ptr<Layer> build(int layer, ModelContext& context) const override;
  CheckpointNames checkpoint_names() const override;  // names of the parameters, unchanged
  std::string hugging_face_config(at::ScalarType dtype) const override;

 private:
  struct Named {
    std::string name;
    MakeLayer make;
  };
  struct Description;  // sizes and costs of all layers for one batch shape
  std::unique_ptr<Description> describe_all(const BatchShape& batch) const;

  std::int64_t vocabulary_;
  std::vector<Named> layers_;
  mutable std::unique_ptr<Description> description_;
};

}  // namespace strata
