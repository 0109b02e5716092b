#pragma once
#include <strata/optimizer.hpp>
#include <strata/partitioner.hpp>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "memory/buffers.hpp"

namespace strata::state {

// Terms for parts of parameters:
//   Slice   a range of a flat parameter that this rank owns; the partitioner cuts (<strata/partitioner.hpp>)
//   Piece   a slice's part of one parameter, which the optimizer updates (<strata/optimizer.hpp>)
//   Entry   a piece with the flat parameter that it lies in, its buffers and its counted range
//   Range   elements [begin, end) of a parameter, or of a tensor-parallel rank's part of it, in a checkpoint's files
//           (checkpoint/ranges.hpp)

// Returns the description of elements [begin, end) of this rank's part of a parameter.
PieceInfo piece_info(const ParameterSpan& span, std::int64_t begin, std::int64_t end);

// Throws Bug if a slice is not a range of its flat parameter, or two slices overlap.
void check_ranges(const std::vector<Slice>& slices, const std::string& partitioner);

// Throws UserError, with the plugins' names, when a slice cuts a parameter within one of its units.
void check_cuts(const std::vector<Slice>& slices, const std::string& optimizer, const std::string& partitioner);

// Master weights and optimizer state of the slices that this rank owns: the optimizer updates them, fill() and resume
// write them, exports and checkpoints read them.
class OptimizerState {
 public:
  // Checkpoint name of the gradient in Entry::kept; no state of an optimizer has this name.
  static constexpr const char* kept_gradient = "kept_gradient";

  // Allocates master weights and state; frozen slices get pieces without state. `replicas`: flat parameters
  // that another stage counts. The policy adds memory: Delayed for a kept gradient of each slice, Speculative
  // for save(), Local for the last common weights of the replica groups. `update_elements`: see
  // update_parts(). `write_trained`: set if the optimizer trains elsewhere; masters are then never the
  // parameter.
  using WriteTrained = std::function<void(const Piece& piece)>;
  OptimizerState(const std::vector<Slice>& slices, const Optimizer& optimizer, memory::Buffers& buffers,
                 const std::vector<int>& replicas = {}, config::StepPolicy policy = config::StepPolicy::Plain,
                 std::int64_t update_elements = std::numeric_limits<std::int64_t>::max(),
                 WriteTrained write_trained = {});
  OptimizerState(const OptimizerState&) = delete;
  OptimizerState& operator=(const OptimizerState&) = delete;

  // Part of one slice that lies in one parameter.
  struct Entry {
    Piece piece;  // tensors: see piece_of(); elements of this tensor-parallel rank's part
    const ParameterSpan* span = nullptr;
    BufferRange master;  // parameter's own range if the parameter is the master
    BufferRange parameter;
    BufferRange gradient;             // no buffer if frozen
    BufferRange kept;                 // kept gradient of the previous step; no buffer if none is kept
    BufferRange common;               // fp32: last common weights of the replica groups; no buffer
                                      // without local training
    BufferRange outer_momentum;       // momentum of the outer steps; no buffer without local training
    std::vector<StateTensor> states;  // descriptions of piece.state, in order
    std::vector<BufferRange> state;
    FlatParameter* flat = nullptr;
    bool trainable = true;
    bool writes_copy = false;  // true if master and parameter are different memory
    int part = 0;              // part of its flat parameter's update
    bool moves = false;        // true if a buffer leaves between uses, and returns at another address
    // Subrange of the piece that this rank measures for the optimizer's sums, possibly empty: disjoint and complete
    // over the ranks of a stage.
    std::int64_t measured_begin = 0;
    std::int64_t measured_end = 0;
    // Subrange that this rank contributes to norms and checkpoints: disjoint and complete over all ranks. Equal to the
    // measured range, or empty if another stage counts the parameter.
    std::int64_t counted_begin = 0;
    std::int64_t counted_end = 0;
    // Subrange that this rank contributes to the norm of its replica group: disjoint and complete over the group.
    // Without local training, all ranks are one group.
    std::int64_t group_begin = 0;
    std::int64_t group_end = 0;

    // Visits elements [begin, end) of the piece in runs of neighbours of the whole parameter, with the part of `range`,
    // a range of the piece, for each run. With `block`, `range` has one element per block (StateTensor), and `whole`
    // counts blocks.
    void for_each_run(const BufferRange& range, std::int64_t begin, std::int64_t end,
                      const std::function<void(std::int64_t whole, const BufferRange& part)>& visit,
                      std::int64_t block = 1) const;
    BufferRange counted(const BufferRange& range) const {
      return {range.buffer, range.begin + counted_begin, counted_end - counted_begin};
    }
    BufferRange of_group(const BufferRange& range) const {
      return {range.buffer, range.begin + group_begin, group_end - group_begin};
    }
    // Returns the weights for evaluations, exports and checkpoints.
    const BufferRange& weights() const { return common.buffer != nullptr ? common : master; }
    // Returns the range of state[number] for elements [begin, end) of the piece, or all of a whole parameter's state.
    BufferRange state_of(std::size_t number, std::int64_t begin, std::int64_t end) const;
  };
  std::vector<Entry>& entries() { return entries_; }
  const std::vector<Entry>& entries() const { return entries_; }

  // Returns the entries of a flat parameter, by its id.
  const std::vector<Entry*>& entries_of(int flat_parameter) const;
  // Returns the number of parts in which a flat parameter's pieces are updated, one after the other. With state on
  // another memory tier and an optimizer without sums: parts of at most `update_elements`, or of one larger unit;
  // otherwise 1.
  int update_parts(int flat_parameter) const;
  // Returns the piece of a trainable entry, for an update by this step's gradient or by the kept one, while its buffers
  // are fetched.
  Piece& piece_of(Entry& entry, bool kept = false);
  // Returns elements [begin, end) of a piece of the entry; states of whole parameters stay whole.
  static Piece part_of(const Piece& piece, const Entry& entry, std::int64_t begin, std::int64_t end);

  // Copies the master weights and optimizer state of a flat parameter's pieces, or restores the last copy and writes
  // the weights to train at into the parameter. Requires that the buffers are fetched.
  void save(int flat_parameter);
  void restore(int flat_parameter);

  // Sets the master weights to Entry::weights() after these were filled or loaded, between steps.
  void start_at_weights(const Entry& entry);
  // Writes an entry's weights to the parameter's memory, between steps: write_parameter() the weights to train at,
  // after filling, loading or an evaluation; write_evaluated() the weights to evaluate, Entry::weights() rounded. They
  // differ only if the optimizer trains elsewhere, or with local training.
  bool trains_elsewhere() const { return write_trained_ != nullptr; }
  bool evaluates_elsewhere() const { return trains_elsewhere() || local_; }
  void write_parameter(const Entry& entry);
  void write_evaluated(const Entry& entry);
  const memory::Buffers& buffers() const { return buffers_; }

 private:
  // Part of a buffer, and its saved copy.
  struct Saved {
    BufferRange now;
    BufferRange copy;
  };
  void add_slice(const Slice& slice, int part, const Optimizer& optimizer, config::StepPolicy policy);
  void write_trained_part(const Entry& entry, std::int64_t begin, std::int64_t end);
  void copy(const BufferRange& from, const BufferRange& to) const;

  memory::Buffers& buffers_;
  WriteTrained write_trained_;
  bool local_;  // true: replica groups train independently
  std::vector<Entry> entries_;
  std::map<int, std::vector<Entry*>> by_flat_parameter_;
  std::map<int, std::vector<Saved>> saved_;  // copies by flat parameter
};

}  // namespace strata::state
