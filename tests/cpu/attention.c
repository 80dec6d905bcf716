/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c -- attention and selection on the CPU, against their definitions
 * in double.
 */
#include "cpu/kernel_run.h"

typedef struct sizes {
    int64_t batch, heads, group, lq, lk, depth, width;
} sizes;

/* One number a pair of a query and a key: its score; masked ones are lower than
 * any other and finite. */
static double
score(const sizes *z, const mr_attention_params *p, arr *const *in, int64_t b,
      int64_t h, int64_t i, int64_t k)
{
    const arr *mask = p->has_mask ? in[3] : NULL;
    double s = 0.0;

    for (int64_t d = 0; d < z->depth; d++)
        s +=
            arr_get(in[0],
                    ((b * z->heads * z->group + h) * z->lq + i) * z->depth +
                        d) *
            arr_get(in[1],
                    ((b * z->heads + h / z->group) * z->lk + k) * z->depth + d);
    s *= p->scale;
    if (p->causal && k > i + z->lk - z->lq)
        s = -3e38;
    if (mask && mask->view.dtype == MR_BOOL)
        s = arr_get(mask, i * z->lk + k) != 0.0 ? s : -3e38;
    else if (mask)
        s += arr_get(mask, i * z->lk + k);
    return s;
}

static void
row_check(const sizes *z, const mr_attention_params *p, arr *const *in,
          const arr *out, int64_t row, double tolerance)
{
    int64_t i = row % z->lq, h = row / z->lq % (z->heads * z->group);
    int64_t b = row / z->lq / (z->heads * z->group);
    double sink = p->has_sinks ? arr_get(in[3 + p->has_mask], h) : -3e38;
    double top = sink, sum, *y = calloc((size_t)z->width, sizeof *y);

    assert_non_null(y);
    for (int64_t k = 0; k < z->lk; k++)
        top = fmax(top, score(z, p, in, b, h, i, k));
    sum = p->has_sinks ? exp(sink - top) : 0.0;
    for (int64_t k = 0; k < z->lk; k++) {
        double e = exp(score(z, p, in, b, h, i, k) - top);

        sum += e;
        for (int64_t d = 0; d < z->width; d++)
            y[d] += e * arr_get(in[2], ((b * z->heads + h / z->group) * z->lk +
                                        k) * z->width +
                                           d);
    }
    for (int64_t d = 0; d < z->width; d++)
        assert_close(arr_get(out, row * z->width + d), y[d] / sum, tolerance);
    free(y);
}

enum { CAUSAL = 1, KEEP = 2, ADD = 4, SINKS = 8 };

static void
attention_case(mr_dtype t, layout l, sizes z, int what)
{
    mr_attention_params p = {0.25, what & CAUSAL, what & (KEEP | ADD),
                             what & SINKS};
    arr *in[5] = {ARR(t, l, z.batch, z.heads * z.group, z.lq, z.depth),
                  ARR(t, l, z.batch, z.heads, z.lk, z.depth),
                  ARR(t, l, z.batch, z.heads, z.lk, z.width)};
    arr *out = ARR(t, PLAIN, z.batch, z.heads * z.group, z.lq, z.width);
    int n = 3;

    for (int i = 0; i < 3; i++)
        arr_count(in[i], i + 1);
    if (p.has_mask) {
        in[n] = ARR(what & KEEP ? MR_BOOL : t, PLAIN, 1, 1, z.lq, z.lk);
        for (int64_t i = 0; i < z.lq * z.lk; i++) /* row 0 is masked whole */
            arr_set(in[n], i, what & KEEP ? i >= z.lk && i % 3 != 0 : i % 5);
        n++;
    }
    if (p.has_sinks) {
        in[n] = ARR(MR_FLOAT32, PLAIN, 1, z.heads * z.group);
        arr_count(in[n++], 4);
    }
    assert_int_equal(kernel_run_n(MR_OP_ATTENTION, &p, out, n, in), MR_OK);
    for (int64_t row = 0; row < z.batch * z.heads * z.group * z.lq; row++)
        row_check(&z, &p, in, out, row, t == MR_FLOAT32 ? 2e-5 : 2e-2);
    for (int i = 0; i < n; i++)
        arr_free(in[i]);
    arr_free(out);
}

static void
attention__is_its_definition_whatever_the_route(void **state)
{
    static const sizes z[] = {
        {1, 2, 1, 1, 5, 3, 4},     {2, 1, 3, 2, 1500, 20, 7},
        {1, 2, 2, 37, 150, 17, 9}, {1, 1, 1, 60, 31, 8, 30},
        {1, 1, 9, 1, 290, 5, 40},
    };
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT16, MR_BFLOAT16};
    static const int what[] = {0,     CAUSAL,       KEEP,         ADD,
                               SINKS, KEEP | SINKS, CAUSAL | KEEP};

    (void)state;
    for (size_t i = 0; i < sizeof z / sizeof *z; i++)
        for (int t = 0; t < 3; t++)
            for (size_t w = 0; w < sizeof what / sizeof *what; w++)
                attention_case(types[t], w % 2 ? TURNED : PLAIN, z[i], what[w]);
}

static void
attention__of_rows_without_a_finite_score_is_no_number(void **state)
{
    mr_attention_params p = {1.0, false, true, false};
    arr *x = ARR(MR_FLOAT32, PLAIN, 1, 1, 20, 4);
    arr *mask = ARR(MR_FLOAT32, PLAIN, 1, 1, 20, 1);
    arr *out = ARR(MR_FLOAT32, PLAIN, 1, 1, 20, 4);

    (void)state;
    arr_count(x, 1);
    for (int64_t i = 0; i < 20; i++)
        arr_set(mask, i, i == 3 ? -(double)INFINITY : 0.0);
    assert_int_equal(RUN(MR_OP_ATTENTION, &p, out, x, x, x, mask), MR_OK);
    for (int64_t i = 0; i < 80; i++)
        assert_int_equal(isnan(arr_get(out, i)) != 0, i / 4 == 3);
    arr_free(x);
    arr_free(mask);
    arr_free(out);
}

static void
attention__without_keys_is_zero(void **state)
{
    mr_attention_params p = {1.0, false, false, false};
    arr *q = ARR(MR_FLOAT32, PLAIN, 1, 1, 3, 4);
    arr *k = ARR(MR_FLOAT32, PLAIN, 1, 1, 0, 4);
    arr *out = ARR(MR_FLOAT32, PLAIN, 1, 1, 3, 4);

    (void)state;
    arr_count(q, 1);
    assert_int_equal(RUN(MR_OP_ATTENTION, &p, out, q, k, k), MR_OK);
    for (int64_t i = 0; i < 12; i++)
        assert_true(arr_get(out, i) == 0.0);
    arr_free(q);
    arr_free(k);
    arr_free(out);
}

static void
partition_places__come_in_order_on_either_side_of_the_kth(void **state)
{
    static const int64_t sizes_[] = {1, 2, 300, 70000, 200000};

    (void)state;
    for (int s = 0; s < 5; s++)
        for (int tail = 0; tail < 2; tail++) {
            int64_t n = sizes_[s], kth = n / 3;
            mr_partition_params p = {1, kth, tail};
            arr *x = ARR(MR_FLOAT32, BACKWARD, 2, n);
            arr *out = ARR(MR_UINT32, PLAIN, 2, tail ? n - kth : n);
            int64_t m = tail ? n - kth : n, first = tail ? 0 : kth;

            for (int64_t i = 0; i < 2 * n; i++)
                arr_set(x, i, (double)(i * 7919 % 1009));
            assert_int_equal(RUN(MR_OP_PARTITION_PLACES, &p, out, x), MR_OK);
            for (int64_t r = 0; r < 2; r++)
                for (int64_t i = 0; i < m; i++) {
                    double v =
                        arr_get(x, r * n + (int64_t)arr_get(out, r * m + i));
                    double at = arr_get(
                        x, r * n + (int64_t)arr_get(out, r * m + first));

                    assert_true(i < first ? v <= at : v >= at);
                }
            arr_free(x);
            arr_free(out);
        }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention__is_its_definition_whatever_the_route),
        cmocka_unit_test(
            attention__of_rows_without_a_finite_score_is_no_number),
        cmocka_unit_test(attention__without_keys_is_zero),
        cmocka_unit_test(
            partition_places__come_in_order_on_either_side_of_the_kth),
    };

    return cmocka_run_group_tests_name("cpu/attention", tests, NULL, NULL);
}
