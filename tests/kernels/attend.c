/* SPDX-License-Identifier: Apache-2.0
 *
 * attend.c -- steps of attention: masks turned as scores lie, the tiers with
 * fused multiply-add give equal bits whatever the masks, and weights in pieces
 * are the exponentials that they stand for.
 */
#include "support/base.h"

#include <math.h>
#include <string.h>

#include "kernels/attend.h"
#include "kernels/tier/tier.h"

enum { ROWS = 35, KEYS = 70, WIDTH = 32 };

static uint32_t
noise(uint32_t i)
{
    uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ULL;

    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ULL;
    return (uint32_t)(h >> 32);
}

static void
turn__puts_each_element_in_its_place(void **state)
{
    enum { FROM_ROW = KEYS + 3, TO_ROW = ROWS + 5 };
    static uint8_t from[ROWS * FROM_ROW * 4], to[KEYS * TO_ROW * 4];

    (void)state;
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)noise((uint32_t)i);
    for (int id = 0; id < MR_N_TIERS; id++)
        for (size_t log = 0; mr__attend_of_tier(id) && log < 3; log++)
            for (int64_t rows = 1; rows <= ROWS; rows += 1 + rows / 2) {
                size_t size = (size_t)1 << log;
                int64_t keys = KEYS - rows;

                memset(to, 0, sizeof to);
                mr__attend_of_tier(id)->turn[log](to, TO_ROW, from, FROM_ROW,
                                                  rows, keys);
                for (int64_t k = 0; k < KEYS; k++)
                    for (int64_t i = 0; i < TO_ROW; i++) {
                        static const uint8_t none[4] = {0};
                        bool there = k < keys && i < rows;
                        const uint8_t *want =
                            from + (size_t)(i * FROM_ROW + k) * size;

                        assert_memory_equal(to +
                                                (size_t)(k * TO_ROW + i) * size,
                                            there ? want : none, size);
                    }
            }
}

static void
step__gives_equal_bits_in_tiers(void **state)
{
    static uint8_t keep[KEYS * WIDTH];
    static float add[KEYS * WIDTH], s[2][KEYS * WIDTH];
    const mr_attend_tier *tiers[2] = {mr__attend_of_tier(MR_TIER_AVX2),
                                      mr__attend_of_tier(MR_TIER_AVX512)};
    float limit[WIDTH], top[2][WIDTH], sum[2][WIDTH], fade[2][WIDTH];

    (void)state;
    if (!tiers[0] || !tiers[1])
        skip();
    for (uint32_t i = 0; i < KEYS * WIDTH; i++) {
        keep[i] = noise(i) % 3 != 0;
        add[i] = (float)(int32_t)noise(i + 7) * 0x1p-30F;
    }
    for (uint32_t i = 0; i < WIDTH; i++)
        limit[i] = (float)(noise(i) % KEYS);
    for (int which = 0; which < 8; which++) {
        mr_attend_masks m = {which & 1 ? keep : NULL, which & 2 ? add : NULL,
                             which & 4 ? limit : NULL};

        for (int t = 0; t < 2; t++) {
            for (uint32_t i = 0; i < KEYS * WIDTH; i++)
                s[t][i] = (float)(int32_t)noise(i + 3) * 0x1p-29F;
            for (int i = 0; i < WIDTH; i++) {
                top[t][i] = -1.0F;
                sum[t][i] = 1.0F;
            }
            tiers[t]->step(s[t], WIDTH, KEYS, WIDTH, &m, 1.0F, top[t], sum[t],
                           fade[t]);
        }
        assert_memory_equal(s[0], s[1], sizeof s[0]);
        assert_memory_equal(top[0], top[1], sizeof top[0]);
        assert_memory_equal(sum[0], sum[1], sizeof sum[0]);
        assert_memory_equal(fade[0], fade[1], sizeof fade[0]);
        for (int i = 0; which == 5 && i < KEYS * WIDTH; i++)
            if (!keep[i] || (float)(i / WIDTH) > limit[i % WIDTH])
                assert_true(s[1][i] == 0.0F);
    }
}

/* Weight (k, c) of a right side in n pieces, keys k and k + apart a pair. */
static double
piece_sum(const float *to, int n, int apart, int k, int c)
{
    const uint16_t *halves = (const uint16_t *)(const void *)to;
    int in = k % 32, pair = apart == 1 ? in / 2 : in % 16;
    int high = apart == 1 ? in % 2 : in / 16;
    double sum = 0.0;

    for (int p = 0; p < n; p++) {
        int tile = (k / 32 * n + p) * 2 + c / 16;
        uint32_t bits =
            (uint32_t)halves[(tile * 256 + pair * 16 + c % 16) * 2 + high]
            << 16;
        float x;

        memcpy(&x, &bits, sizeof x);
        sum += (double)x;
    }
    return sum;
}

static void
split__gives_the_weights_in_pieces(void **state)
{
    static const int apart[] = {16, 16, 1}, pieces[] = {3, 2, 2};
    static const double within[] = {0x1p-22, 0x1p-15, 0x1p-15};
    const mr_attend_tier *tier = mr__attend_of_tier(MR_TIER_AVX512);
    static float from[KEYS * WIDTH], s[KEYS * WIDTH];
    static _Alignas(64) float to[96 * WIDTH * 3 / 2];
    static uint8_t keep[KEYS * WIDTH];

    (void)state;
    if (!tier || !tier->split[0])
        skip();
    for (uint32_t i = 0; i < KEYS * WIDTH; i++) {
        from[i] = (float)(int32_t)noise(i + 3) * 0x1p-29F;
        keep[i] = i % WIDTH != 7 && noise(i) % 3 != 0;
    }
    for (int kind = 0; kind < 3; kind++)
        for (int masked = 0; masked < 2; masked++) {
            mr_attend_masks m = {.keep = masked ? keep : NULL};
            float top[WIDTH], sum[WIDTH] = {0}, fade[WIDTH];

            memcpy(s, from, sizeof s);
            memset(to, 0x7F, sizeof to);
            for (int c = 0; c < WIDTH; c++)
                top[c] = -INFINITY;
            tier->split[kind](s, WIDTH, KEYS, WIDTH, &m, 0.5F, top, sum, fade,
                              to);
            for (int c = 0; c < WIDTH; c++) {
                double total = 0.0;

                for (int k = 0; k < 96; k++) {
                    double x,
                        w = piece_sum(to, pieces[kind], apart[kind], k, c);

                    if (k >= KEYS) {
                        assert_true(w == 0.0);
                        continue;
                    }
                    x = 0.5 * (double)from[k * WIDTH + c];
                    if (masked && !keep[k * WIDTH + c])
                        x = (double)MR_ATTEND_MASKED;
                    x = exp(x - (double)top[c]);
                    assert_true(fabs(w - x) <= within[kind] * x);
                    total += x;
                }
                assert_true(fabs((double)sum[c] - total) <=
                            within[kind] * total);
            }
        }
}

/* Scores of a panel of KEYS keys by WIDTH rows, with masks, as they lie for
 * attention and, a panel of WIDTH keys, for the way back. */
typedef struct tile {
    float s[KEYS * WIDTH], add[KEYS * WIDTH], limit[WIDTH];
    uint8_t keep[KEYS * WIDTH];
} tile;

static void
tile_fill(tile *x, float size)
{
    for (uint32_t i = 0; i < KEYS * WIDTH; i++) {
        x->s[i] = (float)(int32_t)noise(i + 3) * 0x1p-31F * size;
        x->add[i] = (float)(int32_t)noise(i + 7) * 0x1p-30F;
        x->keep[i] = i % WIDTH != 7 && noise(i) % 3 != 0;
    }
    for (uint32_t i = 0; i < WIDTH; i++)
        x->limit[i] = (float)(noise(i) % WIDTH);
}

static void
tile_turn(const tile *x, tile *to)
{
    for (int k = 0; k < WIDTH; k++)
        for (int i = 0; i < WIDTH; i++) {
            to->s[i * WIDTH + k] = x->s[k * WIDTH + i];
            to->add[i * WIDTH + k] = x->add[k * WIDTH + i];
            to->keep[i * WIDTH + k] = x->keep[k * WIDTH + i];
        }
    memcpy(to->limit, x->limit, sizeof to->limit);
}

static mr_attend_masks
tile_masks(const tile *x, int which)
{
    return (mr_attend_masks){.keep = which & 1 ? x->keep : NULL,
                             .add = which & 2 ? x->add : NULL,
                             .limit = which & 4 ? x->limit : NULL};
}

/* Of float32: rows of the weights that come back add up to 1 then, however
 * large scores are. */
static void
back_split__makes_the_weights_that_split_summed(void **state)
{
    enum { SIDE = WIDTH * WIDTH * 3 / 2 };
    static const float sizes[] = {2.0F, 3000.0F}, late[] = {0.3F, 3.0F, -1.0F};
    const mr_attend_tier *tier = mr__attend_of_tier(MR_TIER_AVX512);
    static _Alignas(64) float to[SIDE], weights[SIDE], slopes[SIDE], left[SIDE];
    static float g[WIDTH * WIDTH], ones[WIDTH], none[WIDTH];
    static tile x, y;
    mr_attend_pieces back = {weights, slopes, left, SIDE};

    (void)state;
    if (!tier || !tier->split[0])
        skip();
    for (int i = 0; i < WIDTH; i++)
        ones[i] = 1.0F;
    for (int at = 0; at < 8 * 2 * 3; at++) {
        float top[WIDTH], sum[WIDTH] = {0}, fade[WIDTH], by = late[at / 16];
        mr_attend_masks m, turned;

        tile_fill(&x, sizes[at / 8 % 2]);
        tile_turn(&x, &y);
        m = tile_masks(&x, at % 8);
        turned = tile_masks(&y, at % 8);
        for (int c = 0; c < WIDTH; c++)
            top[c] = -INFINITY;
        tier->split[0](x.s, WIDTH, WIDTH, WIDTH, &m, by, top, sum, fade, to);
        tier->back_split[0](y.s, g, WIDTH, WIDTH, &turned, by, top, ones, none,
                            &back);
        for (int k = 0; k < WIDTH; k++)
            for (int c = 0; c < WIDTH; c++) {
                double w = piece_sum(to, 3, 16, k, c);

                assert_true(w == piece_sum(weights, 3, 16, c, k));
                assert_true(w <= 1.0);
            }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turn__puts_each_element_in_its_place),
        cmocka_unit_test(step__gives_equal_bits_in_tiers),
        cmocka_unit_test(split__gives_the_weights_in_pieces),
        cmocka_unit_test(back_split__makes_the_weights_that_split_summed),
    };

    return cmocka_run_group_tests_name("kernels/attend", tests, NULL, NULL);
}
