/* SPDX-License-Identifier: Apache-2.0
 *
 * random.c -- words of the Threefry-2x32 generator (20 rounds; J. Salmon et
 * al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
 *
 * A stream of N words pairs its counters: with h = N / 2 rounded up, the block
 * of counter (i, h + i) gives words i and h + i; for odd N the middle word
 * h - 1 is the first output of the block (h - 1, 0).
 */
#include "kernels/random.h"

#define MR_LANE_BITS     32
#define MR_LANE_UNSIGNED 1
#include "kernels/tier/lanes.h"

/* Blocks side by side: each is one long chain of operations that wait for each
 * other, and a few of them together leave no gaps (AVX-512: 0.37 ns a word
 * where one at a time takes 0.49). */
#define SIDE 4

typedef struct blocks {
    R x0[SIDE], x1[SIDE];
} blocks;

INLINE R
rotate(R x, int r)
{
    return (x << r) | (x >> (32 - r));
}

/* The first n of x; n is known where this is expanded. */
INLINE void
threefry(uint32_t k0, uint32_t k1, blocks *x, int n)
{
    static const uint8_t rotation[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    uint32_t key[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDAU};

#pragma GCC unroll 4
    for (int s = 0; s < n; s++) {
        x->x0[s] += v_set(k0);
        x->x1[s] += v_set(k1);
    }
#pragma GCC unroll 5
    for (int i = 0; i < 5; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
#pragma GCC unroll 4
            for (int s = 0; s < n; s++)
                x->x0[s] += x->x1[s];
#pragma GCC unroll 4
            for (int s = 0; s < n; s++)
                x->x1[s] = rotate(x->x1[s], rotation[i & 1][j]) ^ x->x0[s];
        }
#pragma GCC unroll 4
        for (int s = 0; s < n; s++) {
            x->x0[s] += v_set(key[(i + 1) % 3]);
            x->x1[s] += v_set(key[(i + 2) % 3] + (uint32_t)i + 1);
        }
    }
}

/* The blocks of the counters (c, c + offset), and so on. */
INLINE blocks
blocks_from(uint32_t k0, uint32_t k1, uint64_t c, uint32_t offset, int n)
{
    R number;
    blocks x;

    memcpy(&number, lane_number, sizeof number);
#pragma GCC unroll 4
    for (int s = 0; s < n; s++) {
        uint32_t first = (uint32_t)c + (uint32_t)(s * N_LANES);

        x.x0[s] = number + v_set(first);
        x.x1[s] = number + v_set(first + offset);
    }
    threefry(k0, k1, &x, n);
    return x;
}

/* Words [first, first + count) of one half of the stream: word j is output
 * `second` of the block of counter (j - base, offset + j - base). */
INLINE void
half_words(uint32_t k0, uint32_t k1, uint64_t j, uint64_t count,
           uint32_t offset, bool second, uint32_t *out)
{
    uint64_t i = 0;

    for (; i + SIDE * N_LANES <= count; i += SIDE * N_LANES) {
        blocks x = blocks_from(k0, k1, j + i, offset, SIDE);

#pragma GCC unroll 4
        for (int s = 0; s < SIDE; s++)
            v_store(out + i + s * N_LANES, second ? x.x1[s] : x.x0[s]);
    }
    for (; i < count; i += N_LANES) {
        blocks x = blocks_from(k0, k1, j + i, offset, 1);

        v_store_n(out + i, second ? x.x1[0] : x.x0[0], (int64_t)(count - i));
    }
}

/* What goes with the words of SIDE blocks, from word i on. */
INLINE void
foresee(const mr_foreseen *ahead, uint64_t i)
{
    for (int k = 0; k < ahead->n; k++) {
        const char *p = ahead->at[k] + (int64_t)i * ahead->size[k];

        for (int64_t b = 0; b < SIDE * N_LANES * ahead->size[k]; b += 64)
            __builtin_prefetch(p + b);
    }
}

/* Both halves at once, for the blocks [j, j + count). */
INLINE void
both_words(uint32_t k0, uint32_t k1, uint64_t j, uint64_t count,
           uint32_t offset, uint32_t *low, uint32_t *high,
           const mr_foreseen *ahead)
{
    uint64_t i = 0;

    for (; i + SIDE * N_LANES <= count; i += SIDE * N_LANES) {
        blocks x = blocks_from(k0, k1, j + i, offset, SIDE);

        if (ahead != NULL)
            foresee(ahead, i);
#pragma GCC unroll 4
        for (int s = 0; s < SIDE; s++) {
            v_store(low + i + s * N_LANES, x.x0[s]);
            v_store(high + i + s * N_LANES, x.x1[s]);
        }
    }
    for (; i < count; i += N_LANES) {
        blocks x = blocks_from(k0, k1, j + i, offset, 1);

        v_store_n(low + i, x.x0[0], (int64_t)(count - i));
        v_store_n(high + i, x.x1[0], (int64_t)(count - i));
    }
}

static void
bits(uint32_t k0, uint32_t k1, uint64_t n_words, uint64_t first, uint64_t count,
     uint32_t *out)
{
    uint64_t pairs = n_words / 2, upper = n_words - pairs;
    uint64_t end = first + count;
    uint32_t offset = (uint32_t)upper;
    uint64_t low_end = end < pairs ? end : pairs;
    uint64_t high = first > upper ? first : upper;

    if (first == 0 && count == n_words) {
        both_words(k0, k1, 0, pairs, offset, out, out + upper, NULL);
    } else {
        if (first < low_end)
            half_words(k0, k1, first, low_end - first, offset, false, out);
        if (high < end)
            half_words(k0, k1, high - upper, end - high, offset, true,
                       out + (high - first));
    }
    if (upper > pairs && first <= pairs && pairs < end) {
        blocks x = {.x0 = {v_set((uint32_t)pairs)}, .x1 = {v_set(0)}};

        threefry(k0, k1, &x, 1);
        v_store_n(out + (pairs - first), x.x0[0], 1);
    }
}

static void
halves(uint32_t k0, uint32_t k1, uint64_t n_words, uint64_t first,
       uint64_t count, uint32_t *low, uint32_t *high, const mr_foreseen *ahead)
{
    both_words(k0, k1, first, count, (uint32_t)(n_words - n_words / 2), low,
               high, ahead);
}

const mr_tier_random MR_TIER_SYM(mr__tier_random) = {.bits = bits,
                                                     .pairs = halves};
