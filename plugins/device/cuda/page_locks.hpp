// Page-locked memory of the host, by CUDA's run-time library as libtorch has loaded it.
#pragma once
#include <strata/device.hpp>

#include <cstddef>

namespace strata::cuda_device {

struct PageLocks {
  int (*lock)(void*, std::size_t, unsigned) = nullptr;  // cudaHostRegister
  int (*unlock)(void*) = nullptr;                       // cudaHostUnregister
  int (*take_error)() = nullptr;                        // cudaGetLastError

  // `find`: the address of a function of that library; null if it is not there.
  template <class Find>
  explicit PageLocks(const Find& find)
      : lock(reinterpret_cast<decltype(lock)>(find("cudaHostRegister"))),
        unlock(reinterpret_cast<decltype(unlock)>(find("cudaHostUnregister"))),
        take_error(reinterpret_cast<decltype(take_error)>(find("cudaGetLastError"))) {}

  // False where the system does not allow it. CUDA keeps the error of a failed call, and libtorch would take it for
  // that of its next kernel, so it is taken back.
  bool acquire(Span memory) const {
    constexpr unsigned portable = 1;  // cudaHostRegisterPortable: for every CUDA context
    if (lock == nullptr || unlock == nullptr || take_error == nullptr) return false;
    const bool locked = lock(memory.data, memory.bytes, portable) == 0;
    if (!locked) take_error();
    return locked;
  }
  void release(Span memory) const {
    if (unlock != nullptr && unlock(memory.data) != 0) take_error();
  }
};

}  // namespace strata::cuda_device
