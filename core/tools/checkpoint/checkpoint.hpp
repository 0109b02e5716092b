// `strata checkpoint`.
#pragma once
#include <iosfwd>
#include <string>

namespace strata::cli {

struct CheckpointArguments {
  std::string path;               // a checkpoint, or a folder of checkpoints for the latest one
  std::string format = "text";    // info: text or json
  std::string folder;             // export: the folder to write
  std::string dtype = "float32";  // export: float32, bfloat16, float16 or source
  std::string plugin_path;        // export: folders to search for plugins first, separated by colons
};

// Verifies all files of a checkpoint and prints its contents. Returns the exit status. Throws UserError if it is
// damaged.
int checkpoint_info(const CheckpointArguments& arguments, std::ostream& out);

// Verifies the checkpoint and writes the weights as a Hugging Face folder, in one process with a few MiB of memory.
// Finds the model plugin by the saved name and options, only in folders given by the user: a path in a checkpoint is
// never loaded. Returns the exit status. Throws UserError.
int checkpoint_export(const CheckpointArguments& arguments, std::ostream& out);

}  // namespace strata::cli
