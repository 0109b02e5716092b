// Weights into a session and out of it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/hugging_face.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// The model's parameters and their names in Hugging Face files; a tied parameter stands once, under its first name.
checkpoint::NameMap name_map(const Model& model, const std::vector<LayerInfo>& layers);

// Random initial values: see state/initial_values.hpp.
ValueSource initial_values(std::uint64_t seed);

// Weights from a Hugging Face folder or from a training checkpoint. [any rank]
class SavedWeights {
 public:
  // `checkpoint`: one, or a folder of them, of which the latest; empty: the Hugging Face folder `init`. Throws
  // UserError.
  SavedWeights(const std::string& init, const std::string& checkpoint);

  // The config.json that the model's sizes come from; empty when they come from the config.
  const std::string& model_config() const;
  const std::string& path() const { return path_; }  // of the folder that holds them
  // For a session. The check throws UserError where these are another model's; this must outlive it.
  ModelSource as_source() const;
  // See checkpoint/content.hpp. Blocks. Throws EnvironmentError.
  std::uint64_t content() const;
  // Verifies a checkpoint's files, each rank a share of them. Throws checkpoint::DamagedCheckpoint. [collective]
  void verify(Session& session) const;
  // Throws UserError when they are another model's.
  ValueSource source(const Model& model, const std::vector<LayerInfo>& layers) const;
  // After source() has given this rank's values. Throws UserError that names a parameter with NaN or infinity, of any
  // rank. [collective]
  void check_finite(Session& session) const;

 private:
  struct Reader {
    ValueSource values;
    std::function<std::string(const std::string&)> origin;  // of a parameter: its file or folder, and its name there
  };
  Reader reader(const Model& model, const std::vector<LayerInfo>& layers) const;

  std::string path_;
  std::shared_ptr<std::string> not_finite_ = std::make_shared<std::string>();  // names the first such parameter
  std::shared_ptr<const checkpoint::HuggingFaceFolder> folder_;
  std::shared_ptr<const checkpoint::TrainingCheckpoint> checkpoint_;  // one of the two
};

// The type of exported weights by its name: float32, bfloat16, float16, or source, which is that of the folder whose
// config.json `model_config` is. Throws UserError where this names none of them.
at::ScalarType export_type(const std::string& name, const std::string& model_config);

// A folder for the model's weights, in this type, whose values are still to be written. Takes along what `source` holds
// beside weights, and warns of what is lost. Throws UserError.
std::unique_ptr<checkpoint::HuggingFaceExporter> weights_folder(const std::string& folder, const Model& model,
                                                                const checkpoint::NameMap& names, at::ScalarType dtype,
                                                                const checkpoint::SourceFolder& source);

// Whether export_weights() could write this model to the folder. Throws UserError and EnvironmentError, on all ranks.
// [collective] over the run
void try_export(Session& session, const Model& model, const std::string& folder, at::ScalarType dtype);

// Writes the master weights as a folder that Hugging Face libraries open. Rank after rank sends what it owns to rank 0,
// which writes ranges as they come: no rank holds the model. Throws UserError that names a tensor with NaN or infinity,
// and leaves nothing then. [collective] over the run; blocks the host.
void export_weights(Session& session, const Model& model, const std::string& folder, at::ScalarType dtype,
                    const checkpoint::SourceFolder& source);

}  // namespace strata::runtime
