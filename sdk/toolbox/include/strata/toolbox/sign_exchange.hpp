// Mean over ranks of momenta or gradients sent as signs, with error feedback in both directions (Tang et al.,
// arXiv:2102.02888, and DeepSpeed's NcclBackend.compressed_allreduce):
//
//   every rank:          x = value + own error; sends its scale and signs, rank r's share of them to rank r
//                        own error = x - scale x sign
//   on its own share:    y = mean over ranks of scale x sign + error of the share; sends its scale and signs to all
//                        error of the share = y - scale x sign
//   every rank:          value = scale x sign of every share
//
// Scale: |x| / sqrt(elements) of a tensor, or of a tensor-parallel rank's part, so results depend on the number of
// tensor-parallel ranks, as they do on N. An element that does not count, because it got no gradient while the variance
// was still updated, becomes 0. Bits sent by one of N ranks: twice (N-1)/N per element, and 32 per tensor, share and
// rank.
#pragma once
#include <strata/group.hpp>
#include <strata/optimizer.hpp>
#include <strata/run_context.hpp>
#include <strata/state_stream.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace strata::toolbox {

// A tensor of an exchange, which replaces it by the mean over ranks.
struct Exchanged {
  const PieceInfo* piece = nullptr;
  at::Tensor value;   // fp32, value of this rank
  at::Tensor counts;  // 1 or 0, fp32, equal on all ranks
};

class SignExchange {
 public:
  // Connects and allocates as ExchangingOptimizer::connect.
  void connect(Group& group, RunContext& run, const std::vector<std::vector<PieceInfo>>& pieces);
  bool connected() const { return group_ != nullptr; }
  int ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  Group& group() const { return *group_; }  // requires connected()

  // Computes the means of one call's pieces. Errors change only if scalars.apply is not 0. [collective]
  void mean(std::vector<Exchanged>& all, const StepScalars& scalars);
  // Resets the errors of a piece to zeros, for another quantity exchanged from here on.
  void forget(const PieceInfo& piece);

  // True if a checkpoint's values of this rank belong to the same pieces and ranks; only then load() reads them.
  bool has_saved(const StateReader& reader) const;
  void save(StateWriter& writer) const;
  // Loads the errors. Returns text to log: why errors begin with zeros.
  std::string load(const StateReader& reader);

 private:
  struct Errors {
    at::Tensor own;    // [elements]
    at::Tensor share;  // [elements of this rank's share]
  };
  std::int64_t message_bytes(const std::vector<std::int64_t>& sizes) const;
  std::int64_t share(std::int64_t elements) const;  // multiple of 8; the last shares may be shorter or empty
  std::pair<std::int64_t, std::int64_t> share_of(std::int64_t elements, int rank) const;
  std::vector<at::Tensor> all_errors() const;

  Group* group_ = nullptr;
  at::Tensor messages_;  // uint8, three times the messages of the largest call
  std::map<std::pair<std::string, std::int64_t>, Errors> errors_;  // errors by parameter and begin
  std::string layout_;                                             // layout that the errors belong to
};

}  // namespace strata::toolbox
