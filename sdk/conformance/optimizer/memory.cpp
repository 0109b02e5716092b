#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <set>

#include "optimizer/checks.hpp"
#include "optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

constexpr std::byte mark{0xA5};
constexpr std::size_t margin = 256;  // bytes on each side

// A copy of a tensor in memory with marked bytes on both sides.
class Guarded {
 public:
  // Its first element lies `shift` elements behind a boundary of 64 bytes.
  Guarded(std::string name, const at::Tensor& values, std::size_t shift)
      : name_(std::move(name)), bytes_(values.nbytes()) {
    memory_ = std::make_shared<std::vector<std::byte>>(bytes_ + 2 * margin, mark);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_->data());
    begin_ = 64 - address % 64 + shift * values.element_size();
    if (bytes_ > 0) std::memcpy(memory_->data() + begin_, values.const_data_ptr(), bytes_);
    tensor_ = at::from_blob(memory_->data() + begin_, values.sizes(), values.options());
  }
  const at::Tensor& tensor() const { return tensor_; }
  void check(const std::string& what) const {
    for (std::size_t i = 0; i < memory_->size(); ++i) {
      if ((i >= begin_ && i < begin_ + bytes_) || (*memory_)[i] == mark) continue;
      const std::size_t distance = i < begin_ ? begin_ - i : i - begin_ - bytes_ + 1;
      throw Failure(what + ": byte " + std::to_string(distance) + (i < begin_ ? " before the " : " behind the ") +
                    name_ + " was written; that memory belongs to other pieces");
    }
  }

 private:
  std::string name_;
  std::size_t bytes_;
  std::size_t begin_ = 0;
  std::shared_ptr<std::vector<std::byte>> memory_;
  at::Tensor tensor_;
};

void check_one(Optimizer& optimizer, std::int64_t elements, const Formats& formats, std::mt19937_64& random) {
  const ParameterTensors values = make_parameter(optimizer, "layer.weight", {elements}, formats, random);
  const std::string what = "a step of " + std::to_string(elements) + " elements";
  std::vector<Guarded> guards;
  const auto guard = [&](const std::string& name, const at::Tensor& tensor) {
    return guards.emplace_back(name, tensor, random() % 8).tensor();
  };
  Piece piece = values.whole();
  piece.master = guard("master", values.master);
  piece.gradient = guard("gradient", values.gradient);
  if (values.copy.defined()) piece.parameter = guard("parameter", values.copy);
  for (std::size_t i = 0; i < piece.state.size(); ++i)
    piece.state[i] = guard("state tensor " + std::to_string(i), values.state[i]);
  const at::Tensor gradient = piece.gradient;
  fakes::update(optimizer, piece, scalars_of(0.01, 0, 0.5));
  for (const Guarded& one : guards) one.check(what);
  require(std::memcmp(gradient.const_data_ptr(), values.gradient.const_data_ptr(), gradient.nbytes()) == 0,
          what +
              ": the gradient was written; step() may write only master, parameter and state, the gradient is the "
              "partitioner's");
  const PieceInfo& info = piece.info;
  require(info.parameter == "layer.weight" && info.begin == 0 && info.end == elements && info.shape == values.shape,
          what + ": piece.info was changed; the engine passes the same piece to every step");
}

}  // namespace

void state_is_per_element(Subject& subject) {
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      for (const std::vector<std::int64_t>& shape : tried_shapes()) {
        PieceInfo info = info_of("layer.weight", shape);
        const std::vector<StateTensor> whole = optimizer.state(info);
        std::set<std::string> names;
        for (const StateTensor& state : whole) {
          require(!state.name.empty() && names.insert(state.name).second,
                  "state() names '" + state.name + "' twice or not at all (options: " + to_string(options) +
                      "); state tensors need unique names, which checkpoints use");
          require(c10::isFloatingType(state.dtype) || c10::isIntegralType(state.dtype, false),
                  "state '" + state.name + "' has no valid number format");
          const std::int64_t unit = optimizer.unit(info);
          require(state.block >= 1 && (unit % state.block == 0 || unit >= info.end),
                  "state '" + state.name + "' has one element for " + std::to_string(state.block) + ", and unit() is " +
                      std::to_string(unit) + " (options: " + to_string(options) +
                      "); a cut within a block would leave its element to two ranks");
        }
        info.begin = info.end / 2;
        info.end = info.begin + 32;
        const std::vector<StateTensor> part = optimizer.state(info);
        const bool same = std::equal(
            whole.begin(), whole.end(), part.begin(), part.end(), [](const StateTensor& a, const StateTensor& b) {
              return a.name == b.name && a.dtype == b.dtype && a.whole == b.whole && a.block == b.block;
            });
        require(same, "state() differs between all of a parameter of " + std::to_string(2 * info.begin) +
                          " elements and 32 of them (options: " + to_string(options) +
                          "); a resumed run may cut the parameter elsewhere, and reads state tensors by name");
      }
    });
  }
}

void writes_in_place(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.writes_in_place");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      const ParameterTensors given =
          make_parameter(optimizer, "layer.weight", {24, 16}, {.copy = at::kBFloat16}, random);
      const ParameterTensors before = given.clone();
      Piece piece = given.whole();
      for (int t = 0; t < 3; ++t) fakes::update(optimizer, piece, scalars_of(0.01, t));
      const Piece now = given.whole();
      bool kept = piece.master.const_data_ptr() == now.master.const_data_ptr() &&
                  piece.parameter.const_data_ptr() == now.parameter.const_data_ptr() &&
                  piece.state.size() == now.state.size();
      for (std::size_t i = 0; kept && i < now.state.size(); ++i)
        kept = piece.state[i].const_data_ptr() == now.state[i].const_data_ptr() &&
               piece.state[i].numel() == now.state[i].numel();
      require(kept, "step() replaced tensors of the piece (options: " + to_string(options) +
                        "); the engine owns master, parameter and state: write into them with copy_ or data pointers");
      require(std::memcmp(given.copy.const_data_ptr(), before.copy.const_data_ptr(), given.copy.nbytes()) != 0,
              "three steps with gradients of about 1 did not change the given parameter "
              "(options: " +
                  to_string(options) + "); write the rounded master into it");
    });
  }
  with_optimizer(subject, {}, [&](Optimizer& optimizer) {
    const ParameterTensors given = make_parameter(optimizer, "layer.weight", {24, 16}, {}, random);
    const ParameterTensors before = given.clone();
    Piece piece = given.whole();
    for (int t = 0; t < 3; ++t) fakes::update(optimizer, piece, scalars_of(0.1, t));
    require(std::memcmp(given.master.const_data_ptr(), before.master.const_data_ptr(), given.master.nbytes()) != 0,
            "three steps with a learning rate of 0.1 and gradients of about 1 did not change the given master");
  });
}

void touches_only_its_piece(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.touches_only_its_piece");
  const auto drawn = static_cast<std::int64_t>(random() % 5000);
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      for (const std::int64_t elements :
           {std::int64_t{1}, std::int64_t{7}, std::int64_t{63}, std::int64_t{2049}, 2 + drawn}) {
        check_one(optimizer, elements, {}, random);
        check_one(optimizer, elements, {at::kFloat, at::kBFloat16, at::kBFloat16}, random);
        check_one(optimizer, elements, {at::kFloat, at::kHalf, at::kHalf}, random);
      }
    });
  }
}

}  // namespace strata::conformance::optimizer_checks
