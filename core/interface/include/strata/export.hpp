// Marks symbols that libstrata_interface.so exports; all others are hidden.
#pragma once
#define STRATA_EXPORT [[gnu::visibility("default")]]
