#pragma once

namespace strata::cli {

// From now on, when something ends this program before leave() does, by exit(), _exit(), abort() or a fault, standard
// error says which plugin's call was in progress. Such an exit() gets the exit status of a Bug. For the beginning of
// main().
void name_sudden_end();
// The program ends because it wants to.
void expect_end();

}  // namespace strata::cli
