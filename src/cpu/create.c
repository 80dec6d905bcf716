/* SPDX-License-Identifier: Apache-2.0
 *
 * create.c -- operators that make their elements: arange, random_bits.
 *
 * Called by: device.c.  Calls: the tier's casts, kernels/random.h.
 */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"
#include "kernels/random.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

enum { CHUNK = 512, WORDS = 1 << 14 };

/* ---- arange
 * --------------------------------------------------------------------- */

typedef struct count {
    const mr_arange_params *p;
    char *to;
} count;

static void
arange_piece(void *ctx, int64_t begin, int64_t end)
{
    const count *c = ctx;
    const mr_arange_params *p = c->p;
    mr_cast_fn *const(*cast)[MR_N_DTYPES] = mr__tier()->casts->cast;
    int64_t item = mr__dtype_size(p->dtype), n;

    for (int64_t i = begin; i < end; i += n) {
        uint64_t whole[CHUNK];
        double real[CHUNK];

        n = end - i < CHUNK ? end - i : CHUNK;
        if (p->exact) {
            for (int64_t k = 0; k < n; k++)
                whole[k] = (uint64_t)p->istart +
                           (uint64_t)(i + k) * (uint64_t)p->istep;
            cast[MR_INT64][p->dtype](c->to + i * item, whole, n);
            continue;
        }
        for (int64_t k = 0; k < n; k++)
            real[k] = p->fstart + (double)(i + k) * p->fstep;
        if (i + n == p->n && !isnan(p->last))
            real[n - 1] = p->last;
        cast[MR_FLOAT64][p->dtype](c->to + i * item, real, n);
    }
}

mr_code
mr__cpu_arange(const mr_kernel_args *a)
{
    count c = {a->params, a->out[0].data};

    mr__cpu_for(a->out[0].size, mr__cpu_grain(1.0), arange_piece, &c);
    return MR_OK;
}

/* ---- random_bits
 * ------------------------------------------------------------------- */

typedef struct bits {
    const mr_kernel_view *key;
    mr_walk keys;
    char *to;
    int64_t bytes;   /* of one key's stream */
    int64_t n_words; /* that the stream is made of: the last may be cut */
    int64_t n_pieces;
} bits;

static void
bits_piece(void *ctx, int64_t begin, int64_t end)
{
    const bits *b = ctx;
    int64_t pair = b->key->stride[b->key->ndim - 1];

    for (int64_t u = begin; u < end; u++) {
        int64_t stream = u / b->n_pieces, first = u % b->n_pieces * WORDS;
        int64_t n = b->n_words - first < WORDS ? b->n_words - first : WORDS;
        bool cut = (first + n) * 4 > b->bytes;
        char *to = b->to + stream * b->bytes + first * 4;
        const uint32_t *key;
        uint32_t k0, k1, last;
        mr_walk w = b->keys;

        mr__walk_seek(&w, stream);
        key = (const uint32_t *)b->key->data + w.offset[0];
        k0 = key[0];
        k1 = key[pair];
        /* words may only be written to where words are */
        if ((uintptr_t)to % 4 != 0) {
            for (int64_t i = 0, m; i < n; i += m) {
                uint32_t words[CHUNK];
                int64_t left = b->bytes - (first + i) * 4;

                m = n - i < CHUNK ? n - i : CHUNK;
                mr__random_bits(k0, k1, (uint64_t)b->n_words,
                                (uint64_t)(first + i), (uint64_t)m, words);
                memcpy(to + i * 4, words,
                       (size_t)(left < m * 4 ? left : m * 4));
            }
            continue;
        }
        n -= cut ? 1 : 0;
        mr__random_bits(k0, k1, (uint64_t)b->n_words, (uint64_t)first,
                        (uint64_t)n, (uint32_t *)(void *)to);
        if (cut) {
            mr__random_bits(k0, k1, (uint64_t)b->n_words, (uint64_t)(first + n),
                            1, &last);
            memcpy(to + n * 4, &last, (size_t)(b->bytes - (first + n) * 4));
        }
    }
}

mr_code
mr__cpu_random_bits(const mr_kernel_args *a)
{
    const mr_random_bits_params *p = a->params;
    const mr_kernel_view *key = &a->in[0];
    uint32_t skip = 1U << (key->ndim - 1);
    bits b = {.key = key, .to = a->out[0].data, .bytes = p->width};
    int64_t n_keys;

    if (a->out[0].size == 0)
        return MR_OK;
    for (int64_t k = 0; k < p->shape.n; k++)
        b.bytes *= p->shape.v[k];
    b.n_words = (b.bytes + 3) / 4;
    b.n_pieces = (b.n_words - 1) / WORDS + 1;
    mr__walk_init(&b.keys, key->ndim, key->dim, skip);
    mr__walk_add(&b.keys, key->ndim, key->stride, skip);
    mr__walk_merge(&b.keys);
    n_keys = mr__walk_size(&b.keys);
    mr__cpu_for(
        n_keys * b.n_pieces,
        mr__cpu_grain(50.0 +
                      2.0 * (double)(b.n_words < WORDS ? b.n_words : WORDS)),
        bits_piece, &b);
    return MR_OK;
}
