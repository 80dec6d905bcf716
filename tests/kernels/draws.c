/* SPDX-License-Identifier: Apache-2.0
 *
 * draws.c -- random words made inside of block programs are those of the
 * stream, whatever the program's loops, tiles and units are.
 */
#include "kernels/draw.h"
#include "kernels/program_of.h"

#define MOST (3 << 16)

static uint32_t keys[2 * 16], words[MOST + 16], x[MOST], got[MOST], want[MOST];
static uint8_t flag[MOST];

typedef struct shape {
    int n_keys, ndim;
    int64_t dim[4];
} shape;

static const shape shapes[] = {
    {1, 0, {0}},
    {1, 1, {1}},
    {1, 1, {2}},
    {1, 1, {3}},
    {1, 1, {2047}},
    {1, 1, {2048}},
    {1, 1, {2049}},
    {1, 1, {4095}},
    {1, 1, {4097}},
    {1, 1, {4099}},
    {1, 1, {8192}},
    {1, 1, {(1 << 16) + 1}},
    {1, 1, {(1 << 16) + 6}},
    {1, 2, {1, 5000}},
    {1, 2, {5000, 1}},
    {1, 2, {6, 1000}},
    {1, 2, {7, 1000}},
    {1, 2, {1000, 7}},
    {1, 2, {1001, 7}},
    {1, 2, {2, 30001}},
    {1, 3, {4, 33, 41}},
    {1, 3, {5, 33, 41}},
    {1, 3, {1, 6, 2500}},
    {1, 4, {2, 3, 5, 700}},
    {3, 0, {0}},
    {3, 1, {1}},
    {5, 1, {7}},
    {3, 1, {2500}},
    {3, 1, {4099}},
    {2, 1, {20001}},
    {4, 2, {6, 1000}},
    {4, 2, {7, 1000}},
    {3, 3, {2, 40, 50}},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static int64_t
stream_of(const shape *s)
{
    int64_t n = 1;

    for (int i = 0; i < s->ndim; i++)
        n *= s->dim[i];
    return n;
}

/* The loops of the shape, one for the keys in front. */
static void
loops(prog *p, const shape *s)
{
    p->l.n_kept = s->ndim + 1;
    p->l.dim[0] = s->n_keys;
    for (int i = 0; i < s->ndim; i++)
        p->l.dim[i + 1] = s->dim[i];
}

static void
draw_io(const shape *s, int64_t size, mr_block_io *io)
{
    io->n = size;
    for (int i = s->ndim; i > 0; i--) {
        io->stride[i] = io->n;
        io->n *= s->dim[i - 1];
    }
    io->stride[0] = mr__draw_pitch(io->n);
    io->data = keys;
    io->step = 8;
    io->word = 4;
}

/* What all streams of the shape are, one after the other. */
static void
streams(const shape *s, int64_t size, void *to)
{
    int64_t bytes = stream_of(s) * size;

    for (int k = 0; k < s->n_keys; k++) {
        mr__random_bits(keys[2 * k], keys[2 * k + 1], (uint64_t)(bytes + 3) / 4,
                        0, (uint64_t)(bytes + 3) / 4, words);
        memcpy((char *)to + k * bytes, words, (size_t)bytes);
    }
}

/* How the other operand lies: as the result does, or strides of 0. */
typedef enum layout { ALIKE, ROW, COLUMN, ONE, TURNED, N_LAYOUTS } layout;

static void
operand_io(const prog *p, layout how, mr_block_io *io)
{
    int n = p->l.n_kept;
    int64_t step = 4;

    prog_contiguous(p, io, x, 4, false);
    for (int i = 0; i < n; i++)
        if (how == ONE || (how == ROW && i < n - 1) ||
            (how == COLUMN && i == n - 1))
            io->stride[i] = 0;
    for (int i = 0; how == TURNED && i < n; i++) {
        io->stride[i] = step;
        step *= p->l.dim[i];
    }
}

static uint32_t
operand_at(const prog *p, const mr_block_io *io, int64_t i)
{
    int64_t at = 0;

    for (int d = p->l.n_kept - 1; d >= 0; d--) {
        at += i % p->l.dim[d] * io->stride[d];
        i /= p->l.dim[d];
    }
    return x[at / 4];
}

static void
begin(void)
{
    uint64_t seed = 11;

    for (int i = 0; i < 32; i++)
        keys[i] = (uint32_t)prog_random(&seed);
    for (int i = 0; i < MOST; i++)
        x[i] = (uint32_t)prog_random(&seed);
}

static void
one_shape(const shape *s, layout how, prog_how units)
{
    static const mr_code_source source[2] = {{.kind = MR_FROM_DRAW},
                                             {.kind = MR_FROM_MEMORY}};
    int64_t n = stream_of(s) * s->n_keys;
    prog p = {.source = source};
    int w = prog_in(&p, MR_UINT32), y = prog_in(&p, MR_UINT32);

    prog_out(&p, prog_op(&p, MR_K_SUBTRACT, MR_UINT32, w, y, 0));
    loops(&p, s);
    draw_io(s, 4, &p.l.in[0]);
    operand_io(&p, how, &p.l.in[1]);
    prog_contiguous(&p, &p.l.out[0], got, 4, false);
    streams(s, 4, want);
    for (int64_t i = 0; i < n; i++)
        want[i] -= operand_at(&p, &p.l.in[1], i);
    memset(got, 0, sizeof got);
    prog_run(&p, units);
    assert_memory_equal(got, want, (size_t)n * 4);
    assert_int_equal(got[n], 0);
}

static void
draws__are_the_stream_whatever_they_meet(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < N_SHAPES; i++)
        for (int how = 0; how < N_LAYOUTS; how++)
            for (int u = ALL_AT_ONCE; u <= BACKWARDS; u++)
                one_shape(&shapes[i], (layout)how, (prog_how)u);
}

/* Two streams of one key and one of another: three kinds of words at once. */
static void
draws__several_in_one_program(void **state)
{
    static const mr_code_source source[3] = {
        {.kind = MR_FROM_DRAW}, {.kind = MR_FROM_DRAW}, {.kind = MR_FROM_DRAW}};

    (void)state;
    begin();
    for (int i = 0; i < N_SHAPES; i++) {
        const shape *s = &shapes[i];
        shape all = {1, s->ndim + 1, {s->n_keys, s->dim[0], s->dim[1]}};
        int64_t n = stream_of(s) * s->n_keys;
        prog p = {.source = source};
        int a = prog_in(&p, MR_UINT32), b = prog_in(&p, MR_UINT32);
        int c = prog_in(&p, MR_UINT32), d;

        if (s->ndim > 2)
            continue;
        d = prog_op(&p, MR_K_SUBTRACT, MR_UINT32, a, b, 0);
        prog_out(&p, prog_op(&p, MR_K_MULTIPLY, MR_UINT32, d, c, 0));
        loops(&p, s);
        draw_io(s, 4, &p.l.in[0]);
        draw_io(s, 4, &p.l.in[1]);
        p.l.in[1].step = 0; /* each row of keys the same */
        p.l.in[1].data = keys + 6;
        /* one key for all: its stream goes over the rows of the others' */
        prog_contiguous(&p, &p.l.in[2], keys, 4, false);
        p.l.in[2].n = n * 4;
        p.l.in[2].step = 0;
        p.l.in[2].word = 4;
        prog_contiguous(&p, &p.l.out[0], got, 4, false);
        prog_run(&p, UNIT_BY_UNIT);
        streams(s, 4, want);
        for (int k = 0; k < s->n_keys; k++) {
            mr__random_bits(keys[6], keys[7], (uint64_t)stream_of(s), 0,
                            (uint64_t)stream_of(s), words);
            for (int64_t j = 0; j < stream_of(s); j++)
                want[k * stream_of(s) + j] -= words[j];
        }
        streams(&all, 4, words);
        for (int64_t j = 0; j < n; j++)
            assert_int_equal(got[j], want[j] * words[j]);
    }
}

static void
narrow(mr_dtype t, int64_t size)
{
    static const mr_code_source source[1] = {{.kind = MR_FROM_DRAW}};

    for (int i = 0; i < N_SHAPES; i++) {
        const shape *s = &shapes[i];
        int64_t n = stream_of(s) * s->n_keys;
        prog p = {.source = source};
        int w = prog_in(&p, t), one = prog_const(&p, t, 1);

        prog_out(&p, prog_op(&p, MR_K_ADD, t, w, one, 0));
        prog_out(&p, prog_op(&p, MR_K_LESS, MR_BOOL, w, one, 0));
        loops(&p, s);
        draw_io(s, size, &p.l.in[0]);
        prog_contiguous(&p, &p.l.out[0], got, (size_t)size, false);
        prog_contiguous(&p, &p.l.out[1], flag, 1, false);
        prog_run(&p, UNIT_BY_UNIT);
        streams(s, size, want);
        for (int64_t k = 0; k < n; k++) {
            uint32_t a = size == 1   ? ((uint8_t *)got)[k]
                         : size == 2 ? ((uint16_t *)got)[k]
                                     : got[k];
            uint32_t b = size == 1   ? ((uint8_t *)want)[k]
                         : size == 2 ? ((uint16_t *)want)[k]
                                     : want[k];

            assert_int_equal(flag[k], b == 0);
            assert_int_equal(a, size == 4 ? b + 1
                                          : (b + 1) & ((1U << 8 * size) - 1));
        }
    }
}

static void
draws__of_each_width(void **state)
{
    (void)state;
    begin();
    narrow(MR_UINT8, 1);
    narrow(MR_UINT16, 2);
    narrow(MR_UINT32, 4);
}

/* Keys that lie back to front, their words apart. */
static void
draws__of_keys_that_lie_anyhow(void **state)
{
    static const shape s = {4, 1, {5001}};
    static const mr_code_source source[1] = {{.kind = MR_FROM_DRAW}};
    uint32_t back[8];
    prog p = {.source = source};
    int w = prog_in(&p, MR_UINT32), one = prog_const(&p, MR_UINT32, 1);

    (void)state;
    begin();
    for (int k = 0; k < 4; k++) {
        back[3 - k] = keys[2 * k];
        back[7 - k] = keys[2 * k + 1];
    }
    prog_out(&p, prog_op(&p, MR_K_ADD, MR_UINT32, w, one, 0));
    loops(&p, &s);
    draw_io(&s, 4, &p.l.in[0]);
    p.l.in[0].data = back + 3;
    p.l.in[0].step = -4;
    p.l.in[0].word = 16;
    prog_contiguous(&p, &p.l.out[0], got, 4, false);
    prog_run(&p, BACKWARDS);
    streams(&s, 4, want);
    for (int64_t i = 0; i < 4 * 5001; i++)
        assert_int_equal(got[i], want[i] + 1);
}

/* ---- reductions
 * --------------------------------------------------------------------- */

/* What is made of the words of a row: a sum alone, a place and a value beside
 * it, or values that follow from them. */
typedef enum of_rows { A_SUM, SUM_AND_PLACE, VALUES_BEHIND, N_OF_ROWS } of_rows;

/* The program with its words drawn, or read from memory. */
static void
rows_run(const shape *s, int n_red, of_rows what, layout how, prog_how units,
         bool drawn, float *values, float *sums, uint32_t *places)
{
    static const mr_code_source source[2] = {{.kind = MR_FROM_DRAW},
                                             {.kind = MR_FROM_MEMORY}};
    prog p = {.source = drawn ? source : NULL};
    int w = prog_in(&p, MR_UINT32), y = prog_in(&p, MR_UINT32);
    int f = prog_op(&p, MR_K_CAST, MR_FLOAT32,
                    prog_op(&p, MR_K_SUBTRACT, MR_UINT32, w, y, 0), 0, 0);
    int sum = prog_op(&p, MR_R_SUM, MR_FLOAT32, f, 0, 0);

    prog_out(&p, sum);
    if (what == SUM_AND_PLACE)
        prog_out(&p, prog_op(&p, MR_R_ARGMAX, MR_UINT32, f, 0, 0));
    if (what == VALUES_BEHIND)
        prog_out(&p, prog_op(&p, MR_K_SUBTRACT, MR_FLOAT32, f, sum, 0));
    loops(&p, s);
    p.l.n_kept -= n_red;
    p.l.n_red = n_red;
    if (drawn)
        draw_io(s, 4, &p.l.in[0]);
    else
        prog_contiguous(&p, &p.l.in[0], want, 4, false);
    p.l.n_kept += n_red; /* operand_io knows kept dims alone */
    p.l.n_red = 0;
    operand_io(&p, how, &p.l.in[1]);
    p.l.n_kept -= n_red;
    p.l.n_red = n_red;
    prog_contiguous(&p, &p.l.out[0], sums, 4, true);
    if (what == SUM_AND_PLACE)
        prog_contiguous(&p, &p.l.out[1], places, 4, true);
    if (what == VALUES_BEHIND)
        prog_contiguous(&p, &p.l.out[1], values, 4, false);
    prog_run(&p, units);
}

static void
rows_check(const shape *s, int n_red, of_rows what, layout how, prog_how units)
{
    static float values[2][MOST], sums[2][MOST];
    static uint32_t places[2][MOST];
    size_t bytes = (size_t)(stream_of(s) * s->n_keys) * 4;

    for (int drawn = 0; drawn < 2; drawn++) {
        memset(values[drawn], 0, bytes);
        memset(sums[drawn], 0, bytes);
        memset(places[drawn], 0, bytes);
        rows_run(s, n_red, what, how, units, drawn, values[drawn], sums[drawn],
                 places[drawn]);
    }
    assert_memory_equal(values[0], values[1], bytes);
    assert_memory_equal(sums[0], sums[1], bytes);
    assert_memory_equal(places[0], places[1], bytes);
}

/* Rows of one tile and of several, in pairs and alone, all of a stream and
 * part of it, whatever they meet. */
static void
draws__of_rows_are_those_of_memory(void **state)
{
    static const shape more[] = {
        {1, 1, {12288}},   {1, 1, {12289}},      {1, 1, {16384}},
        {1, 1, {16385}},   {1, 1, {100000}},     {1, 1, {131071}},
        {2, 1, {40003}},   {3, 1, {12289}},      {1, 2, {1, 65535}},
        {1, 2, {2, 2049}}, {1, 2, {6, 5000}},    {1, 2, {4, 20000}},
        {1, 2, {5, 5000}}, {1, 2, {130, 600}},   {2, 2, {4, 3000}},
        {1, 3, {8, 6, 7}}, {1, 3, {4, 2, 3000}},
    };
    enum { N_MORE = sizeof more / sizeof *more };

    (void)state;
    begin();
    for (int i = 0; i < N_SHAPES + N_MORE; i++) {
        const shape *s = i < N_SHAPES ? &shapes[i] : &more[i - N_SHAPES];

        streams(s, 4, want);
        for (int n_red = 1; n_red <= s->ndim && n_red <= 2; n_red++)
            for (int what = 0; what < N_OF_ROWS; what++)
                for (int how = 0; how < N_LAYOUTS; how++)
                    rows_check(s, n_red, (of_rows)what, (layout)how,
                               i % 2 ? BACKWARDS : ALL_AT_ONCE);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws__are_the_stream_whatever_they_meet),
        cmocka_unit_test(draws__several_in_one_program),
        cmocka_unit_test(draws__of_each_width),
        cmocka_unit_test(draws__of_keys_that_lie_anyhow),
        cmocka_unit_test(draws__of_rows_are_those_of_memory),
    };

    return cmocka_run_group_tests_name("kernels/draws", tests, NULL, NULL);
}
