// One rank's training step is a Program: a list of Instructions that the executor carries out in order. All ranks of a
// stage have the same one.
#pragma once
#include <strata/scheduler.hpp>
#include <strata/step.hpp>

#include <string>
#include <vector>

namespace strata::runtime {

enum class Op {
  // Compute: one layer, one micro-batch. A Forward of a chunk's first layer, or a backward of its last, waits for the
  // matching receive if the chunk beside it is on another stage.
  Forward,
  Backward,
  BackwardInput,   // the gradient of the layer's input; those of the weights that a splittable linear queues come later
  BackwardWeight,  // drains that queue: needs no parameters, no graph
  // Between stages. A send starts and returns; its buffer is free once the peer has taken the data. A receive is posted
  // and returns; the compute that uses the data waits. Sends and receives between two stages are matched in order.
  SendActivation,     // what `chunk` gives, to the stage of the next chunk
  ReceiveActivation,  // what `chunk` takes, from the stage of the chunk before
  SendGradient,       // of what `chunk` took, to the stage of the chunk before
  ReceiveGradient,    // of what `chunk` gave, from the stage of the next chunk
  // One flat parameter.
  Prefetch,        // start gathering
  Gather,          // make sure it is gathered, starting now if no Prefetch did
  Release,         // its full values are not used until the next Gather
  BorrowGradient,  // take the full gradient buffer into which the next backwards accumulate
  Reduce,          // give it back: one micro-batch's gradient is complete
  // The end of the step.
  FinishGradients,
  Norm,
  Step,
  Publish,  // one flat parameter: its owned slices have new values
};

// Fields that an operation does not use keep their defaults.
struct Instruction {
  Op op = Op::Forward;
  int chunk = -1;                // compute, sends, receives
  int micro_batch = -1;          // compute, sends, receives, BorrowGradient, Reduce
  int layer = -1;                // compute
  int flat_parameter = -1;       // the five on flat parameters, Publish
  int peer_stage = -1;           // sends, receives
  Phase phase = Phase::Forward;  // Prefetch and Gather: what it is wanted for first; Release: what it was used for last
  bool first = false;            // BorrowGradient, Reduce: Accumulation::first and ::last
  bool last = false;
  bool recompute = false;  // Forward: keep the input only; Backward, BackwardInput: run the forward again first
  int weight_version = 0;  // compute, Prefetch, Gather, Release: see ComputeAction

  bool operator==(const Instruction&) const = default;
};

using Program = std::vector<Instruction>;

bool is_compute(Op op);
bool is_send(Op op);
bool is_receive(Op op);
// Backward, BackwardInput and BackwardWeight: what may write gradients of parameters.
bool computes_backward(Op op);

// "Forward 0.2 layer 3", "SendActivation 0.2 to stage 1", "Reduce parameter 4 micro-batch 2 first".
std::string to_string(const Instruction& instruction);
std::string to_string(Op op);
std::string to_string(Phase phase);

}  // namespace strata::runtime
