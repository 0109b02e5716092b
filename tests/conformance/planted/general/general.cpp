// A scheduler of one stage with options and state, and the mistakes that plugins of every kind can make.
#include <fcntl.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/state_stream.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define PLANTED_OPTIONS(OPTION)                                       \
  OPTION(integer, depth, 2, "min=0,max=64", "layers", "Of nothing.")  \
  OPTION(integers, cuts, "[1, 2]", "min=0,max=9", "", "Two numbers.") \
  OPTION(text, mode, "plain", "one_of=plain|fancy", "", "Of nothing either.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

class PlantedPlugin final : public Scheduler {
 public:
  PlantedPlugin(PluginContext& context, const PlantedOptions& options) {
    check(options);
    misbehave();
    count_ = options.depth + context.rank();
    if (has("memory_kept")) kept = new std::string(40, 'x');
    if (has("files_kept_open")) ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    thread_ = std::thread([this] {
      while (!ends_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  ~PlantedPlugin() override { say_goodbye(); }

  void shutdown() override {
    if (has("thread_left")) {
      thread_.detach();
      return;
    }
    ends_ = true;
    thread_.join();
    if (has("shutdown_throws")) throw EnvironmentError("could not say goodbye");
  }

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    if (shape.chunks() != 1 || layers.empty()) throw UserError("one stage, one chunk, one layer at least");
    return {{0}, {{0, static_cast<int>(layers.size())}}};
  }
  std::vector<ComputeAction> order(const PipelineShape& shape, int) const override {
    if (shape.chunks() != 1) throw UserError("one stage, one chunk");
    std::vector<ComputeAction> order;
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      order.push_back({ComputeKind::Forward, 0, micro_batch});
      order.push_back({ComputeKind::Backward, 0, micro_batch});
    }
    return order;
  }

  int state_version() const override { return has("other_state_version") ? 1 : 2; }
  void save(StateWriter& writer) const override {
    if (has("counts_its_saves")) ++count_;
    writer.integer("count", count_);
    if (has("saves_another_name") && loaded_) writer.text("loaded", "yes");
  }
  void load(StateReader& reader, int version) override {
    if (version > state_version() && !has("newer_state_read"))
      throw UserError("state of version " + std::to_string(version) + " is newer than this plugin");
    loaded_ = true;
    if (has("loads_nothing")) {
      reader.integer("count");
      count_ += 1;
      return;
    }
    if (has("missing_value_taken_for_zero") && !reader.contains("count")) return;
    count_ = reader.integer("count");
  }

 private:
  static void check(const PlantedOptions& options) {
    if (has("default_refused") && options.depth == 2) throw UserError("depth is 2; it must be another");
    if (has("greatest_value_crashes") && options.depth == 64) throw Bug("no room for 64 layers");
    if (has("empty_list_read") ? options.cuts.at(1) > 9 : options.cuts.size() != 2)
      throw UserError("cuts are two numbers");
    if (has("foreign_exception") && options.mode == "fancy") throw std::runtime_error("not fancy enough");
  }
  static void say_goodbye() {
    if (has("destructor_throws")) throw std::runtime_error("too late");
  }
  static void misbehave() {
    if (has("prints")) std::printf("made at the wrong place: {]\n");  // what would spoil a report
    if (has("crashes")) std::raise(SIGSEGV);
    if (has("exits")) std::exit(0);
    while (has("hangs")) std::this_thread::sleep_for(std::chrono::seconds(1));
    if (has("crashes_at_exit")) std::atexit([] { std::abort(); });
    if (has("exit_status_changed")) std::atexit([] { ::_exit(9); });
  }

  inline static std::string* kept = nullptr;
  mutable std::int64_t count_ = 0;
  bool loaded_ = false;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace

STRATA_PLUGIN(PlantedPlugin, PlantedOptions, PLANTED_OPTIONS)
