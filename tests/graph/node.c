/* SPDX-License-Identifier: Apache-2.0
 *
 * node.c -- tests of nodes: what they hold, references, release, traces.
 */
#include "graph/node.h"

#include <stdio.h>
#include <string.h>

#include "base.h"
#include "base/alloc.h"
#include "base/log.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/error.h"
#include "marram/scope.h"
#include "mrt.h"

/* ---- operators of these tests ------------------------------------------- */

static mr_code
like_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    return MR_OK;
}

static const mr_op op_like = {
    .id = 900, .n_in = 1, .name = "like", .infer = like_infer};
static const mr_op op_add = {.id = 901, .n_in = 2, .name = "add"};

typedef struct shape_params {
    mr_ints shape;
    bool flag;
    double scale;
} shape_params;

static const mr_field shape_fields[] = {
    MR_FIELD(1, DIMS, shape_params, shape),
    MR_FIELD(2, BOOL, shape_params, flag),
    MR_FIELD(3, FLOAT, shape_params, scale),
};

static mr_code
shape_infer(const mr_op_call *c, mr_aval *out)
{
    const shape_params *p = c->params;

    if (p->scale < 0)
        return mr__fail(MR_E_VALUE, "the scale is negative");
    mr__aval_shape(out, MR_INT16, (int32_t)p->shape.n, p->shape.v);
    return MR_OK;
}

static const mr_op op_shape = {.id = 902,
                               .n_in = -1,
                               .n_fields = 3,
                               .params_bytes = sizeof(shape_params),
                               .name = "shape",
                               .fields = shape_fields,
                               .infer = shape_infer};

static mr_code
pair_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(&out[0], c->in[0]);
    mr__aval_shape(&out[1], MR_UINT32, 1, (int64_t[]){7});
    mr__aval_shape(&out[2], MR_BOOL, 0, NULL);
    return MR_OK;
}

static const mr_op op_pair = {
    .id = 903, .n_in = 1, .n_out = 3, .name = "pair", .infer = pair_infer};

static mr_array *
ones(void)
{
    return mr_array_from_f32((float[]){1, 1, 1, 1, 1, 1}, MR_SHAPE(2, 3));
}

/* ---- what a node holds -------------------------------------------------- */

static void
node__holds_its_call(void **state)
{
    int64_t live = mr__alloc_live();
    mr_array *a = ones(), *x;
    int64_t dims[] = {4, 5};
    shape_params p = {{dims, 2}, true, 2.5};
    const shape_params *kept;

    (void)state;
    x = mr__node_new(&op_shape, &p, 1, &a);
    dims[0] = 99; /* the node has its own copy */
    assert_int_equal(mr_array_ndim(x), 2);
    assert_int_equal(mr_array_dim(x, 0), 4);
    assert_int_equal(mr_array_dim(x, -1), 5);
    assert_int_equal(mr_array_size(x), 20);
    assert_int_equal(mr_array_nbytes(x), 40);
    assert_int_equal(mr_array_dtype(x), MR_INT16);
    assert_string_equal(mr_array_op(x), "shape");
    assert_false(mr_array_is_evaluated(x));
    kept = mr__params(x);
    assert_int_equal(kept->shape.v[0], 4);
    assert_true(kept->flag && kept->scale == 2.5);
    assert_ptr_equal(x->in[0], a);
    assert_int_equal(mr__ref_total(a), 2);
    mr_release(a);
    assert_int_equal(mr__ref_total(a), 1);
    mr_release(x);
    assert_int_equal(mr__alloc_live(), live);
}

static void
node__of_an_operator_with_parameters_needs_them(void **state)
{
    int64_t live = mr__alloc_live();
    mr_array *a = ones();

    (void)state;
    assert_null(mr__node_new(&op_shape, NULL, 1, &a));
    mrt_assert_error(MR_E_NULL, "operator shape");
    assert_null(mr__node_tuple(&op_shape, NULL, 1, &a, 1));
    mrt_assert_error(MR_E_NULL, "needs them");
    mr_release(a);
    assert_int_equal(mr__alloc_live(), live);
}

static void
node__of_several_results_is_a_tuple(void **state)
{
    int64_t live = mr__alloc_live();
    mr_array *a = ones(), *t = mr__node_new(&op_pair, NULL, 1, &a);
    mr_array *y[3];

    (void)state;
    assert_int_equal(t->n_out, 3);
    assert_true(t->flags & MR_NODE_TUPLE);
    for (int k = 0; k < 3; k++)
        y[k] = mr__node_output(t, k);
    assert_int_equal(mr_array_dtype(y[0]), MR_FLOAT32);
    assert_int_equal(mr_array_ndim(y[0]), 2);
    assert_int_equal(mr_array_dtype(y[1]), MR_UINT32);
    assert_int_equal(mr_array_dim(y[1], 0), 7);
    assert_int_equal(mr_array_ndim(y[2]), 0);
    assert_int_equal(((const mr_output_params *)mr__params(y[1]))->index, 1);
    mr_release(a);
    mr_release(t);
    for (int k = 0; k < 3; k++)
        mr_release(y[k]);
    assert_int_equal(mr__alloc_live(), live);
}

static void
node__keeps_a_failure_as_it_was(void **state)
{
    mr_array *a = ones(), *none = NULL;
    shape_params p = {{NULL, 0}, false, -1.0};
    int64_t huge[] = {INT64_MAX, 4};

    (void)state;
    assert_null(mr__node_new(&op_shape, &p, 1, &a));
    assert_int_equal(mr_error_last().code, MR_E_VALUE);
    /* a chain of calls keeps the first error */
    assert_null(mr__node_new(&op_like, NULL, 1, &none));
    assert_int_equal(mr_error_take().code, MR_E_VALUE);
    assert_null(mr__node_new(&op_like, NULL, 1, &none));
    assert_int_equal(mr_error_take().code, MR_E_NULL);
    p = (shape_params){{huge, 2}, false, 0.0};
    assert_null(mr__node_new(&op_shape, &p, 1, &a));
    assert_int_equal(mr_error_take().code, MR_E_OVERFLOW);
    mr_release(a);
}

static void
node__takes_site_and_stream_from_the_thread(void **state)
{
    mr_array *a = ones(), *x;
    mr_stream old;
    const char *site;

    (void)state;
    old = mr_stream_scope((mr_stream){5});
    site = mr_site_set("user.c:12");
    x = mr__node_elementwise(&op_like, MR_FLOAT32, 1, &a);
    assert_string_equal(mr_array_site(x), "user.c:12");
    assert_int_equal(x->stream, 5);
    assert_string_equal(mr_site_set(site), "user.c:12");
    assert_int_equal(mr_stream_scope(old).id, 5);
    mr_release(x);
    x = mr__node_elementwise(&op_like, MR_FLOAT32, 1, &a);
    assert_string_equal(mr_array_site(x), "");
    assert_int_equal(x->stream, 0);
    mr_release(x);
    mr_release(a);
}

static void
nodes_made__counts_this_threads(void **state)
{
    uint64_t before = mr__nodes_made();

    (void)state;
    for (int i = 0; i < 3000; i++)
        mr_release(mr_float(i));
    assert_int_equal(mr__nodes_made(), before + 3000);
}

static void
scalar__lives_in_its_node(void **state)
{
    int64_t live = mr__alloc_live();
    mr_array *x = mr_float(2.5);
    mr_buffer *b = mr__buffer_retain(x->buffer);

    (void)state;
    assert_int_equal(mr__alloc_live(), live + 1);
    assert_true(mr_array_is_evaluated(x));
    assert_true(*(const float *)mr__scalar_const(x) == 2.5F);
    mr_release(x);
    /* somebody may share the value longer than the node lives */
    assert_true(*(const float *)b->data == 2.5F);
    mr__buffer_release(b);
    assert_int_equal(mr__alloc_live(), live);
}

static void
tracer__shares_what_is_done(void **state)
{
    mr_array *a = ones(), *x;
    uint64_t trace = mr__trace_begin();

    (void)state;
    x = mr__node_tracer(a, trace);
    assert_true(mr_array_is_evaluated(x));
    assert_ptr_equal(x->buffer, a->buffer);
    assert_ptr_equal(x->in[0], a);
    assert_true(mr_array_is_tracer(x));
    mr__trace_end(trace);
    assert_false(mr_array_is_tracer(x));
    mr_release(x);
    mr_release(a);
}

/* ---- release ------------------------------------------------------------ */

static void
chain__of_a_million_frees(void **state)
{
    int64_t live = mr__alloc_live();
    mr_array *x = ones();

    (void)state;
    for (int i = 0; i < 1000000; i++) {
        mr_array *y = mr__node_elementwise(&op_like, MR_FLOAT32, 1, &x);

        mr_release(x);
        x = y;
    }
    assert_int_equal(mr__alloc_live(), live + 1000002);
    mr_release(x);
    assert_int_equal(mr__alloc_live(), live);
}

static void
diamonds__free_each_node_once(void **state)
{
    int64_t live = mr__alloc_live();
    mr_array *x = ones();

    (void)state;
    for (int i = 0; i < 1000; i++) {
        mr_array *in[2] = {x, x};
        mr_array *y = mr__node_elementwise(&op_add, MR_FLOAT32, 2, in);

        mr_release(x);
        x = y;
    }
    mr_release(x);
    assert_int_equal(mr__alloc_live(), live);
}

static void
detach__drops_the_inputs_once(void **state)
{
    int64_t live = mr__alloc_live();
    mr_array *a = ones(), *x = mr__node_new(&op_like, NULL, 1, &a);

    (void)state;
    mr_release(a);
    mr__node_detach(x);
    assert_null(x->in[0]);
    mr__node_detach(x);
    mr_release(x);
    assert_int_equal(mr__alloc_live(), live);
}

static void
detach__waits_for_the_trace(void **state)
{
    int64_t live = mr__alloc_live();
    uint64_t trace = mr__trace_begin();
    mr_array *t = mr__node_placeholder(MR_FLOAT32, 0, NULL, trace);
    mr_array *x = mr__node_new(&op_like, NULL, 1, &t);

    (void)state;
    mr__node_detach(x);
    assert_ptr_equal(x->in[0], t);
    mr__trace_end(trace);
    mr__node_detach(x);
    assert_null(x->in[0]);
    mr_release(x);
    mr_release(t);
    assert_int_equal(mr__alloc_live(), live);
}

/* ---- the users' references ---------------------------------------------- */

static int lines;

static void
count_line(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    assert_non_null(strstr(line, "mr_release"));
    lines++;
}

static void
release__of_what_a_scope_owns_is_reported(void **state)
{
    mr_scope s;
    mr_array *x;

    (void)state;
    mr__log_set_handler(count_line, NULL);
    lines = 0;
    s = mr_scope_begin();
    x = ones();
    mr_release(x);
    assert_int_equal(mr_error_take().code, MR_E_STATE);
    assert_int_equal(lines, 1);
    assert_int_equal(mr__ref_total(x), 1);
    /* one's own reference may go, and then no more */
    mr_retain(x);
    mr_release(x);
    assert_int_equal(mr_error_last().code, MR_OK);
    mr_release(x);
    assert_int_equal(mr_error_take().code, MR_E_STATE);
    assert_int_equal(lines, 2);
    assert_int_equal(mr_scope_end(s), MR_OK);
    mr__log_set_handler(NULL, NULL);
}

static void
release__accepts_what_is_not_there(void **state)
{
    (void)state;
    mr_release(NULL);
    mr_release(MR_NONE);
    assert_ptr_equal(mr_retain(MR_NONE), MR_NONE);
    assert_null(mr_retain(NULL));
    assert_int_equal(mr_error_last().code, MR_OK);
}

static void
retain_release(void *arg, int i)
{
    (void)i;
    for (int k = 0; k < 100000; k++)
        mr_release(mr_retain(arg));
}

static void
references__are_counted_by_all_threads(void **state)
{
    mr_array *x = ones();

    (void)state;
    mrt_threads(8, retain_release, x);
    assert_int_equal(mr__ref_total(x), 1);
    mr_release(x);
}

/* ---- traces ------------------------------------------------------------- */

static void
trace__is_live_between_begin_and_end(void **state)
{
    uint64_t outer = mr__trace_begin(), inner = mr__trace_begin();

    (void)state;
    assert_true(outer != 0 && outer < inner);
    assert_int_equal(mr__ctx.trace, outer);
    assert_int_equal(mr__ctx.trace_depth, 2);
    assert_true(mr__trace_live(outer) && mr__trace_live(inner));
    mr__trace_end(inner);
    assert_false(mr__trace_live(inner));
    mr__trace_end(outer);
    assert_int_equal(mr__ctx.trace, 0);
    assert_false(mr__trace_live(outer));
    assert_false(mr__trace_live(0));
    for (int i = 0; i < 10000; i++) {
        uint64_t next = mr__trace_begin();

        assert_true(next > inner);
        assert_false(mr__trace_live(inner));
        mr__trace_end(next);
    }
}

static void
trace__of_a_node_is_the_outermost(void **state)
{
    uint64_t outer = mr__trace_begin(), inner;
    mr_array *a = mr__node_placeholder(MR_FLOAT32, 0, NULL, outer), *b;
    mr_array *in[2], *x;

    (void)state;
    inner = mr__trace_begin();
    b = mr__node_placeholder(MR_FLOAT32, 0, NULL, inner);
    in[0] = b;
    in[1] = a;
    x = mr__node_elementwise(&op_add, MR_FLOAT32, 2, in);
    assert_int_equal(x->trace, outer);
    mr_release(x);
    mr__trace_end(inner);
    mr__trace_end(outer);
    /* of traces that have ended nothing is left */
    x = mr__node_elementwise(&op_add, MR_FLOAT32, 2, in);
    assert_int_equal(x->trace, 0);
    mr_release(x);
    mr_release(a);
    mr_release(b);
}

static void
open_and_close(void *arg, int i)
{
    (void)arg;
    (void)i;
    for (int k = 0; k < 20000; k++) {
        uint64_t t = mr__trace_begin();

        assert_true(mr__trace_live(t));
        mr__trace_end(t);
        assert_false(mr__trace_live(t));
    }
}

static void
traces__of_all_threads_are_distinct(void **state)
{
    (void)state;
    mrt_threads(8, open_and_close, NULL);
}

static void
traces__are_bounded(void **state)
{
    enum { N = 4096 };
    static uint64_t t[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        t[i] = mr__trace_begin();
        assert_true(t[i] != 0);
    }
    assert_int_equal(mr__trace_begin(), 0);
    assert_int_equal(mr_error_take().code, MR_E_STATE);
    for (int i = N - 1; i >= 0; i--)
        mr__trace_end(t[i]);
}

/* ---- failures ----------------------------------------------------------- */

static bool
make_all_kinds(void *arg)
{
    mr_array *a = arg, *x[8];
    int64_t dims[] = {4, 5};
    shape_params p = {{dims, 2}, true, 2.5};
    mr_array *in[2] = {a, a}, *t;
    bool ok = true;

    t = mr__node_new(&op_pair, NULL, 1, &a);
    x[0] = mr__node_new(&op_shape, &p, 1, &a);
    x[1] = mr__node_elementwise(&op_add, MR_FLOAT32, 2, in);
    x[2] = mr_float(1.0);
    x[3] = mr__node_placeholder(MR_FLOAT32, 2, dims, 0);
    x[4] = mr__node_tracer(a, 0);
    x[5] = ones();
    x[6] = t ? mr__node_output(t, 1) : NULL;
    x[7] = t;
    for (int i = 0; i < 8; i++) {
        ok = ok && x[i];
        mr_release(x[i]);
    }
    return ok;
}

static void
failures__leave_nothing_behind(void **state)
{
    mr_array *a = ones();

    (void)state;
    make_all_kinds(a);
    mr__pool_trim(mr__host_pool(), 0);
    assert_true(mrt_each_failure(make_all_kinds, a) >= 8);
    assert_int_equal(mr__ref_total(a), 1);
    mr_release(a);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(node__holds_its_call),
        cmocka_unit_test(node__of_an_operator_with_parameters_needs_them),
        cmocka_unit_test(node__of_several_results_is_a_tuple),
        cmocka_unit_test(node__keeps_a_failure_as_it_was),
        cmocka_unit_test(node__takes_site_and_stream_from_the_thread),
        cmocka_unit_test(nodes_made__counts_this_threads),
        cmocka_unit_test(scalar__lives_in_its_node),
        cmocka_unit_test(tracer__shares_what_is_done),
        cmocka_unit_test(chain__of_a_million_frees),
        cmocka_unit_test(diamonds__free_each_node_once),
        cmocka_unit_test(detach__drops_the_inputs_once),
        cmocka_unit_test(detach__waits_for_the_trace),
        cmocka_unit_test(release__of_what_a_scope_owns_is_reported),
        cmocka_unit_test(release__accepts_what_is_not_there),
        cmocka_unit_test(references__are_counted_by_all_threads),
        cmocka_unit_test(trace__is_live_between_begin_and_end),
        cmocka_unit_test(trace__of_a_node_is_the_outermost),
        cmocka_unit_test(traces__of_all_threads_are_distinct),
        cmocka_unit_test(traces__are_bounded),
        cmocka_unit_test(failures__leave_nothing_behind),
    };

    return cmocka_run_group_tests_name("graph/node", tests, NULL, NULL);
}
