/* SPDX-License-Identifier: Apache-2.0
 *
 * dispatch.c -- the tables of the instruction set in use.
 *
 * Chosen once, at the first need, from what the CPU has; MARRAM_CPU forces
 * one.  A variable that names an unknown or unsupported tier is an error of
 * mr__cpu_tier(), which the library calls at start; until somebody heeds it
 * the kernels run on the best tier.  "amx" is the avx512 tier and, for
 * products, the matrix unit, which a process must ask the system for.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/error.h"
#include "kernels/attend.h"
#include "kernels/copy.h"
#include "kernels/depth.h"
#include "kernels/fft.h"
#include "kernels/gemm.h"
#include "kernels/program.h"
#include "kernels/quant.h"
#include "kernels/random.h"
#include "kernels/resolve.h"
#include "kernels/scan.h"
#include "kernels/sort.h"
#include "kernels/tier/tier.h"
#include "kernels/window.h"

#define MR_DTYPE_baseline(id, file) [id] = &mr__tier_##file##_baseline,
#define MR_DTYPE_avx2(id, file)     [id] = &mr__tier_##file##_avx2,
#define MR_DTYPE_avx512(id, file)   [id] = &mr__tier_##file##_avx512,
#define MR_DTYPE_neon(id, file)     [id] = &mr__tier_##file##_neon,

#define MR_X(id, name)                                                         \
    [id] = {#name,                                                             \
            id,                                                                \
            {MR_TIER_DTYPES(MR_DTYPE_##name)},                                 \
            &mr__tier_casts_##name,                                            \
            &mr__tier_moves_##name,                                            \
            &mr__tier_random_##name,                                           \
            &mr__tier_symbols_##name,                                          \
            &mr__gemm_tier_##name,                                             \
            &mr__quant_tier_##name,                                            \
            &mr__attend_tier_##name,                                           \
            &mr__window_tier_##name,                                           \
            &mr__depth_tier_##name,                                            \
            &mr__scan_tier_##name,                                             \
            &mr__resolve_tier_##name,                                          \
            {&mr__sort32_tier_##name, &mr__sort64_tier_##name},                \
            {&mr__fft_f32_##name, &mr__fft_f64_##name}},
static const mr_tier tiers[MR_N_TIERS] = {MR_TIERS(MR_X)};
#undef MR_X

#if defined(__x86_64__)
/* x86-64-v3 and -v4 by what tells them apart: compilers that know these names
 * in __builtin_cpu_supports are newer than those that we support.  What else
 * the levels ask for, every CPU with these has. */
static bool
cpu_has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

static bool
cpu_has_v4(void)
{
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

/* ---- the matrix unit ------------------------------------------------------
 */

#define WITH_UNIT "amx"

/* What the unit lacks before it can be used. */
typedef enum unit_lack {
    UNIT_UNASKED,
    UNIT_READY,
    UNIT_ABSENT,
    UNIT_UNKNOWN,
    UNIT_REFUSED
} unit_lack;

#if defined(__x86_64__) && defined(__linux__)
enum {
    UNIT_REQUEST = 0x1023, /* ARCH_REQ_XCOMP_PERM */
    UNIT_STATE = 18        /* the tiles' data */
};

/* Tiles of bfloat16 in the processor, their state known to the system, and the
 * system's leave to use it (which makes room for it in signal frames). */
static unit_lack
unit_find(void)
{
    unsigned a, b, c, d, low, high;

    if (mr__tier_by_id(MR_TIER_AVX512) == NULL ||
        !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) ||
        !(d >> 24 & 1))
        return UNIT_ABSENT;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low >> 17 & 3) != 3)
        return UNIT_UNKNOWN;
    return syscall(SYS_arch_prctl, UNIT_REQUEST, UNIT_STATE) == 0
               ? UNIT_READY
               : UNIT_REFUSED;
}
#else
static unit_lack
unit_find(void)
{
    return UNIT_ABSENT;
}
#endif

/* Relaxed: every thread finds the same. */
static unit_lack
unit_lacks(void)
{
    static atomic_int found;
    int f = atomic_load_explicit(&found, memory_order_relaxed);

    if (f == UNIT_UNASKED) {
        f = (int)unit_find();
        atomic_store_explicit(&found, f, memory_order_relaxed);
    }
    return (unit_lack)f;
}

static bool
unit_ready(void)
{
    return unit_lacks() == UNIT_READY;
}

/* Why there is none. */
static const char *
unit_why_not(void)
{
    switch (unit_lacks()) {
    case UNIT_ABSENT:
        return "this processor has no matrix unit for bfloat16 (AMX-BF16)";
    case UNIT_UNKNOWN:
        return "the system does not keep the state of this processor's matrix "
               "unit (XCR0)";
    case UNIT_REFUSED:
        return "the system refused leave to use the matrix unit "
               "(arch_prctl ARCH_REQ_XCOMP_PERM): it does so where an "
               "alternate signal stack is too small for the unit's state, or "
               "a filter of system calls is in force";
    case UNIT_UNASKED:
    case UNIT_READY:
        break;
    }
    return "";
}

const mr_tier *
mr__tier_by_id(int id)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (id == MR_TIER_AVX512 && !(cpu_has_v3() && cpu_has_v4()))
        return NULL;
    if (id == MR_TIER_AVX2 && !cpu_has_v3())
        return NULL;
#endif
    return id >= 0 && id < MR_N_TIERS && tiers[id].name ? &tiers[id] : NULL;
}

const mr_tier *
mr__tier_or_none(int id)
{
    static const mr_tier none = {.name = "none"};
    const mr_tier *t = mr__tier_by_id(id);

    return t != NULL ? t : &none;
}

static const mr_tier *
best_tier(void)
{
    const mr_tier *t = NULL;

    for (int id = MR_N_TIERS - 1; t == NULL; id--)
        t = mr__tier_by_id(id);
    return t;
}

/* The tier that MARRAM_CPU names; the best one without the variable; NULL if
 * it cannot be. */
static const mr_tier *
wanted_tier(const char *name)
{
    if (name == NULL || name[0] == '\0')
        return best_tier();
    if (strcmp(name, WITH_UNIT) == 0)
        return unit_ready() ? best_tier() : NULL;
    for (int id = 0; id < MR_N_TIERS; id++) {
        const mr_tier *t = mr__tier_by_id(id);

        if (t != NULL && strcmp(t->name, name) == 0)
            return t;
    }
    return NULL;
}

/* Written with the same value by whoever is first; the tables are const, so
 * relaxed order is enough. */
static _Atomic(const mr_tier *) chosen;

const mr_tier *
mr__tier(void)
{
    const mr_tier *t = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (t == NULL) {
        t = wanted_tier(getenv("MARRAM_CPU"));
        if (t == NULL)
            t = best_tier();
        atomic_store_explicit(&chosen, t, memory_order_relaxed);
    }
    return t;
}

bool
mr__gemm_matrix(void)
{
    /* 1: no, 2: yes; relaxed, as the tier */
    static atomic_int wanted;
    int w = atomic_load_explicit(&wanted, memory_order_relaxed);

    if (w == 0) {
        const char *name = getenv("MARRAM_CPU");
        bool named = name != NULL && wanted_tier(name) != NULL &&
                     name[0] != '\0' && strcmp(name, WITH_UNIT) != 0;

        w = !named && unit_ready() ? 2 : 1;
        atomic_store_explicit(&wanted, w, memory_order_relaxed);
    }
    return w == 2;
}

/* The tiers of this machine, one after the other. */
static void
tiers_list(char *list)
{
    list[0] = '\0';
    for (int id = 0; id < MR_N_TIERS; id++)
        if (mr__tier_by_id(id)) {
            strcat(list, list[0] ? ", " : "");
            strcat(list, mr__tier_by_id(id)->name);
        }
    if (unit_ready())
        strcat(list, ", " WITH_UNIT);
}

const char *
mr__cpu_tier(void)
{
    const char *name = getenv("MARRAM_CPU");
    char list[64];

    if (wanted_tier(name) != NULL)
        return mr__gemm_matrix() ? WITH_UNIT : mr__tier()->name;
    tiers_list(list);
    if (strcmp(name, WITH_UNIT) == 0)
        return mr__fail_null(MR_E_VALUE,
                             "MARRAM_CPU is '%s', but %s; this machine has: %s",
                             name, unit_why_not(), list);
    return mr__fail_null(
        MR_E_VALUE, "MARRAM_CPU is '%s', but this machine has: %s", name, list);
}

void
mr__const_cast(const mr_const *from, mr_dtype from_dtype, mr_const *to,
               mr_dtype to_dtype)
{
    mr_const x = {.u64 = {0, 0}};

    if (from_dtype == to_dtype)
        x = *from;
    else
        mr__tier()->casts->cast[from_dtype][to_dtype](x.bytes, from->bytes, 1);
    *to = x;
}

void
mr__random_bits(uint32_t k0, uint32_t k1, uint64_t n_words, uint64_t first,
                uint64_t count, uint32_t *out)
{
    mr__tier()->random->bits(k0, k1, n_words, first, count, out);
}
