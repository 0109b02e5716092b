// What a plugin writes into a checkpoint and reads back: values by name. Names are the plugin's own, unique within one
// save; the order of reading is free. Tensors of the run (parameters, optimizer state) are the engine's to save and
// never come through here.
#pragma once
#include <strata/export.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// The values may differ from rank to rank, the names may not. Throws Bug when a name is written twice.
class STRATA_EXPORT StateWriter {
 public:
  virtual ~StateWriter();
  virtual void integer(std::string_view name, std::int64_t value) = 0;
  virtual void number(std::string_view name, double value) = 0;  // kept bit by bit, NaN included
  virtual void text(std::string_view name, std::string_view value) = 0;
  virtual void bytes(std::string_view name, std::span<const std::byte> value) = 0;
};

// Throws UserError naming the checkpoint, the plugin and the value when a value is absent or was written as another
// type.
class STRATA_EXPORT StateReader {
 public:
  virtual ~StateReader();
  virtual bool contains(std::string_view name) const = 0;
  virtual std::int64_t integer(std::string_view name) const = 0;
  virtual double number(std::string_view name) const = 0;
  virtual std::string text(std::string_view name) const = 0;
  virtual std::vector<std::byte> bytes(std::string_view name) const = 0;
};

}  // namespace strata
