// Writes results: text as cases end, JUnit's XML or JSON after all have ended.
#pragma once
#include <memory>
#include <ostream>
#include <string>

#include "conformance/runner/check.hpp"

namespace strata::conformance {

class Report {
 public:
  virtual ~Report() = default;
  virtual void begin(const std::string& /*file*/) {}
  virtual void add(const CaseResult& /*result*/) {}
  virtual void end(PluginResult result) { results_.push_back(std::move(result)); }
  // Completes the report after the last plugin.
  virtual void finish(double seconds) = 0;

  int count(bool (*which)(Status)) const;
  const std::vector<PluginResult>& results() const { return results_; }

 private:
  std::vector<PluginResult> results_;
};

// `format`: text, junit or json.
std::unique_ptr<Report> make_report(const std::string& format, std::uint64_t seed, std::ostream& out);

}  // namespace strata::conformance
