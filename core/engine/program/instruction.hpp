// A Program is one rank's training step: a list of Instructions that the executor runs in order. All ranks of a stage
// have the same Program.
#pragma once
#include <strata/memory.hpp>
#include <strata/scheduler.hpp>
#include <strata/step.hpp>

#include <string>
#include <vector>

namespace strata::program {

enum class Op {
  // Compute: one layer, one micro-batch. The Forward of a chunk's first layer, or the backward of its last, waits for
  // the matching receive if the neighbouring chunk is on another stage.
  Forward,
  Backward,
  BackwardInput,   // all gradients except of linear weights, whose products are saved for BackwardWeight
  BackwardWeight,  // gradients that BackwardInput saved; needs no parameters and no graph
  // Transfers between stages. A send starts and returns; its buffer is free once the peer has taken the data. A receive
  // is posted and returns; the compute that uses the data waits for it. Transfers from one stage to another match in
  // order.
  SendActivation,     // output of `chunk`, to the stage of the next chunk
  ReceiveActivation,  // input of `chunk`, from the stage of the previous chunk
  SendGradient,       // gradient of the input of `chunk`, to the stage of the previous chunk
  ReceiveGradient,    // gradient of the output of `chunk`, from the stage of the next chunk
  // Gathering and gradients of one flat parameter.
  Prefetch,        // start gathering
  Gather,          // finish gathering; starts it if there was no Prefetch
  Release,         // full values are not used until the next Gather
  BorrowGradient,  // get the full gradient buffer into which the next backwards accumulate
  Reduce,          // return the buffer: one micro-batch's gradient is complete
  // Movement of buffers whose home is another memory tier: of one flat parameter and `category`, or its kept gradient;
  // or the input of a recomputed layer (Category::Activation), which is away from its forward to its backward.
  Fetch,   // start to bring them to the device; `contents`: with their contents
  Await,   // wait until they are on the device
  Store,   // take them away; `changed`: start to write new contents home
  Settle,  // wait for the writes of a Store with `changed`, and free the device memory
  // The end of the step; all but StartNorm, Norm and SumStatistics for one flat parameter.
  FinishGradient,
  SumReplicas,     // sum of the owned slices over other ranks that compute parts of the gradient
  SquareGradient,  // adds this rank's part of the squared norm
  StartNorm,       // starts Norm's all-reduce; until Norm, updates assume that nothing is clipped or skipped
  Norm,            // all-reduce over all ranks: the gradient's norm, the losses
  SaveState,       // copies the state of this rank's pieces that Update changes
  RestoreState,    // puts the copy back
  Measure,         // the optimizer's measurement at the start of `round`
  SumStatistics,   // sum of the measurements over the ranks of the stage
  Update,          // the optimizer's pass over this rank's pieces in `round`
  Synchronize,     // average over replica groups, in steps in which it is due
  Publish,         // publishes new values of the owned slices
  Keep,            // keeps the gradient for the next step's update
  // Versions of one flat parameter's values, if the schedule updates within the step.
  Stash,  // copy the newest values, `version`, before the update
  Bind,   // compute with the copy of `version` from here on; -1: with the newest values
  Drop,   // free the copy
};

// Gradient by which an update is made.
enum class UpdatedBy {
  ThisStep,  // gradient of the step that the update stands in
  LastStep,  // gradient that the last step left in place; skipped if no step came before, or its update has been made
  Kept,      // copy of the last step's gradient
};

// Fields that an operation does not use have their defaults.
struct Instruction {
  Op op = Op::Forward;
  int chunk = -1;                // compute, sends, receives
  int micro_batch = -1;          // compute, sends, receives, BorrowGradient, Reduce; Fetch to Settle of an activation
  int layer = -1;                // compute; Fetch to Settle of an activation
  int flat_parameter = -1;       // instructions for one flat parameter
  int peer_stage = -1;           // sends, receives
  Phase phase = Phase::Forward;  // Prefetch and Gather: the first use; Release: the last use
  bool first = false;            // BorrowGradient, Reduce: Accumulation::first and ::last
  bool last = false;
  bool evaluates = false;  // Forward, SendActivation: no backward follows
  bool recompute = false;  // Forward: keep only the input; Backward, BackwardInput: run the forward again first
  int input_buffer = -1;   // buffer of that input, among its layer's, while it is away; -1: it stays on the device
  int round = -1;          // Measure, SumStatistics, Update: see Optimizer
  Category category = Category::Parameter;  // Fetch, Await, Store, Settle
  bool contents = false;                    // Fetch
  bool changed = false;                     // Store
  bool ahead = false;                       // may run at the end of the previous step: see look_ahead() in passes.hpp
  int part = 0;  // Update, and Fetch to Settle of the state: one of FlatParameterSize::update_parts
  // Measure and Update; SumStatistics and Publish only tell ThisStep and LastStep apart. Kept also in Fetch to Settle
  // of the kept gradient.
  UpdatedBy by = UpdatedBy::ThisStep;
  // Number of this step's updates in the values: of Forward, Backward and BackwardInput in the values they compute
  // with; of Stash, Bind and Drop in their copy; of Measure and Update before their own.
  int version = 0;

  bool late() const { return by == UpdatedBy::LastStep; }
  bool kept() const { return by == UpdatedBy::Kept; }
  bool operator==(const Instruction&) const = default;
};

using Program = std::vector<Instruction>;

// Buffers that move together: of one category and one owner, a flat parameter or, for an activation, the layer whose
// input it is. `kept`: the gradient for the next step's update.
struct Moved {
  Category category;
  int owner;
  bool kept = false;
  int part = 0;  // part of the optimizer's state; of a layer's inputs, one micro-batch's
  auto operator<=>(const Moved&) const = default;
};
// Returns the buffers of a Fetch, Await, Store or Settle.
Moved moved_by(const Instruction& movement);

// Returns `by` for the SumStatistics and the Publish of an update.
UpdatedBy step_of(UpdatedBy by);

bool is_compute(Op op);
bool is_movement(Op op);  // true for Fetch, Await, Store and Settle
bool is_send(Op op);
bool is_receive(Op op);
// True for Backward, BackwardInput and BackwardWeight, which may write gradients of parameters.
bool computes_backward(Op op);

// Returns "Forward 0.2 layer 3", "SendActivation 0.2 to stage 1", "Reduce parameter 4 micro-batch 2 first".
std::string to_string(const Instruction& instruction);
std::string to_string(Op op);
std::string to_string(Phase phase);

}  // namespace strata::program
