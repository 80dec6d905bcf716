/* SPDX-License-Identifier: Apache-2.0
 *
 * symbols.c -- what native code of this tier may call, by name and address.
 *
 * The functions of SLEEF that floats.h and ../approx64.h name, and what LLVM
 * makes of copies.  A JIT provider binds these addresses and looks nothing up
 * by itself, so its code calls the very functions that the kernels here call.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <sleef.h>
#include <string.h>

#include "kernels/tier/tier.h"

#define F(name)                                                                \
    {                                                                          \
#name, (void (*)(void))name                                            \
    }

/* clang-format off */
#define FUNCTIONS(X)                                                           \
    X(acos, u10) X(acosh, u10) X(asin, u10) X(asinh, u10) X(atan, u10)         \
    X(atan2, u10) X(atanh, u10) X(cos, u10) X(cosh, u10) X(expm1, u10)         \
    X(log10, u10) X(log1p, u10) X(log2, u10) X(log, u10) X(pow, u10)           \
    X(sin, u10) X(sinh, u10) X(tan, u10) X(hypot, u05)
/* float32 has its own of these (../approx32.h) */
#define DOUBLE_FUNCTIONS(X) X(exp, u10) X(tanh, u10) X(erf, u10) X(erfc, u15)

#if MR_TIER_ID == MR_TIER_AVX512
#define X32(f, u) F(Sleef_finz_##f##f16_##u##avx512f),
#define X64(f, u) F(Sleef_finz_##f##d8_##u##avx512f),
#define FMOD      F(Sleef_finz_fmodf16_avx512f), F(Sleef_finz_fmodd8_avx512f),
#elif MR_TIER_ID == MR_TIER_AVX2
#define X32(f, u) F(Sleef_finz_##f##f8_##u##avx2),
#define X64(f, u) F(Sleef_finz_##f##d4_##u##avx2),
#define FMOD      F(Sleef_finz_fmodf8_avx2), F(Sleef_finz_fmodd4_avx2),
#elif MR_TIER_ID == MR_TIER_NEON
#define X32(f, u) F(Sleef_finz_##f##f4_##u##advsimd),
#define X64(f, u) F(Sleef_finz_##f##d2_##u##advsimd),
#define FMOD      F(Sleef_finz_fmodf4_advsimd), F(Sleef_finz_fmodd2_advsimd),
#endif

#if MR_TIER_ID == MR_TIER_BASELINE
const mr_tier_symbols MR_TIER_SYM(mr__tier_symbols) = {NULL, 0};
#else
static const mr_tier_symbol list[] = {
    FUNCTIONS(X32) FUNCTIONS(X64) DOUBLE_FUNCTIONS(X64) FMOD
    F(memcpy), F(memset)};

const mr_tier_symbols MR_TIER_SYM(mr__tier_symbols) = {
    list, sizeof list / sizeof *list};
#endif
/* clang-format on */
