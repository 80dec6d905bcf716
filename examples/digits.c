/* SPDX-License-Identifier: Apache-2.0
 *
 * digits.c -- train a classifier of handwritten digits, from C.
 *
 *     build/bin/examples/digits [DATA.npy] [OUT.safetensors]
 *
 * One compiled function does a whole training step: forward, gradient, Adam.
 * What is given the NULL of a failed call fails too, with the first error.
 */
#include <marram/marram.h>
#include <math.h>
#include <stdio.h>

enum { HELD_OUT = 360, BATCHES = 44, BATCH = 32, EPOCHS = 30 };

/* A dict of weights: 64 pixels, two hidden layers, 10 digits. */
static mr_tree *
model_new(double spread)
{
    const char *name[] = {"w1", "b1", "w2", "b2", "w3", "b3"};
    const int64_t width[] = {64, 256, 128, 10};
    mr_tree *p[6];

    for (int i = 0; i < 3; i++) {
        mr_array *scale = mr_float(spread * sqrt(2.0 / (double)width[i]));
        mr_shape w = {width + i, 2}, b = {width + i + 1, 1};

        p[2 * i] = mr_tree_leaf(
            mr_random_normal(w, MR_FLOAT32, MR_NONE, scale, MR_NONE));
        p[2 * i + 1] = mr_tree_leaf(mr_zeros(b, MR_FLOAT32));
    }
    return mr_tree_dict(6, name, p);
}

static mr_array *
logits(const mr_tree *p, mr_array *pixels) /* 0 to 16 */
{
    mr_array *x = mr_divide(pixels, mr_float(16.0));

    for (int i = 0; i < 6; i += 2) {
        if (i > 0)
            x = mr_maximum(x, mr_float(0.0));
        x = mr_matmul(x, mr_tree_array_at(p, i));
        x = mr_add(x, mr_tree_array_at(p, i + 1));
    }
    return x;
}

/* (weights, rows of 64 pixels and the digit) to (cross entropy, accuracy). */
static mr_tree *
measure(void *ctx, const mr_tree *in)
{
    mr_tree *data = mr_split_indices(mr_tree_array_at(in, 1), MR_INTS(64), 1);
    mr_array *z = logits(mr_tree_at(in, 0), mr_tree_array_at(data, 0));
    mr_array *y = mr_tree_array_at(data, 1);
    mr_array *all = mr_logsumexp(z, MR_AXES(1), true);
    mr_array *loss = mr_subtract(all, mr_take_along_axis(z, y, 1));
    mr_array *right = mr_equal(mr_argmax(z, 1, true), y);

    (void)ctx;
    return MR_ARRAYS(mr_mean(loss, MR_AXES_ALL, false),
                     mr_mean(right, MR_AXES_ALL, false));
}

/* keep * x[0] + (1 - keep) * x[1] */
static mr_array *
blend(void *keep, mr_array *const *x)
{
    return mr_add(x[1], mr_multiply(keep, mr_subtract(x[0], x[1])));
}

static mr_array *
blend_square(void *keep, mr_array *const *x)
{
    return blend(keep, (mr_array *[]){x[0], mr_square(x[1])});
}

static mr_array *
update(void *rate, mr_array *const *x) /* weight, mean, mean square */
{
    mr_array *slope = mr_divide(x[1], mr_add(mr_sqrt(x[2]), mr_float(1e-8)));

    return mr_subtract(x[0], mr_multiply(rate, slope));
}

/* A step of Adam: (state, rate, rows) to (new state, measures); the
 * state is (weights, mean of the gradient, mean of its square). */
static mr_tree *
train_step(void *ctx, const mr_tree *in)
{
    mr_tree *old = mr_tree_at(in, 0), *p = mr_tree_at(old, 0);
    mr_tree *args = MR_TUPLE(p, mr_tree_at(in, 2));
    mr_tree *found = mr_value_and_grad(measure, ctx, args, NULL, 0);
    mr_tree *m[] = {mr_tree_at(old, 1), mr_tree_at(found, 1)};
    mr_tree *v[] = {mr_tree_at(old, 2), mr_tree_at(found, 1)};
    mr_tree *new[] = {p, mr_tree_map(blend, mr_float(0.9), 2, m),
                      mr_tree_map(blend_square, mr_float(0.999), 2, v)};

    new[0] = mr_tree_map(update, mr_tree_array_at(in, 1), 3, new);
    return MR_TUPLE(mr_tree_tuple(3, new), mr_tree_at(found, 0));
}

int
main(int argc, char **argv)
{
    const char *in = argc > 1 ? argv[1] : "examples/data/digits.npy";
    const char *out = argc > 2 ? argv[2] : "build/digits.safetensors";
    mr_scope whole = mr_scope_begin();
    mr_array *key = mr_random_seed(MR_INTEGER(7));
    mr_array *all = mr_random_permutation(mr_load_npy(in), 0, key);
    mr_tree *part = mr_split_indices(all, MR_INTS(HELD_OUT), 0);
    mr_tree *held_out = mr_tree_at(part, 0);
    mr_array *train = mr_tree_array_at(part, 1);
    mr_tree *p = model_new(1.0), *zeros = model_new(0.0);
    mr_tree *state = mr_tree_retain(MR_TUPLE(p, zeros, zeros));
    mr_function *step = mr_compile(train_step, NULL, NULL);

    for (int i = 0; mr_error_last().code == MR_OK && i < EPOCHS; i++) {
        mr_scope epoch = mr_scope_begin();
        mr_array *mixed = mr_random_permutation(train, 0, MR_NONE);
        mr_tree *cut = mr_split_indices(mixed, MR_INTS(BATCHES * BATCH), 0);
        mr_tree *x = mr_split(mr_tree_array_at(cut, 0), BATCHES, 0);
        double loss = 0.0;

        for (int b = 0, t = i * BATCHES + 1; b < BATCHES; b++, t++) {
            mr_scope s = mr_scope_begin();
            double bias = sqrt(1.0 - pow(0.999, t)) / (1.0 - pow(0.9, t));
            mr_tree *rate = mr_tree_leaf(mr_float(2e-3 * bias));
            mr_tree *r = mr_call(step, MR_TUPLE(state, rate, mr_tree_at(x, b)));

            loss += mr_array_item_f64(mr_tree_array_at(mr_tree_at(r, 1), 0));
            mr_tree_release(state);
            state = mr_tree_retain(mr_tree_at(r, 0));
            mr_scope_end(s);
        }
        mr_tree *r = measure(NULL, MR_TUPLE(mr_tree_at(state, 0), held_out));
        printf("epoch %2d  loss %.4f  held out %.4f\n", i + 1, loss / BATCHES,
               mr_array_item_f64(mr_tree_array_at(r, 1)));
        mr_scope_end(epoch);
    }
    if (mr_error_last().code == MR_OK)
        mr_save_safetensors(out, mr_tree_at(state, 0), 0, NULL, NULL);
    mr_tree_release(state);
    mr_function_release(step);
    mr_scope_end(whole);
    if (mr_error_last().code == MR_OK)
        return 0;
    return fprintf(stderr, "%s\n", mr_error_last().message), 1;
}
