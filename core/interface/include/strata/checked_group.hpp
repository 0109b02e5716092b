// CheckedGroup is the part of Group that all backends share: it checks each operation against its rules, numbers it and
// counts its traffic.
#pragma once
#include <strata/group.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace strata {

inline constexpr int collective_count = 9;

// Calls and bytes of one rank in a group, by collective.
struct STRATA_EXPORT Traffic {
  std::array<std::int64_t, collective_count> calls{};
  std::array<std::int64_t, collective_count> bytes{};  // logical bytes sent, see logical_bytes
  double waited_s = 0.0;                               // host time spent in Pending::wait and barrier

  std::int64_t calls_of(Collective collective) const { return calls.at(static_cast<std::size_t>(collective)); }
  std::int64_t bytes_of(Collective collective) const { return bytes.at(static_cast<std::size_t>(collective)); }
  std::int64_t total_bytes() const;
  Traffic& operator+=(const Traffic& other);
};

// One checked call. Fields that the call does not have are undefined or -1.
struct Operation {
  Collective collective = Collective::Barrier;
  // Sequence number from 1, equal on all members that take part. Collectives are numbered per group; Send and Receive
  // per pair of ranks and direction, so that send #3 matches receive #3.
  std::int64_t number = 0;
  at::Tensor output;  // also the tensor of operations that have only one
  at::Tensor input;
  int peer = -1;  // root, or the other rank of Send and Receive
  ReduceOperation reduction = ReduceOperation::Sum;
};

// A subclass moves the bytes of one checked operation in start(). Use a group from one thread at a time.
class STRATA_EXPORT CheckedGroup : public Group {
 public:
  // `rank` is this process's index in `members`.
  CheckedGroup(std::string name, int rank, std::vector<int> members);
  ~CheckedGroup() override;

  const std::string& name() const final { return name_; }
  int rank() const final { return rank_; }
  int size() const final { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const final { return members_; }

  Pending all_gather(const at::Tensor& output, const at::Tensor& input) final;
  Pending reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOperation operation) final;
  Pending all_reduce(const at::Tensor& tensor, ReduceOperation operation) final;
  Pending broadcast(const at::Tensor& tensor, int root) final;
  Pending reduce(const at::Tensor& tensor, int root, ReduceOperation operation) final;
  Pending all_to_all(const at::Tensor& output, const at::Tensor& input) final;
  Pending send(const at::Tensor& tensor, int peer) final;
  Pending receive(const at::Tensor& tensor, int peer) final;
  void barrier() final;

  const Traffic& traffic() const { return traffic_; }
  void reset_traffic() { traffic_ = {}; }

  // Returns e.g. "all_gather #12 on group data (rank 0 of 2)".
  std::string describe(const Operation& operation) const;

 protected:
  // Starts a checked operation; not called for tensors without elements. Must not block the host, except for Barrier,
  // which it may complete before it returns.
  virtual Pending start(const Operation& operation) = 0;
  void add_waited(double seconds) { traffic_.waited_s += seconds; }

 private:
  Pending run(Operation operation);
  std::int64_t& counter(const Operation& operation);
  void check_tensor(const Operation& operation, const at::Tensor& tensor, const char* role) const;
  void check_parts(const Operation& operation, const at::Tensor& whole, const at::Tensor& part) const;
  void check_peer(const Operation& operation) const;
  [[noreturn]] void refuse(const Operation& operation, const std::string& rule) const;

  std::string name_;
  int rank_;
  std::vector<int> members_;
  std::int64_t collectives_ = 0;
  std::vector<std::int64_t> sends_;     // by peer
  std::vector<std::int64_t> receives_;  // by peer
  Traffic traffic_;
};

// Group of any size that moves no data, for dry runs and for counting in tests. Accepts meta tensors.
class STRATA_EXPORT CountingGroup final : public CheckedGroup {
 public:
  using CheckedGroup::CheckedGroup;
  ~CountingGroup() override;

 private:
  Pending start(const Operation& operation) override;
};

}  // namespace strata
