// The mean over ranks of values that travel as signs, momenta or gradients, with what rounding lost fed back on both
// ways (Tang et al., arXiv:2102.02888, and DeepSpeed's NcclBackend.compressed_allreduce):
//
//   every rank:          x = value + own error; sends its scale and signs, rank r's share of them to rank r
//                        own error = x - scale x sign
//   of its share, each:  y = mean over ranks of scale x sign + error of the share; sends its scale and signs to all
//                        error of the share = y - scale x sign
//   every rank:          value = scale x sign of every share
//
// Scale: |x| / sqrt(elements), of a tensor, or of the part of it that tensor-parallel ranks have: numbers depend on how
// many share it, as they do on N. An element that does not count, because no gradient reached it while the
// variance was still followed, gets 0. Bits sent by one of N ranks: twice (N-1)/N per element, and 32 per
// tensor, share and rank.
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

// A tensor that is exchanged: read, and then the mean over ranks.
struct Exchanged {
  const PieceInfo* piece = nullptr;
  at::Tensor value;   // fp32, this rank's
  at::Tensor counts;  // 1 or 0, fp32, equal on all ranks
};

class SignExchange {
 public:
  // As ExchangingOptimizer.
  void connect(Group& group, RunContext& run, const std::vector<std::vector<PieceInfo>>& pieces);
  bool connected() const { return group_ != nullptr; }
  int ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  Group& group() const { return *group_; }  // where connected

  // Of one call's pieces. Errors change where `scalars` say that the update is made. [collective]
  void mean(std::vector<Exchanged>& all, const StepScalars& scalars);
  // The errors of a piece begin with zeros again: what is exchanged from here is something else.
  void forget(const PieceInfo& piece);

  // Whether a checkpoint's values of this rank are of the same pieces on the same ranks; only then load() takes them.
  bool has_saved(const StateReader& reader) const;
  void save(StateWriter& writer) const;
  // What is to be logged: why errors begin with zeros.
  std::string load(const StateReader& reader);

 private:
  struct Errors {
    at::Tensor own;    // [elements]
    at::Tensor share;  // [elements of this rank's share]
  };
  std::int64_t message_bytes(const std::vector<std::int64_t>& sizes) const;
  std::int64_t share(std::int64_t elements) const;  // a multiple of 8; the last ones may be shorter or empty
  std::pair<std::int64_t, std::int64_t> share_of(std::int64_t elements, int rank) const;
  std::vector<at::Tensor> all_errors() const;

  Group* group_ = nullptr;
  at::Tensor messages_;  // uint8, three times what the ranks send each other in the largest call
  std::map<std::pair<std::string, std::int64_t>, Errors> errors_;  // by parameter and begin
  std::string layout_;                                             // what they belong to
};

}  // namespace strata::toolbox
