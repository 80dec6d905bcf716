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

enum { CHUNK = 512, PAIRS = 1 << 13 };

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

/* A piece is PAIRS words of a stream's lower half and those as far into its
 * upper half: each block of the generator makes one of each.  The first piece
 * has the middle word of an odd stream too. */
typedef struct bits {
    const mr_kernel_view *key;
    mr_walk keys;
    char *to;
    int64_t bytes;   /* of one key's stream */
    int64_t n_words; /* that the stream is made of: the last may be cut */
    int64_t n_pieces;
} bits;

/* Words [first, first + n) of a stream at `to`, which may be no place for
 * words. */
static void
words_copy(const bits *b, const uint32_t *key, char *to, int64_t first,
           int64_t n)
{
    for (int64_t i = 0, m; i < n; i += m) {
        uint32_t words[CHUNK];
        int64_t left = b->bytes - (first + i) * 4;

        m = n - i < CHUNK ? n - i : CHUNK;
        mr__random_bits(key[0], key[1], (uint64_t)b->n_words,
                        (uint64_t)(first + i), (uint64_t)m, words);
        memcpy(to + (first + i) * 4, words,
               (size_t)(left < m * 4 ? left : m * 4));
    }
}

static void
bits_piece(void *ctx, int64_t begin, int64_t end)
{
    const bits *b = ctx;
    int64_t step = b->key->stride[b->key->ndim - 1];
    int64_t pairs = b->n_words / 2, upper = b->n_words - pairs;

    for (int64_t u = begin; u < end; u++) {
        int64_t stream = u / b->n_pieces, first = u % b->n_pieces * PAIRS;
        int64_t n = pairs - first < PAIRS ? pairs - first : PAIRS;
        char *to = b->to + stream * b->bytes;
        mr_walk w = b->keys;
        const uint32_t *at;
        uint32_t key[2];

        mr__walk_seek(&w, stream);
        at = (const uint32_t *)b->key->data + w.offset[0];
        key[0] = at[0];
        key[1] = at[step];
        if (first == 0 && upper > pairs)
            words_copy(b, key, to, pairs, 1);
        if ((uintptr_t)to % 4 != 0) {
            words_copy(b, key, to, first, n);
            words_copy(b, key, to, upper + first, n);
            continue;
        }
        if (n > 0 && (upper + first + n) * 4 > b->bytes) { /* a cut word */
            n--;
            words_copy(b, key, to, first + n, 1);
            words_copy(b, key, to, upper + first + n, 1);
        }
        mr__random_pairs()(key[0], key[1], (uint64_t)b->n_words,
                           (uint64_t)first, (uint64_t)n,
                           (uint32_t *)(void *)to + first,
                           (uint32_t *)(void *)to + upper + first, NULL);
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
    b.n_pieces = b.n_words < 2 ? 1 : (b.n_words / 2 - 1) / PAIRS + 1;
    mr__walk_init(&b.keys, key->ndim, key->dim, skip);
    mr__walk_add(&b.keys, key->ndim, key->stride, skip);
    mr__walk_merge(&b.keys);
    n_keys = mr__walk_size(&b.keys);
    mr__cpu_for(
        n_keys * b.n_pieces,
        mr__cpu_grain(50.0 + 1.0 * (double)(b.n_words < 2 * PAIRS ? b.n_words
                                                                  : 2 * PAIRS)),
        bits_piece, &b);
    return MR_OK;
}
