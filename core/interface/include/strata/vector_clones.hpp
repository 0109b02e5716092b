// Compiles a function for several vector widths; one is chosen when the library is loaded. The file is compiled with
// -ffp-contract=off (strata_vector_code in CMake), so that every clone gives equal bits. Off under sanitizers, because
// the choice would run before they are initialised.
#pragma once
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define STRATA_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define STRATA_VECTOR_CLONES
#endif
