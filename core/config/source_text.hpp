// The bytes of one config file and the way between offsets in it and places. Used by the readers only.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "config/tree.hpp"

namespace strata::config {

class SourceText {
 public:
  // Throws UserError when the bytes are no UTF-8 text (control characters count as none) or more than a config can be.
  SourceText(std::string_view bytes, std::string name);

  const std::string& text() const { return text_; }
  const std::string& name() const { return name_; }
  bool blank() const;  // nothing but white space

  // Columns count characters, not bytes.
  Place place(std::size_t offset) const;
  Place place(int line, int column) const { return {name_, line, column}; }
  std::size_t offset(int line, int column) const;

  // "train.yaml:12" without the folders.
  std::string origin(const Place& place) const;

 private:
  void check_characters() const;

  std::string text_;
  std::string name_;
  std::vector<std::size_t> line_starts_{0};
};

}  // namespace strata::config
