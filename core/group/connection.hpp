// The c10d parts that this folder's files share: the store's connection and the text of libtorch's errors.
#pragma once
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "group/run_store.hpp"

namespace strata::runtime {

struct RunStore::Connection {
  c10::intrusive_ptr<c10d::Store> store;
};

// The first line of the error's text, without libtorch's stack trace.
inline std::string reason(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace strata::runtime
