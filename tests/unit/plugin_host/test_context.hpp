#pragma once
#include <strata/error.hpp>
#include <strata/plugin_context.hpp>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "plugin_host/search_path.hpp"

using Folders = std::vector<strata::plugin_host::SearchFolder>;

// A context that keeps what the plugin logs, in a list that several contexts may share.
class TestContext : public strata::PluginContext {
 public:
  explicit TestContext(strata::OptionValues options, std::string name = "scheduler/little",
                       std::vector<std::string>* log = nullptr)
      : options_(std::move(options)), name_(std::move(name)), log_(log) {}
  const std::string& plugin_name() const override { return name_; }
  const strata::OptionValues& options() const override { return options_; }
  int rank() const override { return 0; }
  const strata::MeshShape& mesh() const override { return mesh_; }
  void log(strata::LogLevel /*level*/, const std::string& text) override {
    if (log_ != nullptr) log_->push_back(name_ + " " + text);
  }
  void set_metric(const std::string& /*name*/, const std::string& /*unit*/, double /*value*/) override {}
  void* extension(const char* /*id*/) override { return nullptr; }

 private:
  strata::OptionValues options_;
  std::string name_;
  std::vector<std::string>* log_;
  strata::MeshShape mesh_;
};

// A folder that is gone after the test.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "strata-plugins-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = std::filesystem::canonical(name);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The text of the `Expected` that `call` throws; any other outcome fails the test that compares the text.
template <class Expected, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("(another exception) ") + error.what();
  }
  return "(no exception)";
}
