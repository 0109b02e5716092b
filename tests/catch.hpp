// Catch2 by whichever version the system has: v2 (Debian 12) or v3 (Ubuntu 24.04). To be included after libtorch's
// headers, some of which define a CHECK that would end the test program: each time this is included, CHECK is Catch2's
// again.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#undef CHECK
#define CHECK(...) INTERNAL_CATCH_TEST("CHECK", Catch::ResultDisposition::ContinueOnFailure, __VA_ARGS__)
