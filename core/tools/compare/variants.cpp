#include "tools/compare/variants.hpp"

#include <algorithm>
#include <filesystem>
#include <regex>

namespace strata::compare {
namespace {

// Parts at `separator`, but not inside quotes or brackets; empty parts stay.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  int depth = 0;
  char quote = '\0';
  for (const char letter : text) {
    if (quote != '\0') {
      if (letter == quote) quote = '\0';
    } else if (letter == '"' || letter == '\'') {
      quote = letter;
    } else if (letter == '[' || letter == '{') {
      ++depth;
    } else if (letter == ']' || letter == '}') {
      --depth;
    } else if (letter == separator && depth == 0) {
      parts.emplace_back();
      continue;
    }
    parts.back() += letter;
  }
  return parts;
}

// The last `folders` folders of an absolute path and its file.
std::string end_of_path(const std::filesystem::path& path, int folders) {
  std::string name = path.filename().string();
  static const std::regex library(R"(lib(?:strata_[a-z]+_)?(.+)\.so)");
  if (std::smatch match; std::regex_match(name, match, library)) name = match[1];
  std::filesystem::path folder = path.parent_path();
  for (int i = 0; i < folders && folder.has_filename(); ++i, folder = folder.parent_path())
    name = folder.filename().string() + "/" + name;
  return name;
}

// A variant's name, in which every word or value that is an absolute path ends so.
std::string shortened(const std::string& name, int folders) {
  std::string text;
  for (const std::string& word : split(name, ' ')) {
    const std::size_t equals = word.find('=');
    const std::size_t begin = equals == std::string::npos ? 0 : equals + 1;
    const std::string value = word.substr(begin);
    text += (text.empty() ? "" : " ") + word.substr(0, begin) +
            (value.starts_with('/') ? end_of_path(value, folders) : value);
  }
  return text;
}

bool is_setting(const std::string& text) {
  const std::size_t equals = text.find('=');
  return equals != std::string::npos && equals > 0 && equals + 1 < text.size();
}

void refuse_steps(const std::string& source, const std::string& setting) {
  if (setting.starts_with("train.steps="))
    throw UserError("{}: {} has no effect: strata compare chooses the number of steps; give --steps", source,
                    config::shown(setting));
}

}  // namespace

std::vector<std::string> split_settings(const std::string& text, const std::string& source) {
  std::vector<std::string> settings = split(text, ' ');
  std::erase(settings, "");
  for (const std::string& setting : settings) {
    refuse_steps(source, setting);
    if (!is_setting(setting))
      throw UserError("{}: {}: KEY=VALUE is expected, as in \"parallel.pipeline=2 scheduler.plugin=1f1b\"", source,
                      config::shown(setting));
  }
  if (settings.empty())
    throw UserError("{}: settings are expected, as in \"parallel.pipeline=2 scheduler.plugin=1f1b\"", source);
  return settings;
}

std::vector<Variant> vary(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::vector<std::string> values =
      equals == std::string::npos ? std::vector<std::string>{} : split(text.substr(equals + 1), ',');
  if (equals == 0 || values.size() < 2 || std::find(values.begin(), values.end(), "") != values.end())
    throw UserError(
        "--vary {}: KEY=A,B is expected, with two or more values to compare, such as partitioner.plugin=A,B", text);
  refuse_steps("--vary", text);
  std::vector<Variant> variants;
  for (const std::string& value : values) {
    const std::string setting = text.substr(0, equals + 1) + value;
    variants.push_back({setting, {setting}});
  }
  return variants;
}

std::vector<Variant> read_variants(const config::Node& list) {
  if (list.kind != config::NodeKind::Sequence)
    throw UserError(list.place,
                    "compare: a list of settings is expected, one text a variant, as in [\"train.accumulation=1\", "
                    "\"train.accumulation=2\"]");
  std::vector<Variant> variants;
  for (const config::Node& item : list.items) {
    if (item.kind != config::NodeKind::Scalar)
      throw UserError(
          item.place,
          "compare: settings in one text are expected, as in \"parallel.pipeline=2 scheduler.plugin=1f1b\"");
    try {
      variants.push_back({item.text, split_settings(item.text, "compare")});
    } catch (const UserError& error) {
      throw UserError(item.place, error.what());
    }
  }
  if (variants.size() == 1)
    throw UserError(list.place, "compare: there is only one variant; give two or more, or none");
  return variants;
}

std::vector<std::string> short_names(const std::vector<std::string>& names) {
  constexpr int most_folders = 8;
  std::vector<std::string> result = names;
  for (std::size_t i = 0; i < names.size(); ++i)
    for (int folders = 0; folders <= most_folders; ++folders) {
      const std::string tried = shortened(names[i], folders);
      const bool taken = std::ranges::any_of(
          names, [&](const std::string& other) { return other != names[i] && shortened(other, folders) == tried; });
      if (taken) continue;
      result[i] = tried;
      break;
    }
  return result;
}

std::vector<Variant> every_combination(const std::vector<std::vector<Variant>>& lists) {
  std::vector<Variant> all{{}};
  for (const std::vector<Variant>& list : lists) {
    if (list.empty()) continue;
    std::vector<Variant> product;
    for (const Variant& left : all)
      for (const Variant& right : list) {
        Variant both = left;
        both.name += (both.name.empty() ? "" : " ") + right.name;
        both.settings.insert(both.settings.end(), right.settings.begin(), right.settings.end());
        product.push_back(std::move(both));
      }
    all = std::move(product);
  }
  return all;
}

}  // namespace strata::compare
