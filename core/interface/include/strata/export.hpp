// What libstrata_interface.so exports carries this mark; everything else in it is hidden.
#pragma once
#define STRATA_EXPORT [[gnu::visibility("default")]]
