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

// The words for parts of parameters:
//   Slice   a range of a flat parameter that this rank owns; the partitioner cuts (<strata/partitioner.hpp>)
//   Piece   a slice's part of one parameter: what the optimizer updates (<strata/optimizer.hpp>)
//   Entry   a piece with the flat parameter that it lies in, its buffers and its counted range
//   Range   elements [begin, end) of a parameter, or of a tensor-parallel rank's part of it, in a checkpoint's files
//           (checkpoint/ranges.hpp)

// Elements [begin, end) of what this rank has of a parameter.
PieceInfo piece_info(const ParameterSpan& span, std::int64_t begin, std::int64_t end);

// Throws Bug where slices are no ranges of their flat parameters, or two have the same element.
void check_ranges(const std::vector<Slice>& slices, const std::string& partitioner);

// Throws UserError, with the plugins' names, when a slice cuts a parameter within one of its units.
void check_cuts(const std::vector<Slice>& slices, const std::string& optimizer, const std::string& partitioner);

// The master weights and the optimizer's state of the slices that this rank owns: the optimizer updates them, fill()
// and resume write them, exports and checkpoints read them.
class OptimizerState {
 public:
  // The name in checkpoints of what Entry::kept holds; no state of an optimizer has it.
  static constexpr const char* kept_gradient = "kept_gradient";

  // Frozen slices get pieces without state. `replicas`: flat parameters that another stage counts. With the policy
  // Delayed a gradient of each slice is kept for the next step's update, with Speculative there is room for save(), and
  // with Local the weights are kept that replica groups had in common last.
  // `update_elements`: see update_parts(). `write_trained`: the optimizer's, if it trains elsewhere; masters are then
  // never the parameter.
  using WriteTrained = std::function<void(const Piece& piece)>;
  OptimizerState(const std::vector<Slice>& slices, const Optimizer& optimizer, Buffers& buffers,
                 const std::vector<int>& replicas = {}, config::StepPolicy policy = config::StepPolicy::Plain,
                 std::int64_t update_elements = std::numeric_limits<std::int64_t>::max(),
                 WriteTrained write_trained = {});
  OptimizerState(const OptimizerState&) = delete;
  OptimizerState& operator=(const OptimizerState&) = delete;

  // One parameter's part of one slice.
  struct Entry {
    Piece piece;  // its tensors: see piece_of(); its elements are those of this tensor-parallel rank's part
    const ParameterSpan* span = nullptr;
    BufferRange master;  // the parameter's own range where the parameter is the master
    BufferRange parameter;
    BufferRange gradient;             // in no buffer if frozen
    BufferRange kept;                 // the gradient of the step before; in no buffer if none is kept
    BufferRange common;               // fp32: the weights that replica groups had in common last; in no buffer
                                      // unless groups train by themselves
    BufferRange outer_momentum;       // of the steps from one of these to the next, likewise
    std::vector<StateTensor> states;  // what piece.state are, in order
    std::vector<BufferRange> state;
    FlatParameter* flat = nullptr;
    bool trainable = true;
    bool writes_copy = false;  // master and parameter are different memory
    int part = 0;              // of its flat parameter's update
    bool moves = false;        // a buffer of it leaves between uses, and comes back at another address
    // The part of the piece that this rank measures for the optimizer's sums, possibly empty: over the ranks of a stage
    // every element once.
    std::int64_t measured_begin = 0;
    std::int64_t measured_end = 0;
    // That which it counts in norms and writes to files: over the run every element once. It is the same, or empty
    // where another stage counts the parameter.
    std::int64_t counted_begin = 0;
    std::int64_t counted_end = 0;
    // That which it counts in the norm of its replica group: over the group's ranks every element once. Where groups do
    // not train by themselves all ranks are one.
    std::int64_t group_begin = 0;
    std::int64_t group_end = 0;

    // Elements [begin, end) of the piece, each run of neighbours in the whole parameter: of `range`, which is the
    // piece's, the part of the run. With `block` the range has one element for so many, see StateTensor, and so has
    // what `whole` counts.
    void for_each_run(const BufferRange& range, std::int64_t begin, std::int64_t end,
                      const std::function<void(std::int64_t whole, const BufferRange& part)>& visit,
                      std::int64_t block = 1) const;
    BufferRange counted(const BufferRange& range) const {
      return {range.buffer, range.begin + counted_begin, counted_end - counted_begin};
    }
    BufferRange of_group(const BufferRange& range) const {
      return {range.buffer, range.begin + group_begin, group_end - group_begin};
    }
    // What evaluations, exports and checkpoints take for the weights.
    const BufferRange& weights() const { return common.buffer != nullptr ? common : master; }
    // Of state[number] what belongs to elements [begin, end) of the piece, or all of a whole parameter's.
    BufferRange state_of(std::size_t number, std::int64_t begin, std::int64_t end) const;
  };
  std::vector<Entry>& entries() { return entries_; }
  const std::vector<Entry>& entries() const { return entries_; }

  // Those of a flat parameter, by its id.
  const std::vector<Entry*>& entries_of(int flat_parameter) const;
  // In how many parts, one after the other, a flat parameter's pieces are updated: where their state comes from another
  // memory tier and the optimizer sums nothing over parameters, parts of at most `update_elements`, or of one unit that
  // is more; else one.
  int update_parts(int flat_parameter) const;
  // The piece of an entry that is trained, for an update by this step's gradient or by the kept one, while its buffers
  // are here.
  Piece& piece_of(Entry& entry, bool kept = false);
  // Elements [begin, end) of a piece of the entry; states of whole parameters stay whole.
  static Piece part_of(const Piece& piece, const Entry& entry, std::int64_t begin, std::int64_t end);

  // Copies the master weights and the optimizer's state of a flat parameter's pieces; puts the last copy back, and into
  // the parameter the weights to train at. Where the buffers are here.
  void save(int flat_parameter);
  void restore(int flat_parameter);

  // Between steps. After Entry::weights() were filled or loaded: the master weights are the same.
  void start_at_weights(const Entry& entry);
  // Between steps. Writes an entry's weights to the parameter's memory: those to train at, after master and state were
  // filled or loaded or an evaluation has ended; or those to evaluate, Entry::weights() rounded. They differ only if
  // the optimizer trains elsewhere, or replica groups train by themselves.
  bool trains_elsewhere() const { return write_trained_ != nullptr; }
  bool evaluates_elsewhere() const { return trains_elsewhere() || local_; }
  void write_parameter(const Entry& entry);
  void write_evaluated(const Entry& entry);
  const Buffers& buffers() const { return buffers_; }

 private:
  // Part of a buffer, and what is saved of it.
  struct Saved {
    BufferRange now;
    BufferRange copy;
  };
  void add_slice(const Slice& slice, int part, const Optimizer& optimizer, config::StepPolicy policy);
  void write_trained_part(const Entry& entry, std::int64_t begin, std::int64_t end);
  void copy(const BufferRange& from, const BufferRange& to) const;

  Buffers& buffers_;
  WriteTrained write_trained_;
  bool local_;  // replica groups train by themselves
  std::vector<Entry> entries_;
  std::map<int, std::vector<Entry*>> by_flat_parameter_;
  std::map<int, std::vector<Saved>> saved_;  // by flat parameter
};

}  // namespace strata::state
