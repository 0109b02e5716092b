#pragma once
#include "tools/commands/command.hpp"  // IWYU pragma: export
