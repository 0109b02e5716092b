// Named values that a plugin writes into a checkpoint and reads back. Names are local to the plugin and unique within
// one save; they can be read in any order. The engine itself saves the run's tensors (parameters, optimizer state).
#pragma once
#include <strata/export.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// Writer of named values. Values may differ between ranks, names may not. Throws Bug if a name is written twice.
class STRATA_EXPORT StateWriter {
 public:
  virtual ~StateWriter();
  virtual void integer(std::string_view name, std::int64_t value) = 0;
  virtual void number(std::string_view name, double value) = 0;  // stored exactly, including NaN
  virtual void text(std::string_view name, std::string_view value) = 0;
  virtual void bytes(std::string_view name, std::span<const std::byte> value) = 0;
  // Writes bytes of this rank alone, such as compression errors. A run with another number of ranks or stages does not
  // get them: StateReader::contains returns false there. A plugin that uses it must write its other values equal on all
  // ranks.
  virtual void rank_bytes(std::string_view name, std::span<const std::byte> value) = 0;
};

// Reader of named values. Throws UserError naming checkpoint, plugin and value if it is missing or of another type.
class STRATA_EXPORT StateReader {
 public:
  virtual ~StateReader();
  virtual bool contains(std::string_view name) const = 0;
  virtual std::int64_t integer(std::string_view name) const = 0;
  virtual double number(std::string_view name) const = 0;
  virtual std::string text(std::string_view name) const = 0;
  virtual std::vector<std::byte> bytes(std::string_view name) const = 0;  // rank_bytes too
};

}  // namespace strata
