// counted_train CONFIG COUNTS RANKS [a.b=c ...]: trains as `strata train CONFIG --nproc RANKS --set a.b=c ...` does,
// with a counting allocator before libtorch's on the CPU. Every rank writes COUNTS.RANK, one JSON object: the highest
// sum of all tensors' bytes during the steps after the first.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <strata/error.hpp>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "group/launch_place.hpp"
#include "tools/command/leave.hpp"
#include "tools/train/train.hpp"

namespace {

// libtorch's operators free by data pointer as well (raw_deallocate), so sizes are kept beside and not before the
// memory.
class CountingFront final : public c10::Allocator {
 public:
  explicit CountingFront(c10::Allocator* behind) : behind_(behind) { front = this; }

  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr memory = behind_->allocate(bytes);
    void* const data = memory.get();
    if (data == nullptr) return memory;
    strata::strata_check(memory.release_context() == data, "the CPU's allocator frees by data pointer");
    const std::lock_guard lock(mutex_);
    bytes_of_[data] = static_cast<std::int64_t>(bytes);
    now_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_, now_);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

  std::int64_t peak() const { return peak_; }
  void reset_peak() { peak_ = now_; }

 private:
  // Memory from before this stood here is not in the list and is not counted.
  static void release(void* data) {
    {
      const std::lock_guard lock(front->mutex_);
      const auto found = front->bytes_of_.find(data);
      if (found != front->bytes_of_.end()) {
        front->now_ -= found->second;
        front->bytes_of_.erase(found);
      }
    }
    front->behind_->raw_deallocate(data);
  }

  static CountingFront* front;
  c10::Allocator* behind_;
  std::mutex mutex_;
  std::unordered_map<void*, std::int64_t> bytes_of_;
  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};
CountingFront* CountingFront::front = nullptr;

// The peak of the tensors' memory after the first step.
class PeakAfterFirstStep final : public strata::run::TrainingObserver {
 public:
  explicit PeakAfterFirstStep(CountingFront& tensors) : tensors_(tensors) {}
  void after_step(strata::run::Run& /*run*/, const strata::report::StepRecord& record) override {
    if (record.step == 0)
      tensors_.reset_peak();
    else
      peak_ = tensors_.peak();
  }
  std::int64_t peak() const { return peak_; }

 private:
  CountingFront& tensors_;
  std::int64_t peak_ = 0;
};

int train_counted(strata::cli::RunArguments arguments, const std::string& counts, int rank) {
  static CountingFront tensors(c10::GetCPUAllocator());  // until the process ends, as tensors may live that long
  c10::SetCPUAllocator(&tensors);
  PeakAfterFirstStep observer(tensors);
  arguments.observer = &observer;
  const int status = strata::cli::train_command(arguments, std::cout);
  std::ofstream(counts + "." + std::to_string(rank)) << nlohmann::json{{"peak", observer.peak()}} << "\n";
  return status;
}

int run(int argc, char* argv[]) {
  if (argc < 4) {
    std::cerr << "usage: counted_train CONFIG COUNTS RANKS [a.b=c ...]\n";
    return 2;
  }
  strata::cli::RunArguments arguments;
  arguments.config = argv[1];
  arguments.nproc = std::atoi(argv[3]);
  arguments.settings.assign(argv + 4, argv + argc);
  arguments.command_line.assign(argv + 1, argv + argc);
  arguments.report.progress = false;
  arguments.report.summary_file = std::string(argv[2]) + ".summary";
  try {
    const strata::group::LaunchPlace place = strata::group::read_environment();
    return place.launcher == strata::group::Launcher::None ? strata::cli::train_command(arguments, std::cout)
                                                           : train_counted(arguments, argv[2], place.rank);
  } catch (const strata::Error& error) {
    std::cerr << "counted_train: " << error.what() << std::endl;
    return error.exit_status();
  }
}

}  // namespace

int main(int argc, char* argv[]) {
  strata::cli::leave(run(argc, argv));
}
