// `strata checkpoint`.
#pragma once
#include <iosfwd>
#include <string>

namespace strata::cli {

struct CheckpointArguments {
  std::string path;             // a checkpoint, or a folder of them: then its latest
  std::string format = "text";  // info: text or json
  std::string folder;           // export: what to write
  std::string plugin_path;      // export: folders with plugins, separated by colons, before the usual ones
};

// Both return the exit status. Prints what a checkpoint holds, after having verified all its files; throws UserError
// when it is damaged.
int checkpoint_info(const CheckpointArguments& arguments, std::ostream& out);

// Writes the weights as a Hugging Face folder, in fp32, in one process and some MiB of memory. Needs the model's
// plugin, by the name and options that the run was saved with, from folders that the user named: no library is loaded
// because a checkpoint names it. Verifies first. Throws UserError.
int checkpoint_export(const CheckpointArguments& arguments, std::ostream& out);

}  // namespace strata::cli
