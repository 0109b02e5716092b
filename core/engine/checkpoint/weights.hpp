// Loading weights into a session and exporting them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/hugging_face.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "step/session.hpp"

namespace strata::checkpoint {

// Returns the model's parameters and their names in Hugging Face files; a tied one once, under its first name.
NameMap name_map(const Model& model, const std::vector<LayerInfo>& layers);

// Returns random initial values: see state/initial_values.hpp.
step::ValueSource initial_values(std::uint64_t seed);

// Weights from a Hugging Face folder or from a training checkpoint. [any rank]
class SavedWeights {
 public:
  // Opens `checkpoint`, one or the latest in a folder; if empty, the Hugging Face folder `init`. Throws
  // UserError.
  SavedWeights(const std::string& init, const std::string& checkpoint);

  // Returns the config.json that the model's sizes come from; empty when they come from the config.
  const std::string& model_config() const;
  const std::string& path() const { return path_; }  // path of the folder
  // Returns the source for a session, to be outlived by this. Its check throws UserError for another model's weights.
  stage::ModelSource as_source() const;
  // Returns the fingerprint, see checkpoint/content.hpp. Blocks. Throws EnvironmentError.
  std::uint64_t content() const;
  // Verifies a checkpoint's files, each rank a share. Throws checkpoint::DamagedCheckpoint. [collective]
  void verify(step::Session& session) const;
  // Returns the values. Throws UserError for another model's weights.
  step::ValueSource source(const Model& model, const std::vector<LayerInfo>& layers) const;
  // Checks the values of all ranks, after each has read its own from source(). Throws UserError that names a parameter
  // with NaN or infinity. [collective]
  void check_finite(step::Session& session) const;

 private:
  struct Reader {
    step::ValueSource values;
    std::function<std::string(const std::string&)> origin;  // file or folder of a parameter, and its name there
  };
  Reader reader(const Model& model, const std::vector<LayerInfo>& layers) const;

  std::string path_;
  std::shared_ptr<std::string> not_finite_ = std::make_shared<std::string>();  // name of the first such parameter
  std::shared_ptr<const HuggingFaceFolder> folder_;
  std::shared_ptr<const TrainingCheckpoint> checkpoint_;  // one of folder_ and checkpoint_ is set
};

// Returns the type of exported weights: float32, bfloat16, float16, or source, the type in `model_config`, the source
// folder's config.json. Throws UserError if that names none of them.
at::ScalarType export_type(const std::string& name, const std::string& model_config);

// Starts an export of the model's weights, in type `dtype`, without values. Copies the other files of `source`, and
// warns of lost ones. Throws UserError.
std::unique_ptr<HuggingFaceExporter> weights_folder(const std::string& folder, const Model& model, const NameMap& names,
                                                    at::ScalarType dtype, const SourceFolder& source);

// Checks that export_weights() can write this model to the folder. Throws UserError and EnvironmentError, on all ranks.
// [collective] over the run
void try_export(step::Session& session, const Model& model, const std::string& folder, at::ScalarType dtype);

// Writes the master weights as a folder that Hugging Face libraries open. Rank after rank sends its slices to rank 0,
// which writes ranges as they arrive: no rank holds the model. Throws UserError that names a tensor with NaN or
// infinity, and then leaves no files. [collective] over the run; blocks the host.
void export_weights(step::Session& session, const Model& model, const std::string& folder, at::ScalarType dtype,
                    const SourceFolder& source);

}  // namespace strata::checkpoint
