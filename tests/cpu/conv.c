/* SPDX-License-Identifier: Apache-2.0
 *
 * conv.c -- convolution on the CPU against its definition.
 */
#include "cpu/kernel_run.h"

/* Everything of up to three axes; unused ones have size 1. */
typedef struct shape {
    int n;
    int64_t batch, channels, outputs, groups;
    int64_t in[3], kernel[3], stride[3], low[3], high[3], dilation[3],
        spread[3];
    bool flip;
} shape;

static int64_t
out_size(const shape *s, int k)
{
    int64_t in = s->in[k] > 0 ? (s->in[k] - 1) * s->spread[k] + 1 : 0;
    int64_t reach = (s->kernel[k] - 1) * s->dilation[k] + 1;

    return (in + s->low[k] + s->high[k] - reach) / s->stride[k] + 1;
}

/* The entry of x below a tap, or 0. */
static double
entry(const shape *s, const arr *x, int64_t batch, const int64_t *out,
      const int64_t *tap, int64_t channel)
{
    int64_t at = batch;

    for (int k = 0; k < s->n; k++) {
        int64_t t = s->flip ? s->kernel[k] - 1 - tap[k] : tap[k];
        int64_t p = out[k] * s->stride[k] + t * s->dilation[k] - s->low[k];

        if (p < 0 || p % s->spread[k] != 0 || p / s->spread[k] >= s->in[k])
            return 0.0;
        at = at * s->in[k] + p / s->spread[k];
    }
    return arr_get(x, at * s->channels + channel);
}

static void
digits(int n, const int64_t *dim, int64_t i, int64_t *to)
{
    for (int k = n - 1; k >= 0; k--) {
        to[k] = i % dim[k];
        i /= dim[k];
    }
}

static void
conv_check(const shape *s, const arr *x, const arr *w, const arr *out)
{
    int64_t taps = 1, per_group = s->channels / s->groups, places = 1, size[3];

    for (int k = 0; k < s->n; k++) {
        taps *= s->kernel[k];
        size[k] = out_size(s, k);
        places *= size[k];
    }
    for (int64_t i = 0; i < out->view.size; i++) {
        int64_t o = i % s->outputs, place = i / s->outputs % places;
        int64_t batch = i / s->outputs / places;
        int64_t group = o / (s->outputs / s->groups), at[3], tap[3];
        double sum = 0.0;

        digits(s->n, size, place, at);
        for (int64_t t = 0; t < taps; t++) {
            digits(s->n, s->kernel, t, tap);
            for (int64_t c = 0; c < per_group; c++)
                sum += entry(s, x, batch, at, tap, group * per_group + c) *
                       arr_get(w, (o * taps + t) * per_group + c);
        }
        assert_close(arr_get(out, i), rounded(out->view.dtype, sum), 0.0);
    }
}

static void
conv_case(mr_dtype t, shape s)
{
    int64_t x_dim[5] = {s.batch}, w_dim[5] = {s.outputs},
            out_dim[5] = {s.batch};
    mr_conv_params p = {
        {s.stride, s.n}, {s.low, s.n}, {s.high, s.n}, {s.dilation, s.n},
        {s.spread, s.n}, s.groups,     s.flip};
    arr *x, *w, *out;

    for (int k = 0; k < s.n; k++) {
        x_dim[1 + k] = s.in[k];
        w_dim[1 + k] = s.kernel[k];
        out_dim[1 + k] = out_size(&s, k);
    }
    x_dim[s.n + 1] = s.channels;
    w_dim[s.n + 1] = s.channels / s.groups;
    out_dim[s.n + 1] = s.outputs;
    x = arr_new(t, GAPPED, s.n + 2, x_dim);
    w = arr_new(t, TURNED, s.n + 2, w_dim);
    out = arr_new(t, PLAIN, s.n + 2, out_dim);
    arr_count(x, 1);
    arr_count(w, 2);
    assert_int_equal(RUN(MR_OP_CONV_GENERAL, &p, out, x, w), MR_OK);
    conv_check(&s, x, w, out);
    arr_free(x);
    arr_free(w);
    arr_free(out);
}

static void
conv__is_right_for_all_parameters(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT16, MR_BFLOAT16, MR_FLOAT32,
                                     MR_FLOAT64};

    (void)state;
    for (int t = 0; t < 4; t++)
        for (int flip = 0; flip < 2; flip++) {
            conv_case(types[t], (shape){.n = 1,
                                        .batch = 2,
                                        .channels = 3,
                                        .outputs = 5,
                                        .groups = 1,
                                        .in = {17},
                                        .kernel = {3},
                                        .stride = {2},
                                        .low = {1},
                                        .high = {2},
                                        .dilation = {2},
                                        .spread = {1},
                                        .flip = flip});
            conv_case(types[t], (shape){.n = 2,
                                        .batch = 2,
                                        .channels = 4,
                                        .outputs = 6,
                                        .groups = 2,
                                        .in = {9, 11},
                                        .kernel = {3, 2},
                                        .stride = {1, 2},
                                        .low = {1, 0},
                                        .high = {0, 1},
                                        .dilation = {1, 3},
                                        .spread = {2, 1},
                                        .flip = flip});
            conv_case(types[t], (shape){.n = 3,
                                        .batch = 1,
                                        .channels = 2,
                                        .outputs = 3,
                                        .groups = 1,
                                        .in = {4, 5, 6},
                                        .kernel = {2, 3, 2},
                                        .stride = {1, 1, 2},
                                        .low = {1, 1, 0},
                                        .high = {1, 0, 2},
                                        .dilation = {1, 1, 1},
                                        .spread = {1, 2, 1},
                                        .flip = flip});
            /* cropped: negative padding */
            conv_case(types[t], (shape){.n = 1,
                                        .batch = 1,
                                        .channels = 1,
                                        .outputs = 1,
                                        .groups = 1,
                                        .in = {12},
                                        .kernel = {3},
                                        .stride = {1},
                                        .low = {-2},
                                        .high = {-1},
                                        .dilation = {1},
                                        .spread = {1},
                                        .flip = flip});
        }
}

/* One tap needs no patches; a group for each channel; several chunks of
 * patches. */
static void
conv__is_right_for_special_shapes(void **state)
{
    (void)state;
    conv_case(MR_FLOAT32, (shape){.n = 2,
                                  .batch = 3,
                                  .channels = 20,
                                  .outputs = 33,
                                  .groups = 1,
                                  .in = {7, 9},
                                  .kernel = {1, 1},
                                  .stride = {1, 1},
                                  .dilation = {1, 1},
                                  .spread = {1, 1}});
    conv_case(MR_BFLOAT16, (shape){.n = 2,
                                   .batch = 1,
                                   .channels = 8,
                                   .outputs = 8,
                                   .groups = 8,
                                   .in = {10, 10},
                                   .kernel = {3, 3},
                                   .stride = {1, 1},
                                   .low = {1, 1},
                                   .high = {1, 1},
                                   .dilation = {1, 1},
                                   .spread = {1, 1}});
    conv_case(MR_FLOAT64, (shape){.n = 2,
                                  .batch = 1,
                                  .channels = 40,
                                  .outputs = 2,
                                  .groups = 1,
                                  .in = {60, 61},
                                  .kernel = {5, 5},
                                  .stride = {1, 1},
                                  .low = {2, 2},
                                  .high = {2, 2},
                                  .dilation = {1, 1},
                                  .spread = {1, 1}});
}

/* One channel, one filter: pieces, blocks of taps, zeros around. */
static void
conv__is_right_along_a_line(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT64, MR_FLOAT16,
                                     MR_BFLOAT16};
    static const int64_t in[] = {2, 9, 700, 2500}, taps[] = {2, 5, 64, 130};

    (void)state;
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 4; k++)
                for (int flip = 0; flip < 2; flip++)
                    conv_case(types[t], (shape){.n = 1,
                                                .batch = 2,
                                                .channels = 1,
                                                .outputs = 1,
                                                .groups = 1,
                                                .in = {in[i]},
                                                .kernel = {taps[k]},
                                                .stride = {1},
                                                .dilation = {1},
                                                .spread = {1},
                                                .low = {taps[k] - 1},
                                                .high = {taps[k] / 2},
                                                .flip = flip});
}

/* Positions side by side: whole and cut tiles, taps in one, two or three
 * pieces, steps and gaps, one and several outputs a channel, bands. */
static void
conv__is_right_in_groups_of_one_channel(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT64, MR_FLOAT16,
                                     MR_BFLOAT16};
    static const int64_t taps[] = {1, 2, 3, 4, 5, 7, 11};

    (void)state;
    for (int t = 0; t < 4; t++)
        for (int k = 0; k < 7; k++)
            for (int i = t & 1; i < 16; i += 1 + (t > 0))
                conv_case(types[t],
                          (shape){.n = 2,
                                  .batch = 1,
                                  .channels = i & 4 ? 16 : 21,
                                  .outputs = (i & 4 ? 16 : 21) * (1 + t % 2),
                                  .groups = i & 4 ? 16 : 21,
                                  .in = {4, 67},
                                  .kernel = {2, taps[k]},
                                  .stride = {1, i & 1 ? 2 : 1},
                                  .low = {1, taps[k] / 2},
                                  .high = {0, taps[k]},
                                  .dilation = {1, i & 2 ? 3 : 1},
                                  .spread = {1, 1},
                                  .flip = i & 8});
    conv_case(MR_FLOAT16, (shape){.n = 1,
                                  .batch = 2,
                                  .channels = 530,
                                  .outputs = 1060,
                                  .groups = 530,
                                  .in = {70},
                                  .kernel = {3},
                                  .stride = {1},
                                  .low = {1},
                                  .high = {1},
                                  .dilation = {1},
                                  .spread = {1}});
}

/* Enough lines that tiles go down some of them, bands of channels, the last
 * lines and channels fewer. */
static void
conv__is_right_down_lines_of_one_channel(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT64, MR_BFLOAT16};

    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 8; i++)
            conv_case(types[t], (shape){.n = 2,
                                        .batch = 3,
                                        .channels = i & 4 ? 330 : 36,
                                        .outputs = i & 4 ? 330 : 36,
                                        .groups = i & 4 ? 330 : 36,
                                        .in = {37, 25},
                                        .kernel = {3, i & 2 ? 5 : 3},
                                        .stride = {1, 1},
                                        .low = {1, 1},
                                        .high = {1, 1},
                                        .dilation = {1, 1},
                                        .spread = {1, 1},
                                        .flip = i & 1});
}

/* Two groups of a vector of outputs at a time, and one that is left. */
static void
conv__is_right_in_pairs_of_groups(void **state)
{
    (void)state;
    for (int groups = 2; groups < 6; groups++)
        for (int each = 4; each <= 17; each += each < 8 ? 1 : 3)
            conv_case(MR_FLOAT32, (shape){.n = 2,
                                          .batch = 1,
                                          .channels = groups * (each + 5),
                                          .outputs = groups * each,
                                          .groups = groups,
                                          .in = {7, 11},
                                          .kernel = {3, 3},
                                          .stride = {1, 1},
                                          .low = {1, 1},
                                          .high = {1, 1},
                                          .dilation = {1, 1},
                                          .spread = {1, 1}});
}

/* Taps are lanes: pieces that overlap or lie apart, cut at both ends, wider
 * than a panel, deeper than a chunk. */
static void
conv__is_right_for_few_outputs(void **state)
{
    static const int64_t taps[] = {2, 3, 7, 30};

    (void)state;
    for (int k = 0; k < 4; k++)
        for (int i = k; i < 24; i += 3)
            conv_case(MR_FLOAT32, (shape){.n = 2,
                                          .batch = 2,
                                          .channels = i == 4 ? 200 : 9,
                                          .outputs = i & 2 ? 3 : 8,
                                          .groups = 1,
                                          .in = {3, 48 + i},
                                          .kernel = {3, taps[k]},
                                          .stride = {i & 1 ? 2 : 1, 1},
                                          .low = {1, i & 4 ? -3 : taps[k] / 2},
                                          .high = {2, i & 4 ? -2 : taps[k] + 3},
                                          .dilation = {1, 1},
                                          .spread = {1 + i % 2, 1 + i / 8},
                                          .flip = i & 8});
    conv_case(MR_FLOAT32, (shape){.n = 3,
                                  .batch = 1,
                                  .channels = 8,
                                  .outputs = 1,
                                  .groups = 1,
                                  .in = {3, 4, 9},
                                  .kernel = {2, 3, 4},
                                  .stride = {1, 1, 1},
                                  .low = {1, 1, 3},
                                  .high = {1, 1, 3},
                                  .dilation = {1, 1, 1},
                                  .spread = {1, 1, 2},
                                  .flip = true});
}

/* Enough lines that their ends are taken together: one or more outputs at each,
 * steps, gaps, crops and taps in reverse, lines that a unit does not divide. */
static void
conv__is_right_at_the_ends_of_many_lines(void **state)
{
    static const int64_t taps[] = {3, 5, 16};

    (void)state;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 16; i++)
            conv_case(MR_FLOAT32, (shape){.n = 2,
                                          .batch = 1,
                                          .channels = 16 << (i == 5),
                                          .outputs = i & 4 ? 18 : 8,
                                          .groups = i == 5 ? 2 : 1,
                                          .in = {197, i & 1 ? 27 : 14},
                                          .kernel = {2, taps[k]},
                                          .stride = {1, i & 1 ? 2 : 1},
                                          .low = {1, i == 9 ? -1 : taps[k] / 2},
                                          .high = {0, taps[k] - 1},
                                          .dilation = {1, i & 2 ? 2 : 1},
                                          .spread = {1, 1},
                                          .flip = i & 8});
    conv_case(MR_FLOAT32, (shape){.n = 3,
                                  .batch = 3,
                                  .channels = 16,
                                  .outputs = 20,
                                  .groups = 1,
                                  .in = {5, 17, 10},
                                  .kernel = {3, 3, 3},
                                  .stride = {1, 1, 1},
                                  .low = {1, 1, 1},
                                  .high = {1, 1, 1},
                                  .dilation = {1, 1, 1},
                                  .spread = {1, 1, 1}});
}

/* Narrow groups, in halves of a vector and in some tiles at a time. */
static void
conv__is_right_in_narrow_groups(void **state)
{
    static const int64_t each[] = {3, 8, 11, 16, 17};

    (void)state;
    for (int e = 0; e < 5; e++)
        for (int wide = 0; wide < 3; wide++)
            conv_case(MR_FLOAT32, (shape){.n = 3,
                                          .batch = 1,
                                          .channels = 12 << wide,
                                          .outputs = each[e] * 6,
                                          .groups = 6,
                                          .in = {4, 5, 14},
                                          .kernel = {1, 2, 3},
                                          .stride = {1, 1, 1},
                                          .low = {0, 1, 1},
                                          .high = {0, 0, 1},
                                          .dilation = {1, 1, 1},
                                          .spread = {1, 1, 1},
                                          .flip = wide == 1});
}

/* Sides that squares of two do not divide, crops, taps in reverse, panels and
 * vectors in part, few and many layers, taps of layers beyond both ends. */
static void
conv__is_right_in_squares(void **state)
{
    static const int64_t outputs[] = {16, 17, 34, 70};
    static const int64_t deep[] = {1, 2, 3, 7};

    (void)state;
    for (int i = 0; i < 8; i++) {
        conv_case(MR_FLOAT32, (shape){.n = 2,
                                      .batch = 1 + (i == 2),
                                      .channels = 16 + 4 * (i % 3),
                                      .outputs = outputs[i / 2],
                                      .groups = 1,
                                      .in = {13 + i % 2, 14 + i / 2 % 2},
                                      .kernel = {3, 3},
                                      .stride = {1, 1},
                                      .low = {1 + i / 4, i == 5 ? -1 : 2},
                                      .high = {1, i == 6 ? -1 : i % 4},
                                      .dilation = {1, 1},
                                      .spread = {1, 1},
                                      .flip = i & 1});
        conv_case(MR_FLOAT32,
                  (shape){.n = 3,
                          .batch = 1 + (i == 1),
                          .channels = 16,
                          .outputs = i & 4 ? 18 : 16,
                          .groups = 1,
                          .in = {i == 2 ? 18 : 6, 5 + i % 2, 6 + i / 2 % 2},
                          .kernel = {deep[i % 4], 3, 3},
                          .stride = {1, 1, 1},
                          .low = {i == 5 ? -1 : deep[i % 4] / 2, 1, 1},
                          .high = {i / 2, 1, 1},
                          .dilation = {1, 1, 1},
                          .spread = {1, 1, 1},
                          .flip = i & 1});
    }
}

/* Steps of 32 depths and panels of 32 outputs, whole and in part, of all that
 * goes on a matrix unit where there is one. */
static void
conv__is_right_in_steps_and_panels(void **state)
{
    static const mr_dtype types[] = {MR_BFLOAT16, MR_FLOAT16, MR_FLOAT32};
    static const int64_t channels[] = {32, 40, 64, 5};

    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 8; i++)
            conv_case(types[t],
                      (shape){.n = 2,
                              .batch = 1 + i % 3,
                              .channels = channels[i % 4] * (1 + i / 4),
                              .outputs = 34 + 16 * (i % 3),
                              .groups = 1 + i / 4,
                              .in = {9 + i, 21 + 3 * i},
                              .kernel = {3, 2 + i % 2},
                              .stride = {1 + i % 2, 1 + i / 3},
                              .low = {1, i % 4},
                              .high = {i % 2, 2},
                              .dilation = {1, 1 + i / 6},
                              .spread = {1 + i % 3 / 2, 1 + i % 2},
                              .flip = i & 1});
}

/* Squares of 2 x 2 in 14 x 15 outputs. */
enum { HIGH = 16, WIDE = 17, SIDE = 16, LINE = WIDE * SIDE };

static const mr_conv_params no_edges = {{(const int64_t[]){1, 1}, 2},
                                        {(const int64_t[]){0, 0}, 2},
                                        {(const int64_t[]){0, 0}, 2},
                                        {(const int64_t[]){1, 1}, 2},
                                        {(const int64_t[]){1, 1}, 2},
                                        1,
                                        false};

/* Numbers from -1 to 1. */
static void
arr_draw(arr *x, uint32_t seed)
{
    for (int64_t i = 0; i < x->view.size; i++) {
        seed = seed * 1664525U + 1013904223U;
        arr_set(x, i, (double)(seed >> 8) / 8388608.0 - 1.0);
    }
}

/* How many outputs have the bits of a line alone, which has no squares? */
static int64_t
alike(const arr *x, arr *w, const arr *out)
{
    int64_t n = 0, line = (WIDE - 2) * SIDE;
    arr *part = ARR(MR_FLOAT32, PLAIN, 1, 3, WIDE, SIDE);
    arr *made = ARR(MR_FLOAT32, PLAIN, 1, 1, WIDE - 2, SIDE);

    for (int64_t i = 0; i < HIGH - 2; i++) {
        memcpy(part->memory, x->memory + i * LINE * 4, 3 * LINE * 4);
        assert_int_equal(RUN(MR_OP_CONV_GENERAL, &no_edges, made, part, w),
                         MR_OK);
        for (int64_t k = 0; k < line; k++)
            n += arr_get(made, k) == arr_get(out, i * line + k);
    }
    arr_free(part);
    arr_free(made);
    return n;
}

static void
conv__squares_leave_unlike_sizes_to_taps(void **state)
{
    const int64_t all = (HIGH - 2) * (WIDE - 2) * SIDE;
    arr *x = ARR(MR_FLOAT32, PLAIN, 1, HIGH, WIDE, SIDE);
    arr *w = ARR(MR_FLOAT32, PLAIN, SIDE, 3, 3, SIDE);
    arr *out = ARR(MR_FLOAT32, PLAIN, 1, HIGH - 2, WIDE - 2, SIDE);
    int64_t before;

    (void)state;
    arr_draw(x, 1);
    arr_draw(w, 2);
    RUN(MR_OP_CONV_GENERAL, &no_edges, out, x, w);
    before = alike(x, w, out);
    assert_true(before < all / 2);
    arr_set(x, 7 * LINE + 100, 1e8); /* a number far larger */
    RUN(MR_OP_CONV_GENERAL, &no_edges, out, x, w);
    assert_true(alike(x, w, out) >= before + 4 * SIDE);
    assert_true(alike(x, w, out) < all);
    arr_draw(x, 1);
    for (int64_t i = 0; i < SIDE; i++) /* a tap of an output */
        arr_set(w, 5 * 9 * SIDE + 2 * SIDE + i, 0.0);
    RUN(MR_OP_CONV_GENERAL, &no_edges, out, x, w);
    assert_int_equal(alike(x, w, out), all);
    arr_draw(w, 2);
    arr_set(w, 77, (double)INFINITY);
    arr_set(x, 0, 1.0);
    RUN(MR_OP_CONV_GENERAL, &no_edges, out, x, w);
    assert_true(isinf(arr_get(out, 0)));
    arr_free(x);
    arr_free(w);
    arr_free(out);
}

static void
conv__one_tap_moves_its_input(void **state)
{
    arr *x = ARR(MR_FLOAT32, PLAIN, 1, HIGH, WIDE, SIDE);
    arr *w = ARR(MR_FLOAT32, PLAIN, SIDE, 3, 3, SIDE);
    arr *out = ARR(MR_FLOAT32, PLAIN, 1, HIGH - 2, WIDE - 2, SIDE);

    (void)state;
    arr_draw(x, 3);
    arr_set(x, 5 * LINE + 80, 1e30);
    for (int tap = 0; tap < 9; tap++) {
        int64_t first = tap / 3 * LINE + tap % 3 * SIDE;

        for (int64_t i = 0; i < w->view.size; i++)
            arr_set(w, i, i == (i / 9 / SIDE * 9 + tap) * SIDE + i / 9 / SIDE);
        RUN(MR_OP_CONV_GENERAL, &no_edges, out, x, w);
        for (int64_t i = 0; i < HIGH - 2; i++)
            assert_memory_equal(out->memory + i * (WIDE - 2) * SIDE * 4,
                                x->memory + (i * LINE + first) * 4,
                                (WIDE - 2) * SIDE * 4);
    }
    arr_free(x);
    arr_free(w);
    arr_free(out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv__is_right_for_all_parameters),
        cmocka_unit_test(conv__is_right_for_special_shapes),
        cmocka_unit_test(conv__is_right_along_a_line),
        cmocka_unit_test(conv__is_right_in_groups_of_one_channel),
        cmocka_unit_test(conv__is_right_down_lines_of_one_channel),
        cmocka_unit_test(conv__is_right_in_pairs_of_groups),
        cmocka_unit_test(conv__is_right_for_few_outputs),
        cmocka_unit_test(conv__is_right_at_the_ends_of_many_lines),
        cmocka_unit_test(conv__is_right_in_narrow_groups),
        cmocka_unit_test(conv__is_right_in_squares),
        cmocka_unit_test(conv__is_right_in_steps_and_panels),
        cmocka_unit_test(conv__squares_leave_unlike_sizes_to_taps),
        cmocka_unit_test(conv__one_tap_moves_its_input),
    };

    return cmocka_run_group_tests_name("cpu/conv", tests, NULL, NULL);
}
