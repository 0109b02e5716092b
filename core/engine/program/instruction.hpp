// One rank's training step is a Program: a list of Instructions that the executor runs in order. All ranks of a stage
// have the same Program.
#pragma once
#include <strata/memory.hpp>
#include <strata/scheduler.hpp>
#include <strata/step.hpp>

#include <string>
#include <vector>

namespace strata::runtime {

enum class Op {
  // Compute: one layer, one micro-batch. The Forward of a chunk's first layer, or the backward of its last, waits for
  // the matching receive if the neighbouring chunk is on another stage.
  Forward,
  Backward,
  BackwardInput,   // all gradients but those of the weights of linears, whose products are kept for BackwardWeight
  BackwardWeight,  // the gradients that BackwardInput left; needs no parameters and no graph
  // Transfers between stages. A send starts and returns; its buffer is free once the peer has taken the data. A receive
  // is posted and returns; the compute that uses the data waits for it. Transfers from one stage to another match in
  // order.
  SendActivation,     // the output of `chunk`, to the stage of the next chunk
  ReceiveActivation,  // the input of `chunk`, from the stage of the previous chunk
  SendGradient,       // gradient of the input of `chunk`, to the stage of the previous chunk
  ReceiveGradient,    // gradient of the output of `chunk`, from the stage of the next chunk
  // For one flat parameter.
  Prefetch,        // start gathering
  Gather,          // finish gathering; starts it if there was no Prefetch
  Release,         // its full values are not used until the next Gather
  BorrowGradient,  // get the full gradient buffer into which the next backwards accumulate
  Reduce,          // return the buffer: one micro-batch's gradient is complete
  // For one flat parameter and `category`, or its kept gradient, where its buffers rest on another memory tier; or for
  // the input of a layer that is recomputed (Category::Activation), which is away from its forward to its backward.
  Fetch,   // start to bring them to the device; `contents`: with what they hold
  Await,   // they are here
  Store,   // take them away; `changed`: what they hold is new, and starts on its way home
  Settle,  // after a Store that changed them: they have arrived, and their memory on the device is free
  // The end of the step; all but StartNorm, Norm and SumStatistics for one flat parameter.
  FinishGradient,
  SumReplicas,     // one of which other ranks make parts of the gradient: the owned slices, over those ranks
  SquareGradient,  // adds this rank's part of the squared norm
  StartNorm,       // starts what Norm waits for; until then updates assume that nothing is clipped or skipped
  Norm,            // what all ranks learn together: the gradient's norm, the losses
  SaveState,       // copies what Update changes of this rank's pieces
  RestoreState,    // puts the copy back
  Measure,         // what the optimizer measures at the start of `round`
  SumStatistics,   // sums it over the ranks of the stage
  Update,          // the optimizer's pass over this rank's pieces in `round`
  Synchronize,     // the average over replica groups, in steps after which it is due
  Publish,         // its owned slices have new values
  Keep,            // its gradient is kept for the next step's update
  // For one flat parameter and `version` of its values, where the schedule updates within the step.
  Stash,  // copy the newest values, which are this version, before the update
  Bind,   // what follows computes with the copy of this version; -1: with the newest values
  Drop,   // the copy is not used any more
};

// Fields that an operation does not use have their defaults.
struct Instruction {
  Op op = Op::Forward;
  int chunk = -1;                // compute, sends, receives
  int micro_batch = -1;          // compute, sends, receives, BorrowGradient, Reduce; Fetch to Settle of an activation
  int layer = -1;                // compute; Fetch to Settle of an activation
  int flat_parameter = -1;       // those for one flat parameter
  int peer_stage = -1;           // sends, receives
  Phase phase = Phase::Forward;  // Prefetch and Gather: the first use; Release: the last use
  bool first = false;            // BorrowGradient, Reduce: Accumulation::first and ::last
  bool last = false;
  bool recompute = false;  // Forward: keep only the input; Backward, BackwardInput: run the forward again first
  int input_buffer = -1;   // that input's, of those of its layer, while it is away; -1: it stays on the device
  int round = -1;          // Measure, SumStatistics, Update: see Optimizer
  Category category = Category::Parameter;  // Fetch, Await, Store, Settle
  bool contents = false;                    // Fetch
  bool changed = false;                     // Store
  bool ahead = false;  // may be carried out at the end of the step before: see look_ahead() in passes.hpp
  int part = 0;        // Update, and the Fetch to Settle of the state: one of FlatParameterSize::update_parts
  bool late = false;   // Measure, SumStatistics, Update, Publish: of the step before, by the gradient that it left
  bool kept = false;   // Measure, Update: by the gradient that the step before kept; Fetch to Settle: that gradient
  // How many of this step's updates are in the values: with which Forward, Backward and BackwardInput compute; which
  // Stash, Bind and Drop are about; to which Measure and Update add the next.
  int version = 0;

  bool operator==(const Instruction&) const = default;
};

using Program = std::vector<Instruction>;

// Buffers that move together: those of one category of an owner, a flat parameter, or of an activation the layer whose
// input it is. `kept`: the gradient for the next step's update.
struct Moved {
  Category category;
  int owner;
  bool kept = false;
  int part = 0;  // of the optimizer's state; of a layer's inputs, one micro-batch's
  auto operator<=>(const Moved&) const = default;
};
// What a Fetch, Await, Store or Settle is about.
Moved moved_by(const Instruction& movement);

bool is_compute(Op op);
bool is_movement(Op op);  // Fetch, Await, Store and Settle
bool is_send(Op op);
bool is_receive(Op op);
// True for Backward, BackwardInput and BackwardWeight, which may write gradients of parameters.
bool computes_backward(Op op);

// "Forward 0.2 layer 3", "SendActivation 0.2 to stage 1", "Reduce parameter 4 micro-batch 2 first".
std::string to_string(const Instruction& instruction);
std::string to_string(Op op);
std::string to_string(Phase phase);

}  // namespace strata::runtime
