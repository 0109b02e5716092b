// The bench's baseline: GPT-NeoX trained by plain libtorch, in the one file that someone who knows libtorch would write
// for it. Whole-graph autograd, the fused operators where there are any, gradients dropped and not zeroed, foreach norm
// and clipping, fused AdamW. It reads the same weights (a Hugging Face folder) and the same tokens as the engine and
// prints one JSON object a step.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using nlohmann::json;

// A file's bytes, mapped; it lives as long as the program.
std::pair<const char*, std::size_t> map_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0 || status.st_size == 0)
    throw std::runtime_error(path + ": cannot be read, or is empty");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (memory == MAP_FAILED) throw std::runtime_error(path + ": cannot be mapped");
  return {static_cast<const char*>(memory), size};
}

// The fp32 tensors of a safetensors file: eight bytes with the header's length, a JSON header, the data.
std::map<std::string, at::Tensor> read_weights(const std::string& path) {
  const auto [bytes, size] = map_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes, sizeof length);
  std::map<std::string, at::Tensor> weights;
  const json header = json::parse(bytes + 8, bytes + 8 + length);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    if (entry.at("dtype") != "F32") throw std::runtime_error(path + ": " + name + " is not F32");
    at::Tensor weight = at::empty(entry.at("shape").get<std::vector<std::int64_t>>());
    const char* const begin = bytes + 8 + length + entry.at("data_offsets").at(0).get<std::size_t>();
    if (begin + weight.nbytes() > bytes + size) throw std::runtime_error(path + ": is cut");
    std::memcpy(weight.data_ptr<float>(), begin, weight.nbytes());
    weights[name] = weight.set_requires_grad(true);
  }
  return weights;
}

struct Norm {
  at::Tensor weight, bias;
  at::Tensor operator()(const at::Tensor& x, double epsilon) const {
    return at::layer_norm(x, weight.sizes(), weight, bias, epsilon);
  }
};

struct Linear {
  at::Tensor weight, bias;
  at::Tensor operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }
};

struct Block {
  Norm input_norm, mlp_norm;
  Linear qkv, dense, up, down;
};

class GptNeox {
 public:
  GptNeox(const std::string& folder, std::int64_t positions) {
    std::ifstream file(folder + "/config.json");
    const json config = json::parse(file);
    if (!config.at("use_parallel_residual") || config.at("tie_word_embeddings"))
      throw std::runtime_error(folder + ": this loop is for parallel residuals and a head of its own");
    heads_ = config.at("num_attention_heads");
    epsilon_ = config.at("layer_norm_eps");
    std::map<std::string, at::Tensor> weights = read_weights(folder + "/model.safetensors");
    for (const auto& [name, weight] : weights) parameters_.push_back(weight);
    const auto norm = [&](const std::string& name) {
      return Norm{weights.at(name + ".weight"), weights.at(name + ".bias")};
    };
    const auto linear = [&](const std::string& name) {
      return Linear{weights.at(name + ".weight"), weights.at(name + ".bias")};
    };
    embedding_ = weights.at("gpt_neox.embed_in.weight");
    for (int i = 0; i < config.at("num_hidden_layers").get<int>(); ++i) {
      const std::string name = "gpt_neox.layers." + std::to_string(i) + ".";
      blocks_.push_back({norm(name + "input_layernorm"), norm(name + "post_attention_layernorm"),
                         linear(name + "attention.query_key_value"), linear(name + "attention.dense"),
                         linear(name + "mlp.dense_h_to_4h"), linear(name + "mlp.dense_4h_to_h")});
    }
    final_norm_ = norm("gpt_neox.final_layer_norm");
    head_ = weights.at("embed_out.weight");
    const std::int64_t head_size = embedding_.size(1) / heads_;
    rotated_ = static_cast<std::int64_t>(static_cast<double>(head_size) * config.at("rotary_pct").get<double>());
    const at::Tensor exponents = at::arange(0, rotated_, 2, at::kFloat) / rotated_;
    const at::Tensor frequencies = at::reciprocal(at::pow(config.at("rotary_emb_base").get<double>(), exponents));
    const at::Tensor angles =
        at::outer(at::arange(positions, at::kFloat), frequencies).view({positions, 1, 1, rotated_ / 2});
    cosine_ = angles.cos();
    sine_ = angles.sin();
  }

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  // The mean loss of tokens and targets, [samples, positions].
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets) const {
    at::Tensor x = at::embedding(embedding_, tokens);
    for (const Block& block : blocks_) {
      const at::Tensor mixed = attention(block, block.input_norm(x, epsilon_));
      x = x + mixed + block.down(at::gelu(block.up(block.mlp_norm(x, epsilon_))));
    }
    const at::Tensor logits = at::linear(final_norm_(x, epsilon_), head_);
    return at::cross_entropy_loss(logits.view({-1, head_.size(0)}), targets.view({-1}));
  }

 private:
  // Queries and keys are rotated in one go: packed is [samples, positions, heads, 3, head size].
  at::Tensor attention(const Block& block, const at::Tensor& x) const {
    const at::Tensor packed = block.qkv(x).view({x.size(0), x.size(1), heads_, 3, -1});
    const std::vector<at::Tensor> parts = packed.split_with_sizes({2, 1}, 3);
    const std::vector<at::Tensor> pieces =
        parts[0].split_with_sizes({rotated_ / 2, rotated_ / 2, packed.size(4) - rotated_}, 4);
    const at::Tensor turned =
        at::cat({pieces[0] * cosine_ - pieces[1] * sine_, pieces[1] * cosine_ + pieces[0] * sine_, pieces[2]}, 4);
    const std::vector<at::Tensor> vectors = turned.transpose(1, 2).unbind(3);
    const at::Tensor mixed =
        at::scaled_dot_product_attention(vectors[0], vectors[1], parts[1].squeeze(3).transpose(1, 2), {}, 0.0,
                                         /*is_causal=*/true);
    return block.dense(mixed.transpose(1, 2).reshape(x.sizes()));
  }

  std::int64_t heads_ = 0, rotated_ = 0;
  double epsilon_ = 0.0;
  std::vector<at::Tensor> parameters_;
  at::Tensor embedding_, head_, cosine_, sine_;
  std::vector<Block> blocks_;
  Norm final_norm_;
};

class AdamW {
 public:
  AdamW(std::vector<at::Tensor> parameters, double learning_rate, double clip)
      : parameters_(std::move(parameters)), learning_rate_(learning_rate), clip_(clip) {
    for (const at::Tensor& parameter : parameters_) {
      first_.push_back(at::zeros_like(parameter));
      second_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}));
    }
  }

  // Clips the gradients by their norm, updates and drops them. Returns that norm.
  at::Tensor step() {
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
    const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)));
    const at::Tensor divisor = ((norm + 1e-6) / clip_).clamp_min(1.0);
    at::_foreach_add_(steps_, 1.0);
    at::_fused_adamw_(parameters_, gradients, first_, second_, {}, steps_, learning_rate_, 0.9, 0.999,
                      /*weight_decay=*/0.01, 1e-8,
                      /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/divisor);
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
    return norm;
  }

 private:
  std::vector<at::Tensor> parameters_, first_, second_, steps_;
  double learning_rate_, clip_;
};

// Sample i is tokens [i * positions, (i + 1) * positions + 1) of a file of u16 tokens; i wraps.
std::pair<at::Tensor, at::Tensor> read_batch(const std::pair<const char*, std::size_t>& file, std::int64_t begin,
                                             std::int64_t samples, std::int64_t positions) {
  const auto* const all = reinterpret_cast<const std::uint16_t*>(file.first);
  const std::int64_t count = (static_cast<std::int64_t>(file.second / 2) - 1) / positions;
  const at::Tensor tokens = at::empty({samples, positions}, at::kLong), targets = at::empty_like(tokens);
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::uint16_t* const sample = all + (begin + i) % count * positions;
    std::copy_n(sample, positions, tokens.data_ptr<std::int64_t>() + i * positions);
    std::copy_n(sample + 1, positions, targets.data_ptr<std::int64_t>() + i * positions);
  }
  return {tokens, targets};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 8) {
    std::fprintf(stderr, "usage: libtorch_loop WEIGHTS_FOLDER TOKENS STEPS MICRO_BATCH SEQ_LEN LEARNING_RATE CLIP\n");
    return 2;
  }
  const auto tokens_file = map_file(argv[2]);
  const std::int64_t steps = std::stoll(argv[3]), samples = std::stoll(argv[4]), positions = std::stoll(argv[5]);
  const GptNeox model(argv[1], positions);
  AdamW optimizer(model.parameters(), std::stod(argv[6]), std::stod(argv[7]));
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const auto [tokens, targets] = read_batch(tokens_file, step * samples, samples, positions);
    const at::Tensor loss = model.loss(tokens, targets);
    loss.backward();
    const at::Tensor norm = optimizer.step();
    const double value = loss.item<double>();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("{\"step\": %lld, \"loss\": %.9g, \"grad_norm\": %.9g, \"step_s\": %.9g}\n",
                static_cast<long long>(step), value, norm.item<double>(), seconds.count());
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "libtorch_loop: %s\n", error.what());
  return 1;
}
