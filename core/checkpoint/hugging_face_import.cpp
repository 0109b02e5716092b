#include <ATen/ops/empty.h>
#include <strata/error.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "checkpoint/hugging_face.hpp"
#include "data/file.hpp"
#include "text/first_of.hpp"
#include "text/json.hpp"
#include "text/printable.hpp"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t config_limit = std::size_t{16} << 20;
constexpr std::size_t index_limit = std::size_t{256} << 20;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

HuggingFaceFolder::HuggingFaceFolder(const fs::path& folder) : path_(folder.string()) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UserError(Place{path_}, "is no folder; one with config.json and model.safetensors is wanted here");
  }
  const fs::path config = folder / "config.json";
  if (!is_there(config)) throw UserError(Place{path_}, "holds no config.json, which says what its model is");
  const data::InputFile file(config.string());
  if (file.size() > config_limit) throw UserError(Place{config.string()}, "is too large for a model's configuration");
  config_text_.resize(file.size());
  file.read_at(0, config_text_.data(), config_text_.size());
  text::JsonDocument(config_text_, {config.string()}, {config_limit}).object();

  const fs::path single = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  if (is_there(single)) {
    const auto& opened = files_["model.safetensors"] = std::make_unique<SafetensorsFile>(single.string());
    for (const auto& [name, entry] : opened->tensors()) tensors_[name] = opened.get();
  } else if (is_there(index)) {
    add_shards(folder, index);
  } else {
    const bool pickled = is_there(folder / "pytorch_model.bin") || is_there(folder / "pytorch_model.bin.index.json");
    throw UserError(Place{path_},
                    pickled ? "holds its weights as pytorch_model.bin, which only Python can read; save them again "
                              "with transformers' save_pretrained, which writes model.safetensors"
                            : "holds neither model.safetensors nor model.safetensors.index.json");
  }
}

void HuggingFaceFolder::add_shards(const fs::path& folder, const fs::path& index) {
  const Place place{index.string()};
  const text::JsonDocument parsed = text::read_json(data::InputFile(index.string()), {index_limit});
  const text::JsonValue map = parsed.object()["weight_map"];
  map.check(!map.members().empty(), "it must be the object that names each tensor's file");
  for (const auto& [name, value] : map.members()) {
    const std::string shard = value.text();
    const bool plain = !shard.empty() && shard.find('/') == std::string::npos && shard.find('\0') == std::string::npos;
    value.check(plain, "it must be the name of a file of this folder");
    std::unique_ptr<SafetensorsFile>& opened = files_[shard];
    if (!opened) {
      if (!is_there(folder / shard))
        throw UserError(place, "names the file " + text::one_line(shard) + ", which is not there");
      opened = std::make_unique<SafetensorsFile>((folder / shard).string());
    }
    if (!opened->tensors().contains(name)) {
      throw UserError(place, "places tensor '" + text::one_line(name) + "' in " + text::one_line(shard) +
                                 ", which does not hold it");
    }
    tensors_[name] = opened.get();
  }
}

RangeReader::RangeReader(std::shared_ptr<const HuggingFaceFolder> folder, const NameMap& names)
    : folder_(std::move(folder)) {
  std::vector<std::string> missing, misshapen, unexpected;
  std::set<std::string> known;
  for (const NameMapEntry& entry : names.entries) {
    strata_check(!entry.external.empty(), "NameMap: an entry without an external name");
    known.insert(entry.external.begin(), entry.external.end());
    const auto name = std::find_if(entry.external.begin(), entry.external.end(),
                                   [&](const std::string& external) { return folder_->tensors().contains(external); });
    if (name == entry.external.end()) {
      missing.push_back(entry.external.front() + " " + format_shape(entry.shape));
      continue;
    }
    const SafetensorsFile* file = folder_->tensors().at(*name);
    const TensorEntry& found = file->tensors().at(*name);
    std::vector<std::int64_t> wanted = entry.shape, transposed;
    if (matches_any(*name, names.transposed)) {
      std::reverse(wanted.begin(), wanted.end());
      transposed = wanted;
    }
    if (found.shape != wanted) {
      misshapen.push_back(*name + " is " + format_shape(found.shape) + " and the model's " + format_shape(wanted));
    }
    const bool added = sources_.try_emplace(entry.canonical, Source{file, *name, transposed}).second;
    strata_check(added, "NameMap: two entries of one canonical name");
  }
  for (const auto& [name, file] : folder_->tensors()) {
    if (!known.contains(name) && !matches_any(name, names.ignored)) unexpected.push_back(text::one_line(name));
  }
  constexpr std::size_t shown = 3;
  std::string text;
  if (!misshapen.empty()) text += "; of another shape: " + config::first_of(misshapen, shown);
  if (!missing.empty()) text += "; missing: " + config::first_of(missing, shown);
  if (!unexpected.empty()) text += "; unknown to the model: " + config::first_of(unexpected, shown);
  if (text.empty()) return;
  throw UserError(Place{folder_->path()}, "the weights are not this model's" + text +
                                              "; does the model's config agree with the folder's config.json?");
}

// Flat, as the model has it.
at::Tensor RangeReader::whole(const Source& source) const {
  const std::lock_guard lock(mutex_);
  if (last_.first != source.external) {
    const std::int64_t elements = element_count(source.transposed);
    const at::Tensor file = at::empty({elements}, at::kFloat);
    source.file->read_range(source.external, 0, elements, file);
    last_ = {source.external, file.view(source.transposed).t().contiguous().view(-1)};
  }
  return last_.second;
}

void RangeReader::fill(const std::string& canonical, std::int64_t begin, std::int64_t end,
                       const at::Tensor& destination) const {
  const auto source = sources_.find(canonical);
  if (source == sources_.end()) throw Bug("RangeReader::fill: " + folder_->path() + " has no parameter " + canonical);
  if (source->second.transposed.empty())
    return source->second.file->read_range(source->second.external, begin, end, destination);
  destination.copy_(whole(source->second).narrow(0, begin, end - begin));
}

}  // namespace strata::checkpoint
