/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.c -- products with packed matrices on the CPU: the same bytes over the
 * pool and on one thread, in both routes, within the workspace.
 */
#include "cpu/kernel_run.h"

enum { BITS = 4, GROUP = 32 };

typedef struct packed {
    arr *words, *scales, *biases;
} packed;

/* n matrices of rows x cols; small whole numbers. */
static packed
packed_new(mr_dtype t, int64_t n, int64_t rows, int64_t cols)
{
    packed p = {ARR(MR_UINT32, PLAIN, n, rows, cols * BITS / 32),
                ARR(t, PLAIN, n, rows, cols / GROUP),
                ARR(t, PLAIN, n, rows, cols / GROUP)};
    uint32_t *words = p.words->view.data;

    for (int64_t i = 0; i < p.words->view.size; i++)
        words[i] = (uint32_t)i * 2654435761U + 12345U;
    arr_count(p.scales, 1);
    arr_count(p.biases, 2);
    return p;
}

static void
packed_free(const packed *p)
{
    arr_free(p->words);
    arr_free(p->scales);
    arr_free(p->biases);
}

/* Row `row` of all the rows of all matrices. */
static double
value(const packed *p, int64_t cols, int64_t row, int64_t k)
{
    const uint32_t *words = p->words->view.data;
    int64_t i = row * cols + k;
    uint32_t code = words[i / 8] >> i % 8 * BITS & 15;

    return code * arr_get(p->scales, i / GROUP) + arr_get(p->biases, i / GROUP);
}

/* Row i of out is row x_row of x times matrix w. */
static void
check_row(const packed *p, bool turned, const arr *x, int64_t x_row, int64_t w,
          const arr *out, int64_t i)
{
    int64_t inner = x->dim[2], outer = out->dim[2];
    int64_t rows = p->words->dim[1], cols = p->words->dim[2] * 8;

    for (int64_t j = 0; j < outer; j++) {
        double sum = 0.0, size = 0.0;

        for (int64_t k = 0; k < inner; k++) {
            double v =
                value(p, cols, w * rows + (turned ? j : k), turned ? k : j);

            v *= arr_get(x, x_row * inner + k);
            sum += v;
            size += fabs(v);
        }
        if (fabs(arr_get(out, i * outer + j) - sum) >
            4 * rounding(out->view.dtype) * (1.0 + size))
            fail_msg("%g is not %g", arr_get(out, i * outer + j), sum);
    }
}

static void
quantized_matmul__is_the_sum_of_products(void **state)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT16, MR_BFLOAT16};
    static const int64_t extents[][3] = {
        {1, 1, 32},    {3, 70, 96},   {8, 300, 64},   {9, 33, 32},
        {30, 65, 160}, {13, 17, 608}, {17, 130, 416}, {70, 64, 288}};

    (void)state;
    for (int t = 0; t < 3; t++)
        for (int e = 0; e < 8; e++)
            for (int turned = 0; turned < 2; turned++) {
                int64_t m = extents[e][0], n = extents[e][1];
                int64_t k = extents[e][2];
                mr_quant_params q = {
                    .group = GROUP, .bits = BITS, .transpose = turned};
                packed p = packed_new(types[t], 2, n, k);
                arr *x = ARR(types[t], PLAIN, 2, m, turned ? k : n);
                arr *out = ARR(types[t], PLAIN, 2, m, turned ? n : k);

                arr_count(x, 3);
                assert_int_equal(RUN(MR_OP_QUANTIZED_MATMUL, &q, out, x,
                                     p.words, p.scales, p.biases),
                                 MR_OK);
                for (int64_t i = 0; i < 2 * m; i++)
                    check_row(&p, turned, x, i, i / m, out, i);
                packed_free(&p);
                arr_free(x);
                arr_free(out);
            }
}

static void
gather_qmm__takes_the_picked_matrices(void **state)
{
    enum { PICKS = 150, M = 2, N = 70, K = 64 };
    mr_quant_params q = {.group = GROUP, .bits = BITS, .transpose = true};
    packed p = packed_new(MR_FLOAT32, 3, N, K);
    arr *x = ARR(MR_FLOAT32, PLAIN, 4, M, K);
    arr *out = ARR(MR_FLOAT32, PLAIN, PICKS, M, N);
    arr *lhs = ARR(MR_UINT32, PLAIN, PICKS), *rhs = ARR(MR_INT32, PLAIN, PICKS);

    (void)state;
    arr_count(x, 3);
    for (int i = 0; i < PICKS; i++) {
        arr_set(lhs, i, i * 7 % 4);
        arr_set(rhs, i, i * 5 % 6 - 3);
    }
    assert_int_equal(RUN(MR_OP_GATHER_QMM, &q, out, x, p.words, p.scales,
                         p.biases, lhs, rhs),
                     MR_OK);
    for (int64_t i = 0; i < PICKS * M; i++)
        check_row(&p, true, x, i / M * 7 % 4 * M + i % M, i / M * 5 % 6 % 3,
                  out, i);
    arr_set(rhs, 8, 3);
    assert_int_equal(RUN(MR_OP_GATHER_QMM, &q, out, x, p.words, p.scales,
                         p.biases, lhs, rhs),
                     MR_E_INDEX);
    mr_error_take();
    packed_free(&p);
    arr_free(x);
    arr_free(out);
    arr_free(lhs);
    arr_free(rhs);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantized_matmul__is_the_sum_of_products),
        cmocka_unit_test(gather_qmm__takes_the_picked_matrices),
    };

    return cmocka_run_group_tests_name("cpu/quant", tests, NULL, NULL);
}
