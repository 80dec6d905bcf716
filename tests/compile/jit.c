/* SPDX-License-Identifier: Apache-2.0
 *
 * jit.c -- native code for hot programs: when it is asked for, how it comes
 * and goes, what happens when there is none.
 *
 * Most tests bring a provider of their own, whose "compiler" waits at a gate,
 * fails, or gives a function written here; so they say the same with and
 * without LLVM, and under sanitizers.  That LLVM's code has the interpreter's
 * bits is tested by tests/sweep/native.py.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "compile/jit.h"
#include "compile/tier1.h"
#include "marram/sys/info.h"
#include "support/mrt.h"

enum { SIZE = 5000 };

/* ---- a provider ------------------------------------------------------------
 */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
/* Under gate. */
static bool shut;
static int n_waiting, n_compiled, n_quick, n_released;
static mr_code answer;
static bool unfinished; /* what compile_quick says */

static _Atomic int n_native_calls, n_quick_calls;

/* (x + a) * b in float32, as the interpreter computes it. */
static void
add_multiply(const mr_native_call *c)
{
    const float *a = (const float *)(const void *)c->in[1];
    const float *b = (const float *)(const void *)c->in[2];

    atomic_fetch_add_explicit(&n_native_calls, 1, memory_order_relaxed);
    for (int64_t r = 0; r < c->rows; r++) {
        const float *x =
            (const float *)(const void *)(c->in[0] + r * c->in_row[0]);
        float *y = (float *)(void *)(c->out[0] + r * c->out_row[0]);

        for (int64_t i = 0; i < c->n; i++)
            y[i] = (x[i] + *a) * *b;
    }
}

static void
add_multiply_quick(const mr_native_call *c)
{
    atomic_fetch_add_explicit(&n_quick_calls, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&n_native_calls, 1, memory_order_relaxed);
    add_multiply(c);
}

static mr_code
quick_compile(void *self, const mr_segment *s, mr_native_fn **fn, void **code,
              bool *more)
{
    (void)self;
    (void)s;
    pthread_mutex_lock(&gate);
    n_quick++;
    *more = unfinished;
    pthread_mutex_unlock(&gate);
    *fn = add_multiply_quick;
    *code = NULL;
    return MR_OK;
}

static mr_code
slow_compile(void *self, const mr_segment *s, mr_native_fn **fn, void **code)
{
    mr_code rc;

    (void)self;
    pthread_mutex_lock(&gate);
    n_waiting++;
    pthread_cond_broadcast(&gate_moved);
    while (shut)
        pthread_cond_wait(&gate_moved, &gate);
    n_waiting--;
    n_compiled++;
    rc = answer;
    pthread_mutex_unlock(&gate);
    if (rc != MR_OK)
        return mr__fail(rc, "this compiler is broken");
    if (s->n_in != 3 || s->n_op != 2 || s->op[0].k != MR_K_ADD ||
        s->op[1].k != MR_K_MULTIPLY || s->in[0].dtype != MR_FLOAT32)
        return mr__fail(MR_E_UNSUPPORTED, "not the program of these tests");
    *fn = add_multiply;
    *code = NULL;
    return MR_OK;
}

static void
count_release(void *self, void *code)
{
    (void)self;
    (void)code;
    pthread_mutex_lock(&gate);
    n_released++;
    pthread_mutex_unlock(&gate);
}

static const mr_jit_table provider = {.size = sizeof provider,
                                      .abi = MR_JIT_ABI,
                                      .build = MR_BUILD_HASH,
                                      .name = "test",
                                      .compile = slow_compile,
                                      .release = count_release};

static void
begin(mr_jit_mode mode, mr_code code)
{
    mr__jit_use(&provider, mode);
    shut = false;
    n_compiled = n_quick = n_released = 0;
    answer = code;
    atomic_store(&n_native_calls, 0);
    atomic_store(&n_quick_calls, 0);
}

/* The same with quick code first; better: there is better code. */
static void
begin_quick(mr_code code, bool better)
{
    mr_jit_table both = provider;

    begin(MR_JIT_BACKGROUND, code);
    both.compile_quick = quick_compile;
    mr__jit_use(&both, MR_JIT_BACKGROUND);
    unfinished = better;
}

static void
finish(void)
{
    mr_compile_cache_clear();
    mr__jit_use(NULL, MR_JIT_OFF);
    assert_int_equal(n_released, (answer == MR_OK ? n_compiled : 0) + n_quick);
}

static void
gate_set(bool to)
{
    pthread_mutex_lock(&gate);
    shut = to;
    pthread_cond_broadcast(&gate_moved);
    pthread_mutex_unlock(&gate);
}

/* Until the worker stands at the gate. */
static void
gate_await(void)
{
    pthread_mutex_lock(&gate);
    while (n_waiting == 0)
        pthread_cond_wait(&gate_moved, &gate);
    pthread_mutex_unlock(&gate);
}

/* ---- a program -------------------------------------------------------------
 */

/* (x + 1) * number, the number a float behind ctx */
static mr_tree *
body(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    return mr_tree_leaf(
        mr_multiply(mr_add(x, mr_full((mr_shape){0}, 1.0, MR_FLOAT32)),
                    mr_full((mr_shape){0}, *(float *)ctx, MR_FLOAT32)));
}

/* One call on 0, 1, 2, ...; checks all of the result. */
static void
call(mr_function *f, float number)
{
    mr_scope s = mr_scope_begin();
    mr_array *x =
        mr_arange(MR_INTEGER(0), MR_INTEGER(SIZE), MR_INTEGER(1), MR_FLOAT32);
    const float *got = mr_array_data(mr_tree_array(mr_call(f, MR_ARRAYS(x))));

    assert_non_null(got);
    for (int i = 0; i < SIZE; i++)
        assert_true(got[i] == ((float)i + 1.0F) * number);
    mr_scope_end(s);
}

/* Enough calls for a program to be hot. */
static void
heat(mr_function *f, float number)
{
    for (int i = 0; i < 4000; i++)
        call(f, number);
}

/* Enough for it to be hotter still. */
static void
heat_more(mr_function *f, float number)
{
    for (int i = 0; i < 10; i++)
        heat(f, number);
}

/* ---- tests ------------------------------------------------------------------
 */

static void
mode__off_never_compiles(void **state)
{
    float number = 2.0F;
    mr_function *f = mr_compile(body, &number, NULL);

    (void)state;
    begin(MR_JIT_OFF, MR_OK);
    heat(f, number);
    mr__jit_wait();
    assert_int_equal(n_compiled, 0);
    mr_function_release(f);
    finish();
}

static void
mode__now_compiles_before_the_first_run(void **state)
{
    float number = 3.0F;
    mr_function *f = mr_compile(body, &number, NULL);

    (void)state;
    begin(MR_JIT_NOW, MR_OK);
    call(f, number);
    assert_int_equal(n_compiled, 1);
    assert_true(atomic_load(&n_native_calls) > 0);
    mr_function_release(f);
    finish();
}

static void
mode__unknown_is_an_error_that_says_so(void **state)
{
    float number = 3.0F;
    mr_function *f = mr_compile(body, &number, NULL);

    (void)state;
    mr__jit_use(NULL, MR_JIT_UNKNOWN);
    for (int i = 0; i < 2; i++) {
        assert_null(mr_call(f, MR_ARRAYS(mr_float(1.0))));
        mrt_assert_error(MR_E_VALUE, "off, background or now");
    }
    mr__jit_use(NULL, MR_JIT_OFF);
    mr_function_release(f);
}

static void
background__cold_programs_stay_on_the_interpreter(void **state)
{
    float number = 4.0F;
    mr_function *f = mr_compile(body, &number, NULL);

    (void)state;
    begin(MR_JIT_BACKGROUND, MR_OK);
    for (int i = 0; i < 3; i++)
        call(f, number);
    mr__jit_wait();
    assert_int_equal(n_compiled, 0);
    mr_function_release(f);
    finish();
}

static void
background__nobody_waits_and_code_is_swapped_in(void **state)
{
    float number = 5.0F;
    mr_function *f = mr_compile(body, &number, NULL);

    (void)state;
    begin(MR_JIT_BACKGROUND, MR_OK);
    gate_set(true);
    heat(f, number);
    gate_await();
    call(f, number); /* the interpreter, while the compiler is at work */
    assert_int_equal(atomic_load(&n_native_calls), 0);
    gate_set(false);
    mr__jit_wait();
    call(f, number);
    assert_true(atomic_load(&n_native_calls) > 0);
    assert_int_equal(n_compiled, 1);
    mr_function_release(f);
    finish();
}

static void
erase__while_compiling_is_safe(void **state)
{
    float number = 6.0F;
    mr_function *f = mr_compile(body, &number, NULL);

    (void)state;
    begin(MR_JIT_BACKGROUND, MR_OK);
    gate_set(true);
    heat(f, number);
    gate_await();
    mr_function_release(f);
    mr_compile_cache_clear();
    gate_set(false);
    mr__jit_wait();
    assert_int_equal(n_compiled, 1);
    finish();
}

static void
code__of_equal_programs_is_made_once(void **state)
{
    float number[3] = {7.0F, 8.0F, 9.0F};

    (void)state;
    begin(MR_JIT_NOW, MR_OK);
    for (int i = 0; i < 3; i++) {
        mr_function *f = mr_compile(body, &number[i], NULL);

        call(f, number[i]);
        mr_function_release(f);
    }
    assert_int_equal(n_compiled, 1);
    finish();
}

static void
quick__comes_first_and_better_code_when_it_is_hotter(void **state)
{
    float number = 20.0F;
    mr_function *f = mr_compile(body, &number, NULL);
    int before;

    (void)state;
    begin_quick(MR_OK, true);
    gate_set(true);
    heat_more(f, number);
    gate_await(); /* the better code is being made */
    assert_int_equal(n_quick, 1);
    assert_true(atomic_load(&n_quick_calls) > 0);
    assert_int_equal(atomic_load(&n_native_calls), 0);
    gate_set(false);
    mr__jit_wait();
    before = atomic_load(&n_quick_calls);
    call(f, number);
    assert_int_equal(atomic_load(&n_quick_calls), before);
    assert_true(atomic_load(&n_native_calls) > 0);
    assert_int_equal(n_compiled, 1);
    mr_function_release(f);
    finish();
}

static void
quick__is_all_there_is_where_nothing_is_better(void **state)
{
    float number[2] = {21.0F, 22.0F};
    mr_function *f = mr_compile(body, &number[0], NULL);
    mr_function *g = mr_compile(body, &number[1], NULL);

    (void)state;
    begin_quick(MR_OK, false);
    heat_more(f, number[0]);
    heat_more(g, number[1]);
    mr__jit_wait();
    assert_int_equal(n_quick, 1); /* g has f's code */
    assert_int_equal(n_compiled, 0);
    mr_function_release(f);
    mr_function_release(g);
    finish();
}

static void
quick__better_code_of_another_program_is_taken(void **state)
{
    float number[2] = {23.0F, 24.0F};
    mr_function *f = mr_compile(body, &number[0], NULL);
    mr_function *g = mr_compile(body, &number[1], NULL);
    int before;

    (void)state;
    begin_quick(MR_OK, true);
    heat_more(f, number[0]);
    mr__jit_wait();
    before = atomic_load(&n_quick_calls);
    heat(g, number[1]);
    mr__jit_wait();
    call(g, number[1]);
    assert_int_equal(atomic_load(&n_quick_calls), before);
    assert_int_equal(n_quick, 1);
    assert_int_equal(n_compiled, 1);
    mr_function_release(f);
    mr_function_release(g);
    finish();
}

static void
erase__while_better_code_is_made_is_safe(void **state)
{
    float number = 25.0F;
    mr_function *f = mr_compile(body, &number, NULL);

    (void)state;
    begin_quick(MR_OK, true);
    gate_set(true);
    heat_more(f, number);
    gate_await();
    mr_function_release(f);
    mr_compile_cache_clear();
    gate_set(false);
    mr__jit_wait();
    assert_int_equal(n_quick, 1);
    assert_int_equal(n_compiled, 1);
    finish();
}

static int n_lines;

static void
count_line(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    n_lines += strstr(line, "this compiler is broken") != NULL;
}

static void
failure__is_said_once_and_the_interpreter_goes_on(void **state)
{
    float number[3] = {10.0F, 11.0F, 12.0F};

    (void)state;
    n_lines = 0;
    mr__log_set_handler(count_line, NULL);
    begin(MR_JIT_NOW, MR_E_DEVICE);
    for (int i = 0; i < 3; i++) {
        mr_function *f = mr_compile(body, &number[i], NULL);

        call(f, number[i]);
        mr_function_release(f);
    }
    assert_int_equal(n_compiled, 3);
    assert_int_equal(atomic_load(&n_native_calls), 0);
    finish();
    mr__log_flush();
    mr__log_set_handler(NULL, NULL);
    assert_int_equal(n_lines, 1);
}

static void
failure__of_better_code_leaves_the_quick_code(void **state)
{
    float number = 26.0F;
    mr_function *f = mr_compile(body, &number, NULL);
    mr_jit_info before = {.size = sizeof before}, after = before;
    int calls;

    (void)state;
    n_lines = 0;
    mr__log_set_handler(count_line, NULL);
    begin_quick(MR_E_DEVICE, true);
    mr_jit_info_get(&before);
    heat_more(f, number);
    mr__jit_wait();
    assert_int_equal(n_compiled, 1);
    calls = atomic_load(&n_quick_calls);
    call(f, number);
    assert_true(atomic_load(&n_quick_calls) > calls);
    mr_jit_info_get(&after);
    assert_int_equal(after.steps, before.steps + 1);
    assert_int_equal(after.failed, before.failed);
    assert_true(after.waited > before.waited);
    mr_function_release(f);
    finish();
    mr__log_flush();
    mr__log_set_handler(NULL, NULL);
    assert_int_equal(n_lines, 0);
}

/* ---- threads and forks
 * -------------------------------------------------------- */

static void
calls_and_erases(void *arg, int i)
{
    float *number = arg;

    for (int k = 0; k < 20; k++) {
        mr_function *f = mr_compile(body, &number[i % 2], NULL);

        for (int c = 0; c < 40; c++)
            call(f, number[i % 2]);
        mr_function_release(f);
        if (i == 0)
            mr_compile_cache_clear();
    }
}

static void
threads__call_while_code_comes_and_programs_go(void **state)
{
    float number[2] = {13.0F, 14.0F};

    (void)state;
    begin(MR_JIT_NOW, MR_OK);
    mrt_threads(4, calls_and_erases, number);
    mr__jit_wait();
    assert_true(atomic_load(&n_native_calls) > 0);
    finish();
}

static void
calls_until_better(void *arg, int i)
{
    (void)i;
    for (int k = 0; k < 200000 && atomic_load(&n_native_calls) < 20; k++)
        call(arg, 27.0F);
}

static void
threads__call_while_code_is_swapped_twice(void **state)
{
    float number = 27.0F;
    mr_function *f = mr_compile(body, &number, NULL);

    (void)state;
    begin_quick(MR_OK, true);
    mrt_threads(4, calls_until_better, f);
    mr__jit_wait();
    assert_int_equal(n_quick, 1);
    assert_int_equal(n_compiled, 1);
    assert_true(atomic_load(&n_native_calls) >= 20);
    mr_function_release(f);
    finish();
}

#if !MRT_TSAN
static void
call_and_compile(void *arg)
{
    float number = 16.0F;
    mr_function *g;

    call(arg, 15.0F);
    atomic_store(&n_native_calls, 0);
    g = mr_compile(body, &number, NULL);
    heat(g, number);
    mr__jit_wait(); /* this child's own worker */
    call(g, number);
    if (atomic_load(&n_native_calls) == 0)
        fprintf(stderr, "no native code in the child");
    mr_function_release(g);
}

static void
fork__child_has_a_worker_of_its_own(void **state)
{
    float number = 15.0F;
    mr_function *f = mr_compile(body, &number, NULL);
    char said[512];

    (void)state;
    begin(MR_JIT_BACKGROUND, MR_OK);
    heat(f, number); /* the worker is perhaps at work when we fork */
    assert_int_equal(mrt_child(call_and_compile, f, said, sizeof said), 0);
    assert_string_equal(said, "");
    mr__jit_wait();
    call(f, number);
    mr_function_release(f);
    finish();
}

#endif

/* ---- LLVM -------------------------------------------------------------------
 */

static void
llvm__computes_the_same(void **state)
{
    float number = 17.0F;
    mr_jit_info before = {.size = sizeof before}, after = before;
    mr_function *f;

    (void)state;
    mr__jit_use(NULL, MR_JIT_NOW);
    assert_int_equal(mr_jit_info_get(&before), MR_OK);
    if (before.why_not != NULL) {
        print_message("skipped, no LLVM: %s\n", before.why_not);
        mr__jit_use(NULL, MR_JIT_OFF);
        return;
    }
    f = mr_compile(body, &number, NULL);
    call(f, number);
    call(f, number);
    assert_int_equal(mr_jit_info_get(&after), MR_OK);
    assert_true(after.loaded);
    assert_int_equal(after.compiled, before.compiled + 1);
    mr_function_release(f);
    mr_compile_cache_clear();
    mr__jit_use(NULL, MR_JIT_OFF);
}

static int
find_provider(struct dl_phdr_info *info, size_t size, void *path)
{
    (void)size;
    if (strstr(info->dlpi_name, "libmarram-jit") == NULL)
        return 0;
    snprintf(path, 512, "%s", info->dlpi_name);
    return 1;
}

static void
count_fatal(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    n_lines += strstr(line, "LLVM failed for good: Cannot select") != NULL;
}

/* Last of all: LLVM is of no use afterwards. */
static void
llvm__a_fatal_error_costs_a_line_and_native_code(void **state)
{
    float number = 18.0F, other = 19.0F;
    mr_jit_info before = {.size = sizeof before};
    char path[512] = "";
    void (*provoke)(void);
    void *library, *symbol;
    mr_function *f, *g;

    (void)state;
    mr__jit_use(NULL, MR_JIT_NOW);
    assert_int_equal(mr_jit_info_get(&before), MR_OK);
    if (before.why_not != NULL) {
        print_message("skipped, no LLVM: %s\n", before.why_not);
        mr__jit_use(NULL, MR_JIT_OFF);
        return;
    }
    f = mr_compile(body, &number, NULL);
    call(f, number); /* loads the library */
    assert_true(dl_iterate_phdr(find_provider, path));
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    symbol = dlsym(library, "mr_jit_provoke_fatal");
    memcpy(&provoke, &symbol, sizeof provoke);
    assert_non_null(provoke);
    mr_compile_cache_clear();
    mr__jit_use(NULL, MR_JIT_NOW); /* code that was kept is dropped */
    n_lines = 0;
    mr__log_set_handler(count_fatal, NULL);
    provoke();
    g = mr_compile(body, &other, NULL);
    for (int i = 0; i < 3; i++) {
        call(g, other);
        call(f, number);
    }
    mr__log_flush();
    mr__log_set_handler(NULL, NULL);
    assert_int_equal(n_lines, 1);
    mr_function_release(f);
    mr_function_release(g);
    mr_compile_cache_clear();
    mr__jit_use(NULL, MR_JIT_OFF);
    dlclose(library);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(llvm__computes_the_same),
        mrt_test(mode__off_never_compiles),
        mrt_test(mode__now_compiles_before_the_first_run),
        mrt_test(mode__unknown_is_an_error_that_says_so),
        mrt_test(background__cold_programs_stay_on_the_interpreter),
        mrt_test(background__nobody_waits_and_code_is_swapped_in),
        mrt_test(erase__while_compiling_is_safe),
        mrt_test(code__of_equal_programs_is_made_once),
        mrt_test(quick__comes_first_and_better_code_when_it_is_hotter),
        mrt_test(quick__is_all_there_is_where_nothing_is_better),
        mrt_test(quick__better_code_of_another_program_is_taken),
        mrt_test(erase__while_better_code_is_made_is_safe),
        mrt_test(failure__is_said_once_and_the_interpreter_goes_on),
        mrt_test(failure__of_better_code_leaves_the_quick_code),
        mrt_test(threads__call_while_code_comes_and_programs_go),
        mrt_test(threads__call_while_code_is_swapped_twice),
#if !MRT_TSAN /* which lets no child of a process with threads start one */
        mrt_test(fork__child_has_a_worker_of_its_own),
#endif
        mrt_test(llvm__a_fatal_error_costs_a_line_and_native_code),
    };

    return cmocka_run_group_tests_name("compile/jit", tests, NULL, NULL);
}
