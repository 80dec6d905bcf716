/* SPDX-License-Identifier: Apache-2.0
 *
 * decode.c -- one compiled function for every length, from C.
 *
 *     build/bin/examples/decode [TOKENS]
 *
 * A layer of attention reads one token after the other; its cache of keys and
 * values grows by one each time.  The function is traced once: sizes are
 * symbolic while it is (`shapeless`), and mr_dim gives them.  The weights are
 * the context of a closure, which frees them when the last function that uses
 * it is gone.
 */
#include <marram/marram.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 4, WIDTH = 16, MODEL = HEADS * WIDTH };

typedef struct layer {
    mr_array *qkv, *out; /* weights; references of our own */
    int traces;
} layer;

static void
layer_free(void *ctx)
{
    layer *l = ctx;

    printf("traced %d time%s\n", l->traces, l->traces == 1 ? "" : "s");
    mr_release(l->qkv);
    mr_release(l->out);
    free(l);
}

static layer *
layer_new(void)
{
    layer *l = calloc(1, sizeof *l);
    mr_scope s = mr_scope_begin();
    mr_array *scale = mr_float(1.0 / sqrt(MODEL));

    if (l != NULL) {
        l->qkv = mr_retain(mr_random_normal(
            MR_SHAPE(MODEL, 3 * MODEL), MR_FLOAT32, MR_NONE, scale, MR_NONE));
        l->out = mr_retain(mr_random_normal(MR_SHAPE(MODEL, MODEL), MR_FLOAT32,
                                            MR_NONE, scale, MR_NONE));
    }
    mr_scope_end(s);
    return l;
}

/* (new, MODEL) to (HEADS, new, WIDTH); `new` is read from the array. */
static mr_array *
heads(mr_array *x)
{
    mr_shape split = {(int64_t[]){mr_dim(x, 0), HEADS, WIDTH}, 3};

    return mr_transpose(mr_reshape(x, split), MR_INTS(1, 0, 2));
}

/* (tokens, keys, values) to (tokens, keys, values), longer by the tokens. */
static mr_tree *
step(void *ctx, const mr_tree *in)
{
    layer *l = ctx;
    mr_array *x = mr_tree_array_at(in, 0);
    mr_tree *qkv = mr_split(mr_matmul(x, l->qkv), 3, 1);
    mr_array *q = heads(mr_tree_array_at(qkv, 0));
    mr_array *k =
        mr_concatenate((mr_array *[]){mr_tree_array_at(in, 1),
                                      heads(mr_tree_array_at(qkv, 1))},
                       2, 1);
    mr_array *v =
        mr_concatenate((mr_array *[]){mr_tree_array_at(in, 2),
                                      heads(mr_tree_array_at(qkv, 2))},
                       2, 1);
    mr_array *scores = mr_multiply(mr_matmul(q, mr_matrix_transpose(k)),
                                   mr_float(1.0 / sqrt(WIDTH)));
    mr_array *y = mr_matmul(mr_softmax(scores, MR_AXES(-1), false), v);
    int64_t all = mr_dim_math(MR_SIZE_MULTIPLY, HEADS, WIDTH);

    l->traces++;
    y = mr_reshape(mr_transpose(y, MR_INTS(1, 0, 2)),
                   MR_SHAPE(mr_dim(x, 0), all));
    return MR_ARRAYS(mr_add(x, mr_matmul(y, l->out)), k, v);
}

/* Runs n tokens through f, or through the closure itself when f is NULL. */
static mr_tree *
run(mr_function *f, mr_closure *c, int n)
{
    mr_scope all = mr_scope_begin();
    mr_array *x = mr_ones(MR_SHAPE(1, MODEL), MR_FLOAT32);
    mr_array *none = mr_zeros(MR_SHAPE(HEADS, 0, WIDTH), MR_FLOAT32);
    mr_tree *state = MR_ARRAYS(x, none, none);

    for (int i = 0; i < n && state != NULL; i++) {
        mr_scope s = mr_scope_begin(); /* what a step leaves behind goes */
        mr_tree *next = f ? mr_call(f, state) : mr_closure_call(c, state);

        if (mr_eval_tree(next) != MR_OK)
            next = NULL;
        state = mr_scope_return_tree(s, next);
        mr_scope_end(s);
    }
    state = mr_scope_return_tree(all, state);
    mr_scope_end(all);
    return state;
}

int
main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 24, bad = 1;
    mr_compile_options options = {
        .size = sizeof options, .shapeless = true, .name = "step"};
    layer *l = layer_new();
    mr_closure *c = l ? mr_closure_new(step, l, layer_free) : NULL;
    mr_function *f = mr_compile_closure(c, &options);
    mr_cache_info info = {.size = sizeof info};
    mr_scope s = mr_scope_begin();
    mr_tree *a = f ? run(f, c, n) : NULL;

    mr_function_cache_info(f, &info);
    printf("%d tokens: %d traces, %d programs\n", n, (int)info.traces,
           (int)info.misses);
    if (l)
        l->traces = (int)info.traces;
    mr_function_release(f);
    if (a != NULL) {
        int traces = l->traces;
        mr_tree *b = run(NULL, c, n);

        l->traces = traces; /* the plain runs were none */
        bad = !(mr_array_item_f64(mr_all(
                    mr_equal(mr_tree_array_at(a, 0), mr_tree_array_at(b, 0)),
                    MR_AXES_ALL, false)) == 1.0);
        printf("equal to the plain function: %s\n", bad ? "no" : "yes");
    }
    if (mr_error_last().code != MR_OK)
        fprintf(stderr, "%s\n", mr_error_last().message);
    mr_scope_end(s);
    mr_closure_release(c);
    return bad;
}
