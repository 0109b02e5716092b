#pragma once
#include <iosfwd>
#include <string>

namespace strata::cli {

// Creates a plugin project: copies the files of the kind's template (see config::templates_folder) into `folder`, which
// is created if its parent exists, replaces @name@ by the name in file names and texts, and packs their text into the
// token file that replaces @tokens@. Prints the files and the commands of the first ```sh block in a .md file among
// them. Throws UserError and writes nothing for an unknown kind, an invalid name, a file that already exists or a
// folder that cannot be written. Returns 0.
int plugins_new(const std::string& kind, const std::string& name, const std::string& folder, std::ostream& out);

}  // namespace strata::cli
