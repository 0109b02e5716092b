#include "page_locks.hpp"

#include <string>

#include "catch.hpp"

using strata::Span;
using strata::cuda_device::PageLocks;

namespace {

// CUDA's run-time library, which keeps the error of a failed call until it is taken.
bool allowed = true;
int kept_error = 0;
int fake_lock(void*, std::size_t, unsigned) {
  return allowed ? 0 : kept_error = 1;
}
int fake_unlock(void*) {
  return allowed ? 0 : kept_error = 2;
}
int fake_take_error() {
  const int error = kept_error;
  kept_error = 0;
  return error;
}

void* find(const std::string& function) {
  if (function == "cudaHostRegister") return reinterpret_cast<void*>(&fake_lock);
  if (function == "cudaHostUnregister") return reinterpret_cast<void*>(&fake_unlock);
  if (function == "cudaGetLastError") return reinterpret_cast<void*>(&fake_take_error);
  return nullptr;
}

}  // namespace

TEST_CASE("A page lock that fails leaves no error behind for the next kernel") {
  const PageLocks locks(find);
  char memory[64];
  allowed = GENERATE(true, false);
  kept_error = 0;
  CHECK(locks.acquire({memory, sizeof memory}) == allowed);
  CHECK(kept_error == 0);
  locks.release({memory, sizeof memory});
  CHECK(kept_error == 0);
}

TEST_CASE("Without CUDA's functions nothing is locked") {
  const PageLocks locks([](const char*) { return static_cast<void*>(nullptr); });
  char memory[64];
  CHECK_FALSE(locks.acquire({memory, sizeof memory}));
  locks.release({memory, sizeof memory});
}
