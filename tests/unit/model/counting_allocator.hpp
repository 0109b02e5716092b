#pragma once
#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

// Counts what libtorch allocates on one device type while it lives: now and at most. One at a time for each device
// type.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::DeviceType device) : device_(device), inner_(c10::GetAllocator(device)) {
    current = this;
    c10::SetAllocator(device_, this, 255);
  }
  ~CountingAllocator() override {
    c10::SetAllocator(device_, inner_, 255);
    current = nullptr;
  }
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;

  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr data = inner_->allocate(bytes);
    if (bytes == 0) return data;
    const c10::Device device = data.device();
    auto* block = new Block{std::move(data), static_cast<std::int64_t>(bytes)};
    const std::lock_guard lock(mutex);  // operators allocate from their threads too
    now += block->bytes;
    most = std::max(most, now);
    void* memory = block->data.get();
    if (memory == nullptr) return {nullptr, block, &release_block, device};
    blocks[memory] = block;
    return {memory, memory, &release, device};  // libtorch wants memory and context equal
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    default_copy_data(target, source, count);
  }

  std::int64_t now = 0;
  std::int64_t most = 0;

 private:
  struct Block {
    c10::DataPtr data;
    std::int64_t bytes;
  };
  // Blocks may outlive the counter.
  static void release_block(void* pointer) {
    auto* block = static_cast<Block*>(pointer);
    {
      const std::lock_guard lock(mutex);
      if (current != nullptr) current->now -= block->bytes;
    }
    delete block;
  }
  static void release(void* memory) {
    Block* block = nullptr;
    {
      const std::lock_guard lock(mutex);
      const auto found = blocks.find(memory);
      if (found != blocks.end()) {
        block = found->second;
        blocks.erase(found);
      }
    }
    if (block == nullptr) return current->inner_->raw_deleter()(memory);  // older than the counter
    release_block(block);
  }
  static inline std::mutex mutex;
  static inline std::map<void*, Block*> blocks;
  static inline CountingAllocator* current = nullptr;
  c10::DeviceType device_;
  c10::Allocator* inner_;
};
