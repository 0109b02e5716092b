#include <strata/error.hpp>
#include <strata/scheduler.hpp>

#include <charconv>

namespace strata {

Scheduler::~Scheduler() = default;
int Scheduler::chunks_per_stage(int /*stages*/, int /*layers*/) const {
  return 1;
}
std::optional<int> Scheduler::peak_live(const PipelineShape& /*shape*/, int /*stage*/) const {
  return std::nullopt;
}

std::int64_t PipelineShape::cost_of(ComputeKind kind, int chunk) const {
  if (kind == ComputeKind::Update) return 0;
  const bool whole = kind == ComputeKind::Backward;
  if (chunk_costs.empty()) return whole ? 2 : 1;
  const LayerCost& cost = chunk_costs.at(static_cast<std::size_t>(chunk));
  if (kind == ComputeKind::Forward) return cost.forward_time;
  return (whole || kind == ComputeKind::BackwardInput ? cost.backward_input_time : 0) +
         (whole || kind == ComputeKind::BackwardWeight ? cost.backward_weight_time : 0);
}

namespace {

constexpr std::string_view kind_letters = "FBIWU";  // in the order of ComputeKind

// Reads a number without sign from the front of `text` and drops it. False when there is none or it does not fit.
bool take_number(std::string_view& text, int& number) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return failure == std::errc();
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string to_string(const ComputeAction& action) {
  std::string text(1, kind_letters.at(static_cast<std::size_t>(action.kind)));
  text += format("{}.{}", action.chunk, action.micro_batch);
  if (action.weight_version != 0) text += format("@{}", action.weight_version);
  return text;
}

ComputeAction parse_compute_action(std::string_view text) {
  ComputeAction action;
  std::string_view rest = text;
  const auto kind = rest.empty() ? std::string_view::npos : kind_letters.find(rest.front());
  bool legal = kind != std::string_view::npos;
  if (legal) {
    action.kind = static_cast<ComputeKind>(kind);
    rest.remove_prefix(1);
    legal = take_number(rest, action.chunk) && take(rest, '.') && take_number(rest, action.micro_batch);
    if (legal && take(rest, '@')) legal = take_number(rest, action.weight_version);
  }
  if (!legal || !rest.empty()) {
    throw UserError(
        "'{}' is no compute action: write F, B, I, W or U, the chunk, a dot and the micro-batch, as in F0.2, and @ "
        "with the number of updates that its weights include, as in F0.2@1",
        text);
  }
  return action;
}

std::vector<ComputeAction> parse_compute_order(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  std::vector<ComputeAction> order;
  while (true) {
    const auto begin = text.find_first_not_of(blanks);
    if (begin == std::string_view::npos) return order;
    text.remove_prefix(begin);
    const auto length = std::min(text.find_first_of(blanks), text.size());
    order.push_back(parse_compute_action(text.substr(0, length)));
    text.remove_prefix(length);
  }
}

}  // namespace strata
