/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_digits.c -- few rows as digits, over what the tier gives.
 * Called by: quant.c.  Calls: the tier's kernels.
 */
#include "kernels/quant_digits.h"

#include <stdatomic.h>

#include "kernels/tier/tier.h"

/* AMD's cores take subnormal multiply-adds as they come (quant.c), of which 16
 * codes need one; Intel's do not.  Relaxed: every thread finds the same. */
static const mr_quant_digits *
digits_tier(void)
{
#if defined(__x86_64__)
    static atomic_int found; /* 1: no, 2: yes */
    int f = atomic_load_explicit(&found, memory_order_relaxed);

    if (mr__tier()->id == MR_TIER_AVX2)
        return &mr__quant_digits_avx2;
    if (f == 0) {
        f = __builtin_cpu_supports("avx512vnni") &&
                    __builtin_cpu_supports("avx512vbmi") &&
                    __builtin_cpu_supports("gfni") && !__builtin_cpu_is("amd")
                ? 2
                : 1;
        atomic_store_explicit(&found, f, memory_order_relaxed);
    }
    return f == 2 && mr__tier()->id == MR_TIER_AVX512 ? &mr__quant_digits_avx512
                                                      : NULL;
#else
    return NULL;
#endif
}

bool
mr__quant_digits_pay(const mr_quant_format *f)
{
    const mr_quant_digits *t = digits_tier();

    return t && t->dot[mr__quant_kind(f)][0];
}

int64_t
mr__quant_digits_floats(const mr_quant_format *f, int64_t k)
{
    const mr_quant_digits *t = digits_tier();
    mr_quant_kind kind = mr__quant_kind(f);

    return (k + t->codes[kind] - 1) / t->codes[kind] * t->floats[kind];
}

bool
mr__quant_digits_arrange(const mr_quant_format *f, int64_t cols, const float *x,
                         float *to)
{
    return digits_tier()->arrange(mr__quant_kind(f), f->group, cols, x, to);
}

bool
mr__quant_digits_bytes(const mr_quant_format *f, const uint8_t *from, int64_t n)
{
    bool e4m3 = f->scale == MR_SCALE_E4M3;

    return f->code == MR_CODE_E2M1 && mr__quant_scale_bytes(f->scale) == 1 &&
           (!e4m3 || f->group == 16) && digits_tier()->bytes_fit &&
           digits_tier()->bytes_fit(f->scale, from, n);
}

mr_quant_dot_fn *const *
mr__quant_digits_dot(const mr_quant_format *f)
{
    return digits_tier()->dot[mr__quant_kind(f)];
}
