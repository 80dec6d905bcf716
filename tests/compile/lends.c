/* SPDX-License-Identifier: Apache-2.0
 *
 * lends.c -- arguments that several threads call with: calls do not count
 * them, and they live as long as anybody can read them.  eval/lends.c tries the
 * protocol's interleavings.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph/node.h"
#include "support/mrt.h"

enum { N = 4, THREADS = 4, ROUNDS = MRT_TSAN ? 400 : 4000, MANY = 80 };

/* (a, b) to a b + a */
static mr_tree *
body(void *ctx, const mr_tree *in)
{
    mr_array *a = mr_tree_array_at(in, 0), *b = mr_tree_array_at(in, 1);

    (void)ctx;
    return mr_tree_leaf(mr_add(mr_multiply(a, b), a));
}

static mr_tree *
sum_of_all(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    for (int i = 1; i < mr_tree_n_leaves(in); i++)
        x = mr_add(x, mr_tree_array_at(in, i));
    return mr_tree_leaf(x);
}

/* ---- arrays that say when they go ----------------------------------------
 */

static _Atomic int gone;

static void
goes(void *ctx, void *data)
{
    float *v = data;

    (void)ctx;
    for (int i = 0; i < N; i++)
        v[i] = -1000.0F; /* whoever reads it now is wrong */
    free(data);
    atomic_fetch_add(&gone, 1);
}

/* The caller's. */
static mr_array *
all(float x)
{
    float *v = malloc(N * sizeof *v);
    mr_scope s = mr_scope_none();
    mr_array *a;

    assert_non_null(v);
    for (int i = 0; i < N; i++)
        v[i] = x;
    a = mr_array_wrap(v, MR_SHAPE(N), NULL, MR_FLOAT32, goes, NULL);
    mr_scope_end(s);
    assert_non_null(a);
    return a;
}

/* The same in memory of our own, which may be written over. */
static mr_array *
all_ours(float x)
{
    mr_scope s = mr_scope_none();
    mr_array *a = mr_array_from_f32((float[N]){x, x, x, x}, MR_SHAPE(N));

    mr_scope_end(s);
    assert_non_null(a);
    return a;
}

static bool
is_all(mr_array *x, float want)
{
    const float *v = mr_array_data(x);
    bool ok = v != NULL;

    for (int i = 0; ok && i < N; i++)
        ok = v[i] == want;
    return ok;
}

/* ---- one call after the other -------------------------------------------
 */

typedef struct one {
    mr_function *f;
    mr_array *a, *b;
} one;

/* The result, the caller's. */
static mr_array *
call(const one *c)
{
    mr_scope s = mr_scope_begin();
    mr_array *x =
        mr_retain(mr_tree_array(mr_call(c->f, MR_ARRAYS(c->a, c->b))));

    mr_scope_end(s);
    return x;
}

typedef struct elsewhere {
    const one *c;
    mr_array *x[MANY];
} elsewhere;

static void
call_there(void *arg, int me)
{
    elsewhere *e = arg;

    e->x[me] = call(e->c);
}

/* By a thread that is over then. */
static mr_array *
call_elsewhere(const one *c)
{
    elsewhere e = {.c = c};

    mrt_threads(1, call_there, &e);
    return e.x[0];
}

/* Called with once, by this thread. */
static one
begin_with(mr_array *a, mr_array *b)
{
    one c = {mr_compile(body, NULL, NULL), a, b};
    mr_array *x = call(&c);

    assert_int_equal(mr_eval(x), MR_OK);
    mr_release(x);
    return c;
}

static one
begin(void)
{
    atomic_store(&gone, 0);
    return begin_with(all(2), all(3));
}

static void
end(const one *c)
{
    mr_release(c->a);
    mr_release(c->b);
    assert_int_equal(gone, 2);
    mr_function_release(c->f);
}

static void
argument__of_one_thread_is_counted(void **state)
{
    one c = begin();
    mr_array *x = call(&c);

    (void)state;
    assert_int_equal(mr__ref_total(c.a), 2);
    mr_release(x);
    assert_int_equal(mr__ref_total(c.a), 1);
    end(&c);
}

static void
argument__of_two_threads_is_not_counted(void **state)
{
    one c = begin();
    mr_array *x;

    (void)state;
    mr_release(call_elsewhere(&c));
    x = call(&c);
    assert_int_equal(mr__ref_total(c.a), 1);
    assert_int_equal(mr__ref_total(c.b), 1);
    assert_true(is_all(x, 8));
    mr_release(x);
    end(&c);
}

/* Evaluated or not, also when its thread is over. */
static void
argument__lives_as_long_as_a_call_needs_it(void **state)
{
    (void)state;
    for (int evaluated = 0; evaluated < 2; evaluated++) {
        one c = begin();
        mr_array *x = call_elsewhere(&c), *y = call(&c);

        mr_release(c.a);
        mr_release(c.b);
        assert_int_equal(gone, 0);
        if (evaluated)
            assert_true(is_all(x, 8));
        mr_release(x);
        assert_int_equal(gone, 0);
        if (evaluated)
            assert_true(is_all(y, 8));
        mr_release(y);
        assert_int_equal(gone, 2);
        mr_function_release(c.f);
    }
}

/* Who retains it through the call's edge has it when the call has ended. */
static void
argument__may_be_had_from_a_call(void **state)
{
    one c = begin();
    mr_array *x, *a;

    (void)state;
    mr_release(call_elsewhere(&c));
    x = call(&c);
    a = mr__retain(x->in[0]->in[1]);
    assert_ptr_equal(a, c.a);
    mr_release(c.a);
    mr_release(x);
    mr_release(c.b);
    assert_int_equal(gone, 1);
    assert_true(is_all(a, 2));
    mr__release(a);
    assert_int_equal(gone, 2);
    mr_function_release(c.f);
}

/* The sum has all counted references, but not all. */
static void
argument__that_a_call_reads_is_not_written_over(void **state)
{
    one c = begin_with(all_ours(2), all_ours(3));
    mr_array *x, *sum;
    mr_scope s;

    (void)state;
    mr_release(call_elsewhere(&c));
    x = call(&c);
    s = mr_scope_none();
    sum = mr_add(c.a, c.b);
    mr_scope_end(s);
    mr_release(c.a);
    mr_release(c.b);
    assert_true(is_all(sum, 5));
    assert_true(is_all(x, 8));
    mr_release(x);
    mr_release(sum);
    mr_function_release(c.f);
}

/* More than there are slots for. */
static void
arguments__beyond_the_slots_are_counted(void **state)
{
    mr_function *f = mr_compile(sum_of_all, NULL, NULL);
    mr_array *x[MANY];
    elsewhere e;
    one c = begin();

    (void)state;
    mr_release(call_elsewhere(&c));
    for (int i = 0; i < MANY; i++)
        x[i] = call(&c);
    assert_true(mr__ref_total(c.a) > 1);
    for (int i = 0; i < MANY; i++) {
        assert_true(is_all(x[i], 8));
        mr_release(x[i]);
    }
    assert_int_equal(mr__ref_total(c.a), 1);
    e.c = &c;
    mrt_threads(MANY, call_there, &e); /* so many threads, too */
    for (int i = 0; i < MANY; i++) {
        assert_true(is_all(e.x[i], 8));
        mr_release(e.x[i]);
    }
    assert_int_equal(mr__ref_total(c.a), 1);
    for (int i = 0; i < MANY; i++)
        x[i] = i % 2 == 0 ? c.a : c.b;
    for (int round = 0; round < 2; round++) {
        mr_scope scope = mr_scope_begin();
        mr_tree *out = mr_call(f, mr_tree_arrays(MANY, x));

        assert_true(is_all(mr_tree_array(out), MANY / 2 * 5));
        mr_scope_end(scope);
    }
    end(&c);
    mr_function_release(f);
}

/* A child may keep an array whose slot belongs to a thread that it has not. */
static void
read_in_child(void *arg)
{
    const elsewhere *e = arg;

    alarm(20);
    if (!is_all(e->x[0], 8) || !is_all(e->x[1], 8))
        _exit(1);
    for (int i = 0; i < MANY; i++) {
        mr_array *x = call(e->c);

        if (!is_all(x, 8))
            _exit(1);
        mr_release(x);
    }
    mr_release(e->x[0]);
    mr_release(e->x[1]);
    mr_release(e->c->a);
    mr_release(e->c->b);
    _exit(gone == 2 ? 0 : 2);
}

static void
fork__leaves_both_with_their_arguments(void **state)
{
    one c = begin();
    elsewhere e = {.c = &c};
    char text[256];

    (void)state;
    e.x[0] = call_elsewhere(&c);
    e.x[1] = call(&c);
    assert_int_equal(mrt_child(read_in_child, &e, text, sizeof text), 0);
    assert_true(is_all(e.x[0], 8));
    assert_true(is_all(e.x[1], 8));
    mr_release(e.x[0]);
    mr_release(e.x[1]);
    end(&c);
}

/* ---- all at once ---------------------------------------------------------
 * Cells hold pairs of arguments, which threads take, call with, let go and put
 * others in the place of; results go from one thread to another.
 */

enum { CELLS = 3, RESULTS = 8 };

typedef struct result {
    mr_array *x;
    float want;
} result;

typedef struct store {
    pthread_mutex_t lock;
    mr_function *f;
    mr_array *a[CELLS], *b[CELLS];
    float value[CELLS];
    result given[RESULTS];
    _Atomic int made, wrong;
} store;

static void
expect(store *s, bool ok)
{
    if (!ok)
        atomic_fetch_add(&s->wrong, 1);
}

static mr_array *
make(store *s, float x, unsigned how)
{
    if (how % 2 == 0)
        return all_ours(x);
    atomic_fetch_add(&s->made, 1);
    return all(x);
}

static void
replace(store *s, unsigned r, float value)
{
    int i = (int)(r % CELLS);
    mr_array *a = make(s, value, r >> 4), *b = make(s, value + 1, r >> 5), *t;

    pthread_mutex_lock(&s->lock);
    t = s->a[i], s->a[i] = a, a = t;
    t = s->b[i], s->b[i] = b, b = t;
    s->value[i] = value;
    pthread_mutex_unlock(&s->lock);
    mr_release(a);
    mr_release(b);
}

static float
borrow(store *s, unsigned r, one *c)
{
    int i = (int)(r % CELLS);
    float value;

    pthread_mutex_lock(&s->lock);
    c->f = s->f;
    c->a = mr_retain(s->a[i]);
    c->b = mr_retain(s->b[i]);
    value = s->value[i];
    pthread_mutex_unlock(&s->lock);
    return value;
}

static void
let_go(const one *c)
{
    mr_release(c->a);
    mr_release(c->b);
}

/* sum(v x): a walk to the call, whose value it reads. */
static mr_tree *
weighted(void *ctx, const mr_tree *in)
{
    return mr_tree_leaf(
        mr_sum(mr_multiply(ctx, mr_tree_array_at(in, 0)), MR_AXES_ALL, false));
}

static bool
is_slope(mr_array *x, mr_array *v, float want)
{
    mr_scope s = mr_scope_begin();
    mr_tree *slope = mr_grad(weighted, x, MR_ARRAYS(v), NULL, 0);
    bool ok = slope != NULL && is_all(mr_tree_array(slope), want);

    mr_scope_end(s);
    return ok;
}

static void
one_round(store *s, unsigned r, float value)
{
    one c;
    float v = borrow(s, r, &c), want = v * (v + 1) + v;
    result mine = {call(&c), want}, other = {NULL, 0};
    mr_scope scope = mr_scope_none();
    mr_array *sum = r & 64 ? mr_add(c.a, c.b) : NULL;

    mr_scope_end(scope);
    if (r & 128)
        expect(s, is_slope(mine.x, c.b, want));
    if (r & 256)
        let_go(&c);
    if (r & 512) {
        pthread_mutex_lock(&s->lock);
        other = s->given[r / 1024 % RESULTS];
        s->given[r / 1024 % RESULTS] = mine;
        pthread_mutex_unlock(&s->lock);
        mine = other;
    }
    if (sum != NULL)
        expect(s, is_all(sum, 2 * v + 1));
    if (mine.x != NULL && r % 5 != 0)
        expect(s, is_all(mine.x, mine.want));
    mr_release(mine.x);
    mr_release(sum);
    if (!(r & 256))
        let_go(&c);
    if (r % 7 == 0)
        replace(s, r >> 3, value);
}

static void
rounds(void *arg, int me)
{
    unsigned r = 12345u + (unsigned)me;

    for (int i = 0; i < ROUNDS; i++) {
        r = r * 1664525u + 1013904223u;
        one_round(arg, r >> 8, (float)(i % 50));
    }
}

static void
threads__share_replace_and_give_on(void **state)
{
    static store s = {.lock = PTHREAD_MUTEX_INITIALIZER};
    size_t active = mr_memory_active();

    (void)state;
    atomic_store(&gone, 0);
    s.f = mr_compile(body, NULL, NULL);
    for (unsigned i = 0; i < CELLS; i++)
        replace(&s, i + 16 * i, (float)i);
    mrt_threads(THREADS, rounds, &s);
    for (int i = 0; i < RESULTS; i++)
        mr_release(s.given[i].x);
    for (int i = 0; i < CELLS; i++) {
        mr_release(s.a[i]);
        mr_release(s.b[i]);
    }
    mr_function_release(s.f);
    assert_int_equal(s.wrong, 0);
    assert_true(s.made > 0);
    assert_int_equal(gone, s.made);
    assert_int_equal(mr_memory_active(), active);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(argument__of_one_thread_is_counted),
        mrt_test(argument__of_two_threads_is_not_counted),
        mrt_test(argument__lives_as_long_as_a_call_needs_it),
        mrt_test(argument__may_be_had_from_a_call),
        mrt_test(argument__that_a_call_reads_is_not_written_over),
        mrt_test(arguments__beyond_the_slots_are_counted),
        mrt_test(fork__leaves_both_with_their_arguments),
        mrt_test(threads__share_replace_and_give_on),
    };

    return cmocka_run_group_tests_name("compile/lends", tests, NULL, NULL);
}
