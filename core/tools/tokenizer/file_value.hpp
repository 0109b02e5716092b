#pragma once
#include <strata/error.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace strata::tokenizer {

// A value of a tokenizer.json with its key. `file` and `json` must outlive it.
class Value {
 public:
  using Json = nlohmann::json;

  Value(const std::string& file, std::string key, const Json& json) : file_(file), key_(std::move(key)), json_(json) {}

  const Json& json() const { return json_; }
  const std::string& key() const { return key_; }
  bool is_null() const { return json_.is_null(); }

  // Returns "KEY is VALUE", with the value cut to 160 characters.
  std::string told() const {
    std::string text = json_.dump(-1, ' ', true);
    if (text.size() > 160) {
      text.resize(157);
      text += "...";
    }
    return key_ + " is " + text;
  }
  [[noreturn]] void refuse(const std::string& rule) const { throw UserError(Place{file_}, "{}; {}", told(), rule); }
  void check(bool holds, const std::string& rule) const {
    if (!holds) refuse(rule);
  }

  // Returns the value of a key; null if the key is absent.
  Value operator[](const std::string& name) const {
    check(json_.is_object(), "it must be an object, as in a tokenizer.json of Hugging Face's library");
    const auto found = json_.find(name);
    return {file_, key_.empty() ? name : key_ + "." + name, found == json_.end() ? nothing() : *found};
  }
  std::vector<Value> elements() const {
    check(json_.is_array(), "it must be a list");
    std::vector<Value> all;
    for (std::size_t index = 0; index < json_.size(); ++index) {
      all.emplace_back(file_, key_ + "[" + std::to_string(index) + "]", json_[index]);
    }
    return all;
  }
  std::string text() const {
    check(json_.is_string(), "it must be a string");
    return json_.get<std::string>();
  }
  std::uint32_t id() const {
    check(json_.is_number_unsigned() && json_.get<std::uint64_t>() < INT32_MAX, "it must be a token id");
    return json_.get<std::uint32_t>();
  }
  bool flag(bool missing) const {
    if (is_null()) return missing;
    check(json_.is_boolean(), "it must be true or false");
    return json_.get<bool>();
  }
  std::string type() const { return (*this)["type"].text(); }
  void only(std::initializer_list<std::string> known) const {
    for (const auto& [name, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), name) == known.end())
        (*this)[name].refuse("Strata does not support it");
    }
  }

 private:
  static const Json& nothing() {
    static const Json json;
    return json;
  }
  const std::string& file_;
  std::string key_;
  const Json& json_;
};

}  // namespace strata::tokenizer
