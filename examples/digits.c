/* SPDX-License-Identifier: Apache-2.0
 *
 * digits.c -- train a classifier of handwritten digits, from C.
 *
 *     build/bin/examples/digits [DATA.npy] [OUT.safetensors]
 *
 * One compiled function does a whole training step: forward, gradient, Adam.
 */
#include <marram/marram.h>
#include <math.h>
#include <stdio.h>

enum { N = 1797, HELD_OUT = 360, TRAIN = N - HELD_OUT, BATCH = 32, EPOCHS = 30 };

/* A dict of weights: 64 pixels, two hidden layers, 10 digits. */
static mr_tree *
model_new(void)
{
    const char *names[] = {"w1", "b1", "w2", "b2", "w3", "b3"};
    const int64_t width[] = {64, 128, 64, 10};
    mr_tree *p[6];

    for (int i = 0; i < 3; i++) {
        mr_array *w =
            mr_random_normal(MR_SHAPE(width[i], width[i + 1]), MR_FLOAT32,
                             MR_NONE, mr_float(sqrt(2.0 / (double)width[i])), MR_NONE);
        p[2 * i] = mr_tree_leaf(w);
        p[2 * i + 1] = mr_tree_leaf(mr_zeros(MR_SHAPE(width[i + 1]), MR_FLOAT32));
    }
    return mr_tree_dict(6, names, p);
}

static mr_array *
layer(const mr_tree *p, const char *w, const char *b, mr_array *x)
{
    return mr_add(mr_matmul(x, mr_tree_get_array(p, w)), mr_tree_get_array(p, b));
}

static mr_array *
logits(const mr_tree *p, mr_array *x)
{
    x = mr_maximum(layer(p, "w1", "b1", x), mr_float(0.0));
    x = mr_maximum(layer(p, "w2", "b2", x), mr_float(0.0));
    return layer(p, "w3", "b3", x);
}

/* (weights, images, labels) to the mean cross entropy. */
static mr_tree *
loss(void *ctx, const mr_tree *in)
{
    (void)ctx;
    mr_array *z = logits(mr_tree_at(in, 0), mr_tree_array_at(in, 1));
    mr_array *y = mr_expand_dims(mr_tree_array_at(in, 2), MR_AXES(1));
    mr_array *all = mr_logsumexp(z, MR_AXES(1), true);

    return mr_tree_leaf(mr_mean(
        mr_subtract(all, mr_take_along_axis(z, y, 1)), MR_AXES_ALL, false));
}

/* Adam: a running mean of the gradient or of its square, and the update. */
static mr_array *
blend(void *keep, mr_array *const *x)
{
    double k = *(double *)keep;
    mr_array *now = k > 0.99 ? mr_square(x[1]) : x[1];
    return mr_add(mr_multiply(mr_float(k), x[0]), mr_multiply(mr_float(1 - k), now));
}

static mr_array *
update(void *step_size, mr_array *const *x) /* weight, mean, mean square */
{
    mr_array *slope = mr_divide(x[1], mr_add(mr_sqrt(x[2]), mr_float(1e-8)));
    return mr_subtract(x[0], mr_multiply(step_size, slope));
}

/* (state, step size, images, labels) to (state, loss); state: weights, m, v. */
static mr_tree *
train_step(void *ctx, const mr_tree *in)
{
    mr_tree *state = mr_tree_at(in, 0), *p = mr_tree_at(state, 0);
    mr_tree *args = MR_TUPLE(p, mr_tree_at(in, 2), mr_tree_at(in, 3));
    mr_tree *lg = mr_value_and_grad(loss, ctx, args, NULL, 0);
    mr_tree *g = mr_tree_at(lg, 1);
    mr_tree *m = mr_tree_map(blend, &(double){0.9}, 2, (mr_tree *[]){mr_tree_at(state, 1), g});
    mr_tree *v = mr_tree_map(blend, &(double){0.999}, 2, (mr_tree *[]){mr_tree_at(state, 2), g});

    p = mr_tree_map(update, mr_tree_array_at(in, 1), 3, (mr_tree *[]){p, m, v});
    return MR_TUPLE(MR_TUPLE(p, m, v), mr_tree_at(lg, 0));
}

static mr_array *
zero(void *ctx, mr_array *const *x)
{
    (void)ctx;
    return mr_zeros_like(x[0], MR_DTYPE_DEFAULT);
}

static mr_array *
rows(mr_array *data, const int32_t *index, int64_t n)
{
    return mr_take(data, mr_array_from_i32(index, MR_SHAPE(n)), 0);
}

static void
shuffle(int32_t *v, int n, uint32_t *seed)
{
    for (int i = n - 1; i > 0; i--) {
        *seed = *seed * 1664525u + 1013904223u;
        int k = (int)((*seed >> 8) % (uint32_t)(i + 1));
        int32_t t = v[i];
        v[i] = v[k], v[k] = t;
    }
}

int
main(int argc, char **argv)
{
    const char *out = argc > 2 ? argv[2] : "build/digits.safetensors";
    mr_array *all = mr_load_npy(argc > 1 ? argv[1] : "examples/data/digits.npy");
    mr_array *x = mr_divide(mr_index_slice(all, MR_INTS(0, 0), MR_INTS(N, 64),
                                           MR_INTS(1, 1)), mr_float(16.0));
    mr_array *y = mr_reshape(mr_index_slice(all, MR_INTS(0, 64), MR_INTS(N, 65),
                                            MR_INTS(1, 1)), MR_SHAPE(N));
    mr_function *step = mr_compile(train_step, NULL, NULL);
    mr_random_seed((mr_scalar){MR_SCALAR_INT, {.i = 7}});
    mr_tree *p = model_new(), *zeros = mr_tree_map(zero, NULL, 1, &p);
    mr_tree *state = MR_TUPLE(p, zeros, zeros);
    double correct = 0.0;
    uint32_t seed = 1;
    int32_t order[N];

    for (int i = 0; i < N; i++)
        order[i] = i;
    shuffle(order, N, &seed);
    for (int epoch = 0, t = 1; state != NULL && epoch < EPOCHS; epoch++) {
        double sum = 0.0;
        shuffle(order, TRAIN, &seed); /* the last HELD_OUT stay where they are */
        for (int b = 0; b + BATCH <= TRAIN; b += BATCH, t++) {
            mr_scope s = mr_scope_begin();
            mr_array *lr = mr_float(2e-3 * sqrt(1 - pow(0.999, t)) / (1 - pow(0.9, t)));
            mr_tree *r = mr_call(step, MR_TUPLE(
                state, mr_tree_leaf(lr), mr_tree_leaf(rows(x, order + b, BATCH)),
                mr_tree_leaf(rows(y, order + b, BATCH))));
            mr_eval_tree(r);
            sum += mr_array_item_f64(mr_tree_array_at(r, 1));
            mr_tree_release(state);
            state = mr_tree_retain(mr_tree_at(r, 0));
            mr_scope_end(s);
        }
        mr_scope s = mr_scope_begin();
        mr_array *z = logits(mr_tree_at(state, 0), rows(x, order + TRAIN, HELD_OUT));
        mr_array *right = mr_equal(mr_argmax(z, 1, false), rows(y, order + TRAIN, HELD_OUT));
        correct = mr_array_item_f64(mr_mean(right, MR_AXES_ALL, false));
        mr_scope_end(s);
        printf("epoch %2d  loss %.4f  held out %.4f\n", epoch + 1,
               sum / (TRAIN / BATCH), correct);
    }
    if (mr_save_safetensors(out, mr_tree_at(state, 0), 0, NULL, NULL) != MR_OK)
        return fprintf(stderr, "%s\n", mr_error_last().message), 1;
    printf("accuracy on %d held-out digits: %.4f; weights in %s\n", HELD_OUT, correct, out);
    return 0;
}
