/* SPDX-License-Identifier: Apache-2.0
 *
 * guards.c -- kernels between guard pages: on extents around each tile size, in
 * each tier, they touch no byte outside their operands, and what lies there
 * changes no bit of their results.
 *
 * The tier is chosen once in a process, so the program runs itself for each.
 * The tiers with fused multiply-add must give the same bits, but of products
 * that some processors make in pairs of bfloat16 or in integer digits.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "array/layout.h"
#include "base/error.h"
#include "cpu/cpu.h"
#include "gen/ids.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/eval.h"
#include "ops/params.h"
#include "support/base.h"
#include "support/guard.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { THOROUGH = 0 };
#else
enum { THOROUGH = 1 };
#endif

/* ---- one call of a kernel -------------------------------------------------
 */

enum { OPERANDS = 8, DIMS = 4, SLACK = 256 };

typedef enum content {
    NUMBERS,   /* in (-1, 1), or any integers */
    ASCENDING, /* 0, 1, 2, ... */
    ONES,
    BYTES,  /* any */
    SCALES, /* bytes of ordinary scales */
    RESULT
} content;

typedef struct operand {
    mr_dtype dtype;
    int32_t ndim;
    int64_t dim[DIMS], stride[DIMS];
    size_t bytes;
    char *values; /* the input's; the output of the run in plain memory */
} operand;

static struct trial {
    uint16_t op;
    const void *params;
    int n_in, n;
    bool by_processor; /* the last bits are not the same everywhere */
    operand operand[OPERANDS];
} trial;
static uint64_t bits = 0xCBF29CE484222325ULL; /* of all results */
static int n_trials;

static uint64_t
noise(uint64_t i)
{
    uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ULL;

    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ULL;
    return h >> 32;
}

static void
begin(uint16_t op, const void *params)
{
    for (int i = 0; i < trial.n; i++)
        free(trial.operand[i].values);
    trial = (struct trial){.op = op, .params = params};
}

static void
put_number(const operand *x, int64_t i, double v)
{
    mr_const from = {.c128 = {v, -v}}, to;
    size_t size = (size_t)mr__dtype_size(x->dtype);

    mr__const_cast(&from, MR_COMPLEX128, &to, x->dtype);
    memcpy(x->values + (size_t)i * size, to.bytes, size);
}

static void
fill(operand *x, content what)
{
    int64_t n = (int64_t)x->bytes / mr__dtype_size(x->dtype);
    bool whole = !mr_dtype_is_inexact(x->dtype);

    for (size_t i = 0; what >= BYTES && i < x->bytes; i++) {
        uint64_t byte = noise(i + (size_t)trial.n);

        x->values[i] = (char)(what == SCALES ? 100 + byte % 20 : byte & 0xf7);
    }
    for (int64_t i = 0; what < BYTES && i < n; i++) {
        double v = (double)noise((uint64_t)(i + 1000 * trial.n)) * 0x1p-31 - 1;

        put_number(x, i,
                   what == ONES        ? 1
                   : what == ASCENDING ? (double)i
                   : whole             ? (double)(int)(100 * v)
                                       : v);
    }
}

static operand *
add(mr_dtype dtype, content what, int32_t ndim, const int64_t *dim)
{
    operand *x = &trial.operand[trial.n++];

    assert_true(trial.n <= OPERANDS && ndim <= DIMS);
    x->dtype = dtype;
    x->ndim = ndim;
    memcpy(x->dim, dim, (size_t)ndim * sizeof *dim);
    mr__strides_fresh(ndim, dim, x->stride);
    x->bytes = (size_t)mr__dtype_size(dtype);
    for (int32_t k = 0; k < ndim; k++)
        x->bytes *= (size_t)dim[k];
    x->values = calloc(1, x->bytes + 1);
    assert_non_null(x->values);
    if (what == RESULT)
        return x;
    fill(x, what);
    trial.n_in++;
    return x;
}
#define IN(dtype, what, ...)                                                   \
    add((dtype), (what),                                                       \
        (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),         \
        (int64_t[]){__VA_ARGS__})
#define OUT(dtype, ...) IN(dtype, RESULT, __VA_ARGS__)

/* The last two axes exchanged in memory. */
static void
turn(operand *x)
{
    x->stride[x->ndim - 2] = 1;
    x->stride[x->ndim - 1] = x->dim[x->ndim - 2];
}

/* Where operand `slot` lies in a run: side < 0 in plain memory, between bytes
 * that are NaN in every type. */
static char *
place(int slot, size_t bytes, int side)
{
    static char *room[OPERANDS + 1];

    if (side >= 0)
        return mrt_guarded(slot, bytes, (mrt_side)side);
    free(room[slot]);
    room[slot] = aligned_alloc(64, (bytes + 2 * SLACK + 63) / 64 * 64);
    assert_non_null(room[slot]);
    memset(room[slot], 0xff, bytes + 2 * SLACK);
    return room[slot] + SLACK;
}

static void
run_at(int side)
{
    const mr_kernel *row = mr__cpu_kernel(trial.op);
    mr_kernel_view view[OPERANDS];
    mr_kernel_args a = {.params = trial.params,
                        .n_in = trial.n_in,
                        .n_out = trial.n - trial.n_in,
                        .in = view,
                        .out = view + trial.n_in};

    assert_non_null(row);
    for (int i = 0; i < trial.n; i++) {
        operand *x = &trial.operand[i];
        char *at = place(i, x->bytes, side);

        view[i] = (mr_kernel_view){
            at,      x->dtype,
            x->ndim, (int64_t)x->bytes / mr__dtype_size(x->dtype),
            x->dim,  x->stride};
        if (i < trial.n_in)
            memcpy(at, x->values, x->bytes);
        else
            memset(at, 0xA5, x->bytes);
    }
    if (row->workspace)
        a.workspace =
            place(OPERANDS, (row->workspace(&a) + 63) / 64 * 64, side);
    assert_int_equal(row->run(&a), MR_OK);
    for (int i = 0; i < trial.n; i++) {
        operand *x = &trial.operand[i];

        if (side < 0 && i >= trial.n_in)
            memcpy(x->values, view[i].data, x->bytes);
        else
            assert_memory_equal(x->values, view[i].data, x->bytes);
    }
}

static void
finish(void)
{
    run_at(-1);
    for (int side = 0; side < MRT_N_SIDES; side++)
        run_at(side);
    for (int i = trial.n_in; i < trial.n && !trial.by_processor; i++)
        for (size_t b = 0; b < trial.operand[i].bytes; b++)
            bits =
                (bits ^ (uint8_t)trial.operand[i].values[b]) * 0x100000001B3ULL;
    n_trials++;
}

/* ---- extents --------------------------------------------------------------
 */

/* Around the vectors, panels and tiles of all tiers. */
static const int64_t around[] = {
    1,  2,  3,  4,  5,  7,  8,  9,  11, 12, 13, 15,  16,  17,  23,  24,  25,
    31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 97, 127, 128, 129, 255, 256, 257};

/* Loops over those up to `most`; fewer of them where each costs more. */
#define EACH(x, most)                                                          \
    for (size_t x##_i = 0;                                                     \
         x##_i < MRT_COUNT(around) && around[x##_i] <= (most);                 \
         x##_i += THOROUGH ? 1 : 3)                                            \
        for (int64_t x = around[x##_i], x##_once = 1; x##_once; x##_once = 0)

/* ---- packed matrices ------------------------------------------------------
 */

static const struct format {
    mr_quant_params p;
    mr_dtype type; /* of x and of the scales, in affine mode */
} formats[] = {
    {{.group = 32, .bits = 1}, MR_FLOAT32},
    {{.group = 64, .bits = 2}, MR_FLOAT16},
    {{.group = 32, .bits = 3}, MR_BFLOAT16},
    {{.group = 64, .bits = 4}, MR_FLOAT32},
    {{.group = 32, .bits = 4}, MR_BFLOAT16},
    {{.group = 128, .bits = 4}, MR_FLOAT16},
    {{.group = 32, .bits = 5}, MR_FLOAT32},
    {{.group = 64, .bits = 6}, MR_BFLOAT16},
    {{.group = 32, .bits = 8}, MR_FLOAT16},
    {{.group = 128, .bits = 8}, MR_FLOAT32},
    {{.group = 32, .bits = 4, .mode = MR_QUANT_MXFP4}, MR_FLOAT32},
    {{.group = 32, .bits = 8, .mode = MR_QUANT_MXFP8}, MR_BFLOAT16},
    {{.group = 16, .bits = 4, .mode = MR_QUANT_NVFP4}, MR_FLOAT16},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* The words, scales and biases of `n` matrices. */
static void
packed_in(const struct format *f, int64_t n, int64_t rows, int64_t cols)
{
    bool affine = f->p.mode == MR_QUANT_AFFINE;

    IN(MR_UINT32, BYTES, n, rows, cols * f->p.bits / 32);
    IN(affine ? f->type : MR_UINT8, affine ? NUMBERS : SCALES, n, rows,
       cols / f->p.group);
    if (affine)
        IN(f->type, NUMBERS, n, rows, cols / f->p.group);
}

/* Are one and two rows integer digits in some tier (kernels/quant_digits.h)? */
static bool
has_digits(void)
{
#ifdef __x86_64__
    return !__builtin_cpu_is("amd") && __builtin_cpu_supports("gfni") &&
           __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512vbmi");
#else
    return false;
#endif
}

static void
product(const struct format *f, bool turned, int64_t m, int64_t rows,
        int64_t cols)
{
    mr_quant_params p = f->p;

    p.transpose = turned;
    begin(MR_OP_QUANTIZED_MATMUL, &p);
    IN(f->type, NUMBERS, 1, m, turned ? cols : rows);
    packed_in(f, 1, rows, cols);
    OUT(f->type, 1, m, turned ? rows : cols);
    /* in pairs, where the processor has those (cpu/quant_pairs.c) */
    trial.by_processor = turned && ((f->type == MR_BFLOAT16 && m > 4) ||
                                    (m < 3 && has_digits()));
    finish();
}

static void
quantized_products__stay_inside(void **state)
{
    static const int64_t m[] = {1, 2, 3, 4, 5, 8, 9, 33, 15, 47};

    (void)state;
    for (int i = 0; i < N_FORMATS; i++)
        for (int turned = 0; turned < 2; turned++)
            for (size_t k = 0; k < MRT_COUNT(m); k += THOROUGH ? 1 : 2)
                EACH(rows, 65)
    for (int64_t groups = 1; groups < 6; groups += 1 + groups / 3)
        product(&formats[i], turned, m[k], rows, groups * formats[i].p.group);
}

static void
picked_products__stay_inside(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++)
        EACH(rows, 33)
        {
            const struct format *f = &formats[i];
            mr_quant_params p = f->p;

            p.transpose = true;
            for (int64_t m = 1; m < 12; m += 5) {
                begin(MR_OP_GATHER_QMM, &p);
                IN(f->type, NUMBERS, 3, m, 3 * p.group);
                packed_in(f, 3, rows, 3 * p.group);
                IN(MR_UINT32, ASCENDING, 3);
                IN(MR_UINT32, ONES, 3);
                OUT(f->type, 3, m, rows);
                trial.by_processor = (f->type == MR_BFLOAT16 && m > 1) ||
                                     (m < 3 && has_digits());
                finish();
            }
        }
}

static void
packing__stays_inside(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++)
        for (int64_t rows = 1; rows < 4; rows++)
            for (int64_t groups = 1; groups < 12; groups++) {
                const struct format *f = &formats[i];
                bool affine = f->p.mode == MR_QUANT_AFFINE;
                int64_t cols = groups * f->p.group;
                mr_quant_params p = f->p;

                begin(affine ? MR_OP_QUANTIZE : MR_OP_QUANTIZE_FLOAT, &p);
                IN(f->type, NUMBERS, rows, cols);
                OUT(MR_UINT32, rows, cols * p.bits / 32);
                OUT(affine ? f->type : MR_UINT8, rows, groups);
                if (affine)
                    OUT(f->type, rows, groups);
                finish();
                p.dtype = f->type;
                begin(MR_OP_DEQUANTIZE, &p);
                packed_in(f, 1, rows, cols);
                OUT(f->type, 1, rows, cols);
                finish();
            }
}

static void
bytes__stay_inside(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT16, MR_BFLOAT16};

    (void)state;
    for (size_t t = 0; t < MRT_COUNT(types); t++)
        EACH(n, 257)
        {
            mr_cast_params p = {types[t]};

            begin(MR_OP_TO_FP8, NULL);
            IN(types[t], NUMBERS, n);
            OUT(MR_UINT8, n);
            finish();
            begin(MR_OP_FROM_FP8, &p);
            IN(MR_UINT8, BYTES, n);
            OUT(types[t], n);
            finish();
        }
}

/* ---- products, rows -------------------------------------------------------
 */

static const mr_dtype inexact[] = {MR_FLOAT32, MR_FLOAT16, MR_BFLOAT16,
                                   MR_FLOAT64, MR_COMPLEX64};

static void
products__stay_inside(void **state)
{
    static const int64_t m[] = {1, 2, 3, 5, 6, 7, 8, 12, 13, 14, 15, 33};
    static const int64_t k[] = {1, 2, 3, 7, 8, 9, 16, 17, 65};

    (void)state;
    for (size_t t = 0; t < MRT_COUNT(inexact); t++)
        for (int turned = 0; turned < 4; turned++)
            for (size_t i = 0; i < MRT_COUNT(m); i += THOROUGH ? 1 : 4)
                for (size_t j = 0; j < MRT_COUNT(k); j += THOROUGH ? 1 : 2)
                    EACH(n, 65)
                    {
                        operand *a, *b;

                        begin(MR_OP_MATMUL, NULL);
                        a = IN(inexact[t], NUMBERS, m[i], k[j]);
                        b = IN(inexact[t], NUMBERS, k[j], n);
                        if (turned & 1)
                            turn(a);
                        if (turned & 2)
                            turn(b);
                        OUT(inexact[t], m[i], n);
                        finish();
                    }
}

static void
rows__stay_inside(void **state)
{
    mr_axis_params axis = {1};
    mr_norm_params norm = {.eps = 1e-5, .has_weight = true, .has_bias = true};
    mr_norm_params rms = {.eps = 1e-5, .has_weight = true};

    (void)state;
    for (int t = 0; t < 3; t++)
        EACH(n, 257)
        {
            begin(MR_OP_SOFTMAX, &axis);
            IN(inexact[t], NUMBERS, 3, n);
            OUT(inexact[t], 3, n);
            finish();
            begin(MR_OP_LAYER_NORM, &norm);
            IN(inexact[t], NUMBERS, 3, n);
            IN(inexact[t], NUMBERS, n);
            IN(inexact[t], NUMBERS, n);
            OUT(inexact[t], 3, n);
            finish();
            begin(MR_OP_RMS_NORM, &rms);
            IN(inexact[t], NUMBERS, 3, n);
            IN(inexact[t], NUMBERS, n);
            OUT(inexact[t], 3, n);
            finish();
        }
}

static void
attention__stays_inside(void **state)
{
    mr_attention_params p = {.scale = 0.5};

    (void)state;
    for (int t = 0; t < 3; t++)
        for (int causal = 0; causal < 2; causal++)
            EACH(keys, 65)
    for (int64_t d = 1; d < 100; d = d * 2 + 1) {
        p.causal = causal;
        begin(MR_OP_ATTENTION, &p);
        IN(inexact[t], NUMBERS, 1, 2, keys % 11 + 1, d);
        IN(inexact[t], NUMBERS, 1, 1, keys + 10, d);
        IN(inexact[t], NUMBERS, 1, 1, keys + 10, d + 1);
        OUT(inexact[t], 1, 2, keys % 11 + 1, d + 1);
        finish();
    }
}

/* ---- order, places --------------------------------------------------------
 */

static const mr_dtype real[] = {MR_FLOAT32, MR_FLOAT16, MR_FLOAT64,
                                MR_INT8,    MR_UINT16,  MR_INT32,
                                MR_INT64,   MR_BFLOAT16};

static void
order__stays_inside(void **state)
{
    mr_axis_params axis = {1};
    mr_searchsorted_params right = {true};

    (void)state;
    for (size_t t = 0; t < MRT_COUNT(real); t++)
        EACH(n, 257)
        {
            mr_partition_params at = {.axis = 1, .kth = n / 2};

            begin(MR_OP_SORT, &axis);
            IN(real[t], NUMBERS, 2, n);
            OUT(real[t], 2, n);
            finish();
            begin(MR_OP_ARGSORT, &axis);
            IN(real[t], NUMBERS, 2, n);
            OUT(MR_UINT32, 2, n);
            finish();
            begin(MR_OP_PARTITION_PLACES, &at);
            IN(real[t], NUMBERS, 2, n);
            OUT(MR_UINT32, 2, n);
            finish();
            begin(MR_OP_SEARCHSORTED, &right);
            IN(real[t], real[t] == MR_INT8 ? ONES : ASCENDING, n);
            IN(real[t], NUMBERS, 17);
            OUT(MR_UINT32, 17);
            finish();
        }
}

static void
places__stay_inside(void **state)
{
    static const int64_t first[] = {0};

    (void)state;
    for (size_t t = 0; t < MRT_COUNT(real); t++)
        EACH(n, 257)
        {
            int64_t sizes[] = {1, n};
            mr_gather_params p = {{first, 1}, {sizes, 2}};
            mr_axis_params axis = {1};
            operand *x;

            begin(MR_OP_INDEX_GATHER, &p);
            IN(real[t], NUMBERS, 5, n);
            IN(MR_INT32, ASCENDING, 5);
            OUT(real[t], 5, 1, n);
            finish();
            sizes[1] = 1; /* single numbers of a long line */
            begin(MR_OP_INDEX_GATHER, &p);
            IN(real[t], NUMBERS, n, 1);
            IN(MR_UINT32, ASCENDING, n);
            OUT(real[t], n, 1, 1);
            finish();
            begin(MR_OP_TAKE_ALONG_AXIS, &axis);
            IN(real[t], NUMBERS, 2, n);
            IN(MR_INT32, ONES, 2, n > 1 ? n - 1 : 0);
            OUT(real[t], 2, n > 1 ? n - 1 : 0);
            finish();
            begin(MR_OP_CONTIGUOUS, NULL);
            x = IN(real[t], NUMBERS, n % 37 + 1, n);
            turn(x);
            OUT(real[t], n % 37 + 1, n);
            finish();
            begin(MR_OP_CONCATENATE, &axis);
            IN(real[t], NUMBERS, 3, n);
            IN(real[t], NUMBERS, 3, n / 3 + 1);
            OUT(real[t], 3, n + n / 3 + 1);
            finish();
        }
}

static void
scans__stay_inside(void **state)
{
    (void)state;
    for (size_t t = 0; t < MRT_COUNT(real); t++)
        for (int64_t mode = MR_SCAN_SUM; mode <= MR_SCAN_PROD; mode++)
            EACH(n, 257)
            {
                mr_scan_params p = {.axis = 1, .mode = mode, .inclusive = true};

                begin(MR_OP_SCAN, &p);
                IN(real[t], ONES, 2, n);
                OUT(real[t], 2, n);
                finish();
                p.axis = 0;
                p.reverse = true;
                begin(MR_OP_SCAN, &p);
                IN(real[t], ONES, 3, n);
                OUT(real[t], 3, n);
                finish();
            }
}

static void
transforms__stay_inside(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++)
        EACH(n, 129)
        {
            mr_dtype re = wide ? MR_FLOAT64 : MR_FLOAT32;
            mr_dtype im = wide ? MR_COMPLEX128 : MR_COMPLEX64;
            mr_fft_params p = {.axes = 2, .n = MR_INT_NONE};

            begin(MR_OP_FFT_C2C, &p);
            IN(im, NUMBERS, 3, n);
            OUT(im, 3, n);
            finish();
            begin(MR_OP_FFT_R2C, &p);
            IN(re, NUMBERS, 3, n);
            OUT(im, 3, n / 2 + 1);
            finish();
        }
}

/* ---- each tier ------------------------------------------------------------
 */

static int
run_here(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantized_products__stay_inside),
        cmocka_unit_test(picked_products__stay_inside),
        cmocka_unit_test(packing__stays_inside),
        cmocka_unit_test(bytes__stay_inside),
        cmocka_unit_test(products__stay_inside),
        cmocka_unit_test(rows__stay_inside),
        cmocka_unit_test(attention__stays_inside),
        cmocka_unit_test(order__stays_inside),
        cmocka_unit_test(places__stay_inside),
        cmocka_unit_test(scans__stay_inside),
        cmocka_unit_test(transforms__stay_inside),
    };
    int failed;

    if (!mr_cpu_tier())
        return 77; /* not to be had on this machine */
    failed = cmocka_run_group_tests_name("cpu/guards", tests, NULL, NULL);
    begin(0, NULL);
    printf("bits of %d calls: %016" PRIx64 "\n", n_trials, bits);
    return failed;
}

static char program[4096];
#ifndef MRT_EMULATOR
#define MRT_EMULATOR ""
#endif

/* The line of bits of a run in that tier; false when there is no such tier. */
static bool
run_in_tier(const char *tier, char *said, size_t room)
{
    static char text[1 << 16];
    char command[sizeof program + sizeof MRT_EMULATOR + 64];
    size_t n;
    FILE *f;
    int status;

    snprintf(command, sizeof command, "MARRAM_CPU=%s %s '%s' run 2>&1", tier,
             MRT_EMULATOR, program);
    fflush(NULL);
    f = popen(command, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    status = pclose(f);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        return false;
    if (status != 0 || !strstr(text, "bits of"))
        fail_msg("in tier %s (status %d):\n%s", tier, status, text);
    snprintf(said, room, "%s", strstr(text, "bits of"));
    return true;
}

static void
kernels__stay_inside_in_the_baseline(void **state)
{
    char said[128];

    (void)state;
    if (!run_in_tier("baseline", said, sizeof said))
        skip();
}

/* Which has bits of its own. */
static void
kernels__stay_inside_on_the_matrix_unit(void **state)
{
    char said[128];

    (void)state;
    if (!run_in_tier("amx", said, sizeof said))
        skip();
}

static void
kernels__stay_inside_in_every_tier_with_equal_bits(void **state)
{
    static const char *const names[] = {"avx2", "avx512", "neon"};
    char said[MRT_COUNT(names)][128];
    int n = 0;

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(names); i++)
        n += run_in_tier(names[i], said[n], sizeof said[n]);
    if (n == 0)
        skip();
    for (int i = 0; i < n; i++)
        print_message("%s", said[i]);
    for (int i = 1; i < n; i++)
        assert_string_equal(said[i], said[0]);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels__stay_inside_in_the_baseline),
        cmocka_unit_test(kernels__stay_inside_on_the_matrix_unit),
        cmocka_unit_test(kernels__stay_inside_in_every_tier_with_equal_bits),
    };
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);

    (void)argv;
    if (argc > 1)
        return run_here();
    program[n > 0 ? n : 0] = '\0';
    return cmocka_run_group_tests_name("cpu/guards", tests, NULL, NULL);
}
