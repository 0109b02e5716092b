#pragma once
#include <iosfwd>
#include <string>

namespace strata::cli {

// Makes the project of a plugin of one's own: copies the files of the kind's template (see config::templates_folder)
// into `folder`, which is made when its parent is there, with NAME in place of @name@ in their names and texts, and
// packs their text into the token file that stands for @tokens@ in them. Prints the files and the commands of the first
// ```sh block in a .md file among them. Throws UserError, with nothing written, for an unknown kind, for what is no
// name of a plugin, for a file that is there already and for a folder that cannot be written. Returns 0.
int plugins_new(const std::string& kind, const std::string& name, const std::string& folder, std::ostream& out);

}  // namespace strata::cli
