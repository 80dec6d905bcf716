/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pieces.c -- rows and packed rows to the matrix unit, over what the tier
 * gives.
 * Called by: cpu/quant_pieces.c.  Calls: the tier's kernels, quant.c, gemm.h.
 */
#include "kernels/quant_pieces.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

/* E8M0 bytes of scales that codes may go with: 2^-24 to 2^24. */
enum { LEAST_E8M0 = 127 - 24, MOST_E8M0 = 127 + 24 };

#if defined(__x86_64__)
/* All that have the unit have these; compilers that we support do not know both
 * by name. */
static bool
words_there(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c >> 1 & 1) &&
           (d >> 23 & 1); /* AVX512-VBMI, AVX512-FP16 */
}
#endif

/* Relaxed: every thread finds the same. */
static const mr_quant_pieces *
pieces_tier(void)
{
#if defined(__x86_64__)
    static atomic_int found; /* 1: no, 2: yes */
    int f = atomic_load_explicit(&found, memory_order_relaxed);

    if (f == 0) {
        f = mr__gemm_matrix() && words_there() ? 2 : 1;
        atomic_store_explicit(&found, f, memory_order_relaxed);
    }
    return f == 2 ? &mr__quant_pieces_avx512 : NULL;
#else
    return NULL;
#endif
}

bool
mr__quant_pieces_pay(const mr_quant_format *f, int64_t cols)
{
    return f->group <= MR_QUANT_PIECES_DEPTH &&
           (f->group >= MR_QUANT_PIECES_STEP || mr__quant_pieces_scaled(f)) &&
           cols % MR_QUANT_PIECES_STEP == 0 && pieces_tier() != NULL;
}

int
mr__quant_pieces_of(mr_dtype t)
{
    return t == MR_FLOAT32 ? 3 : t == MR_FLOAT16 ? 2 : 1;
}

uint32_t
mr__quant_pieces_pack(const mr_quant_format *f, const mr_quant_x *p)
{
    return pieces_tier()->pack(mr__quant_kind(f), f->group, p);
}

float
mr__quant_pieces_factor(const mr_quant_format *f)
{
    /* x is raised by 2^86, codes are lowered by 2^105 and 2^112 */
    return f->code == MR_CODE_E4M3   ? 0x1p19F
           : f->code == MR_CODE_E2M1 ? 1.0F
                                     : 0x1p26F;
}

bool
mr__quant_pieces_scaled(const mr_quant_format *f)
{
    return f->code == MR_CODE_E2M1;
}

/* By the kind of scale; written once. */
static uint16_t values[2][256][16];
static pthread_once_t values_made = PTHREAD_ONCE_INIT;

static void
values_make(void)
{
    for (int k = 0; k < 2; k++)
        for (int b = 0; b < 256; b++)
            for (uint32_t c = 0; c < 16; c++) {
                mr_quant_format f = {.code = MR_CODE_E2M1,
                                     .scale =
                                         k ? MR_SCALE_E4M3 : MR_SCALE_E8M0};
                float x = mr__quant_element(&f, c) *
                          mr__quant_scale_byte(f.scale, (uint8_t)b);
                uint32_t bits;

                memcpy(&bits, &x, sizeof bits);
                values[k][b][c] = (uint16_t)(bits >> 16);
            }
}

const uint16_t (*mr__quant_pieces_values(const mr_quant_format *f))[16]
{
    pthread_once(&values_made, values_make);
    return (const uint16_t(*)[16])values[f->scale == MR_SCALE_E4M3];
}

bool
mr__quant_pieces_in_range(const mr_quant_matrix *w, int64_t row0, int64_t n)
{
    int64_t per_row = w->cols / w->f.group;
    const uint8_t *scale = (const uint8_t *)w->scales + row0 * per_row;
    uint8_t least = 255, most = 0;

    if (w->f.scale != MR_SCALE_E8M0)
        return true;
    for (int64_t i = 0; i < n * per_row; i++) {
        least = scale[i] < least ? scale[i] : least;
        most = scale[i] > most ? scale[i] : most;
    }
    return least >= LEAST_E8M0 && most <= MOST_E8M0;
}

void
mr__quant_pieces_codes(const mr_quant_matrix *w, const mr_quant_codes *c)
{
    int form = c->values == NULL  ? (int)mr__quant_kind(&w->f)
               : w->f.group == 16 ? MR_N_QUANT_KINDS + 1
                                  : MR_N_QUANT_KINDS;

    pieces_tier()->codes[form](c);
}

void
mr__quant_pieces_enter(void)
{
#if defined(__x86_64__)
    mr__gemm_matrix_avx512.enter();
#endif
}

void
mr__quant_pieces_leave(void)
{
#if defined(__x86_64__)
    mr__gemm_matrix_avx512.leave();
#endif
}

void
mr__quant_pieces_multiply(const mr_quant_groups *g)
{
    pieces_tier()->multiply[g->pieces - 1][g->blocks - 1](g);
}

void
mr__quant_pieces_scale(const mr_quant_scaling *s)
{
    pieces_tier()->scale[s->blocks - 1](s);
}
