// Values by name that a plugin writes into a checkpoint and reads back. Names are local to the plugin and unique within
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

// Values may differ between ranks, names may not. Throws Bug if a name is written twice.
class STRATA_EXPORT StateWriter {
 public:
  virtual ~StateWriter();
  virtual void integer(std::string_view name, std::int64_t value) = 0;
  virtual void number(std::string_view name, double value) = 0;  // stored exactly, including NaN
  virtual void text(std::string_view name, std::string_view value) = 0;
  virtual void bytes(std::string_view name, std::span<const std::byte> value) = 0;
  // Of this rank alone, such as errors of what it sent: a run on other ranks or stages does not get them, and
  // StateReader::contains says so. All other values must then be equal on all ranks.
  virtual void rank_bytes(std::string_view name, std::span<const std::byte> value) = 0;
};

// Throws UserError naming the checkpoint, the plugin and the value if a value is missing or has another type.
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
