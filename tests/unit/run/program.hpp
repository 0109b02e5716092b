// A program's side of the engine: a config and batches.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <strata/engine.hpp>
#include <strata/error.hpp>

#include <filesystem>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "unit/toolbox/small_model.hpp"

// After libtorch's headers.
#include "catch.hpp"

// A config file, and a token file of 2000 tokens that it may name.
class Config {
 public:
  explicit Config(const std::string& more = "") {
    std::mt19937 draw(3);
    std::string tokens;
    for (int i = 0; i < 2000; ++i) tokens += {static_cast<char>(draw() % vocabulary), '\0'};
    write_file(folder_ / "tokens.bin", tokens);
    write_file(file(),
               "device: cpu\nmodel: {seq_len: 5}\ntrain: {steps: 20, micro_batch: 2, accumulation: 3, log_every: "
               "0}\nlearning_rate: "
               "{base: 0.05}\n" +
                   more);
  }
  std::string file() const { return folder_ / "config.yaml"; }
  std::string tokens() const { return folder_ / "tokens.bin"; }
  std::string data() const { return "data.path=" + tokens(); }
  std::string operator/(const std::string& name) const { return folder_ / name; }

 private:
  TemporaryFolder folder_;
};

// int64 [2, 5]; every `ignored`-th target counts for nothing.
inline strata::Batch random_batch(unsigned seed, int ignored = 0) {
  std::mt19937 draw(seed);
  std::vector<std::int64_t> tokens(10), targets(10);
  for (std::int64_t& token : tokens) token = draw() % vocabulary;
  for (std::int64_t& target : targets) target = draw() % vocabulary;
  for (std::size_t i = 0; ignored > 0 && i < targets.size(); i += static_cast<std::size_t>(ignored)) targets[i] = -100;
  return {at::tensor(tokens, at::TensorOptions().dtype(at::kLong)).view({2, 5}),
          at::tensor(targets, at::TensorOptions().dtype(at::kLong)).view({2, 5})};
}

inline std::vector<strata::Batch> random_batches(unsigned seed, int count = 3) {
  std::vector<strata::Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(random_batch(seed + static_cast<unsigned>(i)));
  return batches;
}

// One step, micro-batch by micro-batch.
inline strata::StepResult step_in_parts(strata::Engine& engine, const std::vector<strata::Batch>& batches) {
  for (const strata::Batch& batch : batches) engine.backward(engine.forward(batch));
  return engine.step();
}

inline void check_equal(const strata::StepResult& a, const strata::StepResult& b) {
  CHECK(a.step == b.step);
  CHECK(a.loss == b.loss);
  CHECK(a.gradient_norm == b.gradient_norm);
  CHECK(a.learning_rate == b.learning_rate);
}

// The text of the UserError that `call` throws, which begins with a line of the test's file.
template <typename Call>
std::string refusal(Call call, const std::source_location& here = std::source_location::current()) {
  const std::string text = error_of(call);
  CHECK_THAT(text, Contains(std::filesystem::path(here.file_name()).filename().string() + ":"));
  return text;
}
