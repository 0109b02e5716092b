#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/toolbox/element_step.hpp>
#include <strata/toolbox/sign_code.hpp>
#include <strata/toolbox/sign_exchange.hpp>
#include <strata/toolbox/tensor_bytes.hpp>

#include <algorithm>
#include <span>

namespace strata::toolbox {

namespace {
constexpr std::int64_t scale_bytes = 4;
constexpr const char* errors_name = "errors";

at::Tensor scale_in(const at::Tensor& message, std::int64_t byte) {
  return message.narrow(0, byte, scale_bytes).view(at::kFloat);
}
}  // namespace

std::int64_t SignExchange::share(std::int64_t elements) const {
  return (elements + 8 * ranks() - 1) / (8 * ranks()) * 8;
}

std::pair<std::int64_t, std::int64_t> SignExchange::share_of(std::int64_t elements, int rank) const {
  return {std::min(elements, rank * share(elements)), std::min(elements, (rank + 1) * share(elements))};
}

void SignExchange::connect(Group& group, RunContext& run, const std::vector<std::vector<PieceInfo>>& pieces) {
  group_ = &group;
  layout_ = std::to_string(group.size());
  std::int64_t largest = 0;
  for (const std::vector<PieceInfo>& call : pieces) {
    std::vector<std::int64_t> sizes;
    for (const PieceInfo& piece : call) {
      const std::int64_t elements = sizes.emplace_back(piece.end - piece.begin);
      const auto [begin, end] = share_of(elements, group.rank());
      const auto zeros = [&](const char* of, std::int64_t count) {
        return run.store().allocate(Category::Optimizer, Tier::Device, piece.parameter + of,
                                    std::max<std::int64_t>(1, count), at::kFloat);
      };
      Errors errors{zeros(", error of its signs", elements), zeros(", error of its mean's signs", end - begin)};
      errors_.emplace(std::pair(piece.parameter, piece.begin), std::move(errors));
      layout_ += format(", {} {}:{}", piece.parameter, piece.begin, piece.end);
    }
    largest = std::max(largest, message_bytes(sizes));
  }
  messages_ = run.store().allocate(Category::Bucket, Tier::Device, "signs",
                                   std::max<std::int64_t>(4, 3 * group.size() * largest), at::kByte);
}

// The scales of all tensors, then a share's signs of each.
std::int64_t SignExchange::message_bytes(const std::vector<std::int64_t>& sizes) const {
  std::int64_t bytes = scale_bytes * static_cast<std::int64_t>(sizes.size());
  for (const std::int64_t elements : sizes) bytes += bit_bytes(share(elements));
  return (bytes + 3) / 4 * 4;
}

void SignExchange::mean(std::vector<Exchanged>& all, const StepScalars& scalars) {
  const int ranks = group_->size(), own = group_->rank();
  std::vector<std::int64_t> sizes;
  for (const Exchanged& one : all) sizes.push_back(one.value.numel());
  const std::int64_t bytes = message_bytes(sizes);
  const at::Tensor sent = messages_.narrow(0, 0, ranks * bytes),
                   received = messages_.narrow(0, ranks * bytes, ranks * bytes),
                   gathered = messages_.narrow(0, 2 * ranks * bytes, ranks * bytes);
  // Tensor i's part of rank r's message in a row of them.
  struct Part {
    at::Tensor scale;
    at::Tensor signs;
    std::int64_t begin, end;
  };
  const auto part = [&](const at::Tensor& messages, int place, std::size_t i, int rank) {
    const at::Tensor message = messages.narrow(0, place * bytes, bytes);
    std::int64_t byte = scale_bytes * static_cast<std::int64_t>(sizes.size());
    for (std::size_t before = 0; before < i; ++before) byte += bit_bytes(share(sizes[before]));
    const auto [begin, end] = share_of(sizes[i], rank);
    return Part{scale_in(message, scale_bytes * static_cast<std::int64_t>(i)),
                message.narrow(0, byte, bit_bytes(end - begin)), begin, end};
  };
  const auto errors_of = [&](const Exchanged& one) -> Errors& {
    return errors_.at(std::pair(one.piece->parameter, one.piece->begin));
  };
  // The error of `x` as signs and a scale.
  const auto loss = [](const at::Tensor& x, const at::Tensor& scale, const at::Tensor& counts) {
    return x.sub(x.ge(0).to(at::kFloat).mul(2.0).sub(1.0).mul(scale)).mul(counts);
  };

  for (std::size_t i = 0; i < all.size(); ++i) {
    const Exchanged& one = all[i];
    const at::Tensor x = one.value.add(errors_of(one).own).mul(one.counts), scale = scale_of(x, one.counts);
    write_applied(errors_of(one).own, loss(x, scale, one.counts), scalars);
    for (int rank = 0; rank < ranks; ++rank) {
      const Part to = part(sent, rank, i, rank);
      to.scale.copy_(scale);
      write_signs(x.narrow(0, to.begin, to.end - to.begin), to.signs);
    }
  }
  group_->all_to_all(received, sent).wait();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Part to = part(gathered, own, i, own);
    const std::int64_t count = to.end - to.begin;
    const at::Tensor counts = all[i].counts.narrow(0, to.begin, count),
                     error = errors_of(all[i]).share.narrow(0, 0, count);
    at::Tensor y = at::zeros({count}, all[i].value.options());
    for (int rank = 0; rank < ranks; ++rank) {
      const Part from = part(received, rank, i, own);
      y.add_(read_signs(from.signs, count).mul(from.scale));
    }
    y = y.div(ranks).add(error).mul(counts);
    to.scale.copy_(scale_of(y, counts));
    write_signs(y, to.signs);
    write_applied(error, loss(y, to.scale, counts), scalars);
  }
  group_->all_gather(gathered, gathered.narrow(0, own * bytes, bytes)).wait();
  for (std::size_t i = 0; i < all.size(); ++i)
    for (int rank = 0; rank < ranks; ++rank) {
      const Part from = part(gathered, rank, i, rank);
      const std::int64_t count = from.end - from.begin;
      all[i]
          .value.narrow(0, from.begin, count)
          .copy_(read_signs(from.signs, count).mul(from.scale).mul(all[i].counts.narrow(0, from.begin, count)));
    }
}

void SignExchange::forget(const PieceInfo& piece) {
  if (!connected()) return;
  Errors& errors = errors_.at(std::pair(piece.parameter, piece.begin));
  errors.own.zero_();
  errors.share.zero_();
}

bool SignExchange::has_saved(const StateReader& reader) const {
  if (!connected() || !reader.contains("errors_layout")) return false;
  return std::ranges::equal(reader.bytes("errors_layout"), std::as_bytes(std::span(layout_)));
}

std::vector<at::Tensor> SignExchange::all_errors() const {
  std::vector<at::Tensor> all;
  for (const auto& [piece, errors] : errors_) all.insert(all.end(), {errors.own, errors.share});
  return all;
}

void SignExchange::save(StateWriter& writer) const {
  if (!connected()) return;
  writer.rank_bytes("errors_layout", std::as_bytes(std::span(layout_)));
  save_tensors(writer, errors_name, all_errors());
}

std::string SignExchange::load(const StateReader& reader) {
  if (!connected()) return "";
  const bool written = reader.contains("errors_layout");
  if (!written || !has_saved(reader))
    return std::string("error feedback of sign compression starts from zero: ") +
           (written ? "the checkpoint was saved with other parameters"
                    : "the checkpoint has none for this rank and number of ranks");
  load_tensors(reader, errors_name, all_errors());
  return "";
}

}  // namespace strata::toolbox
