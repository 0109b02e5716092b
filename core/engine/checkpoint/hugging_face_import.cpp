#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
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

// True for a relative path that leads to a place in the folder, or below it.
bool is_within(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos || fs::path(path).is_absolute()) return false;
  const fs::path parts(path);
  return std::all_of(parts.begin(), parts.end(),
                     [](const fs::path& part) { return !part.empty() && part != ".." && part != "."; });
}

}  // namespace

HuggingFaceFolder::HuggingFaceFolder(const fs::path& folder) : path_(folder.string()) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UserError(Place{path_}, "is not a folder; give a folder with config.json and model.safetensors");
  }
  const fs::path config = folder / "config.json";
  if (!is_there(config))
    throw UserError(Place{path_},
                    "has no config.json, which describes the model; give a folder in Hugging Face format");
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
                            : "holds neither model.safetensors nor model.safetensors.index.json; download the weights, "
                              "or name another folder");
  }
}

void HuggingFaceFolder::add_shards(const fs::path& folder, const fs::path& index) {
  const Place place{index.string()};
  const text::JsonDocument parsed = text::read_json(data::InputFile(index.string()), {index_limit});
  const text::JsonValue map = parsed.object()["weight_map"];
  map.check(!map.members().empty(), "it must be the object that names each tensor's file");
  for (const auto& [name, value] : map.members()) {
    const std::string shard = value.text();
    value.check(is_within(shard), "it must be the name of a file of this folder");
    std::unique_ptr<SafetensorsFile>& opened = files_[shard];
    if (!opened) {
      if (!is_there(folder / shard))
        throw UserError(place, "names the file {}, which does not exist", text::one_line(shard));
      opened = std::make_unique<SafetensorsFile>((folder / shard).string());
    }
    if (!opened->tensors().contains(name)) {
      throw UserError(place, "places tensor '{}' in {}, which does not contain it", text::one_line(name),
                      text::one_line(shard));
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
    std::vector<Source> sources;
    for (const std::string& name : entry.external) {
      const auto file = folder_->tensors().find(name);
      if (file == folder_->tensors().end()) continue;
      const TensorEntry& found = file->second->tensors().at(name);
      std::vector<std::int64_t> wanted = entry.shape, transposed;
      if (matches_any(name, names.transposed)) {
        std::reverse(wanted.begin(), wanted.end());
        transposed = wanted;
      }
      if (found.shape != wanted)
        misshapen.push_back(name + " is " + format_shape(found.shape) + " and the model's " + format_shape(wanted));
      sources.push_back({file->second, name, transposed});
    }
    if (sources.empty()) missing.push_back(entry.external.front() + " " + format_shape(entry.shape));
    const bool added = sources_.try_emplace(entry.canonical, std::move(sources)).second;
    strata_check(added, "NameMap: two entries of one canonical name");
  }
  for (const auto& [name, file] : folder_->tensors()) {
    if (!known.contains(name) && !matches_any(name, names.ignored)) unexpected.push_back(text::one_line(name));
  }
  constexpr std::size_t shown = 3;
  std::string text;
  if (!misshapen.empty()) text += "; other shapes: " + text::first_of(misshapen, shown);
  if (!missing.empty()) text += "; missing: " + text::first_of(missing, shown);
  if (!unexpected.empty()) text += "; unknown to the model: " + text::first_of(unexpected, shown);
  if (text.empty()) return;
  throw UserError(
      Place{folder_->path()},
      "the weights do not match this model{}; check that the model's options agree with the folder's config.json",
      text);
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

void RangeReader::read(const Source& source, std::int64_t begin, std::int64_t end,
                       const at::Tensor& destination) const {
  if (source.transposed.empty()) return source.file->read_range(source.external, begin, end, destination);
  destination.copy_(whole(source).narrow(0, begin, end - begin));
}

void RangeReader::fill(const std::string& canonical, std::int64_t begin, std::int64_t end,
                       const at::Tensor& destination) const {
  const auto found = sources_.find(canonical);
  if (found == sources_.end()) throw Bug("RangeReader::fill: {} has no parameter {}", folder_->path(), canonical);
  const std::vector<Source>& sources = found->second;
  read(sources.front(), begin, end, destination);
  for (std::size_t i = 1; i < sources.size(); ++i) {
    const at::Tensor other = at::empty_like(destination);
    read(sources[i], begin, end, other);
    if (at::equal(destination, other)) continue;
    throw UserError(Place{folder_->path()},
                    "holds the tensors '{}' and '{}', which are one parameter of this model, with different values; to "
                    "keep both, set tie_word_embeddings to false in config.json, otherwise remove the wrong one",
                    sources.front().external, sources[i].external);
  }
}

std::string RangeReader::origin(const std::string& canonical) const {
  const Source& first = sources_.at(canonical).front();
  return first.file->path() + ": tensor '" + text::one_line(first.external) + "'";
}

}  // namespace strata::checkpoint
