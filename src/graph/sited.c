/* SPDX-License-Identifier: Apache-2.0
 *
 * sited.c -- calls that know their line.
 *
 * What makes no array of an operator (trees, reading, evaluation, transforms,
 * compiled functions) has no door of its own.  In C its name is a macro that
 * passes the line to a function here, which calls the plain one: what fails
 * names that line, unless the failure has a better one, as the line that made
 * an array, or that of a call in the user's closure.
 * Called by: users' code in C.  The library and bindings call the plain ones.
 */
#include "base/error.h"
#include "graph/context.h"
#include "marram/array.h"
#include "marram/compile.h"
#include "marram/eval.h"
#include "marram/transform.h"
#include "marram/tree.h"

/* After the call: a failure of it that knows no line has this one.  An error
 * that was there before stays as it is. */
static void
name_line(const char *site, uint64_t failures_before)
{
    if (__builtin_expect(mr__error_count() != failures_before, 0))
        mr__error_annotate(NULL, mr__ctx.site != NULL ? mr__ctx.site : site,
                           NULL);
}

/* ---- tree.h */

mr_tree *
mr_tree_leaf_sited(const char *site, mr_array *x)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_tree_leaf(x);

    name_line(site, before);
    return r;
}

mr_tree *
mr_tree_list_sited(const char *site, int n, mr_tree *const *items)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_tree_list(n, items);

    name_line(site, before);
    return r;
}

mr_tree *
mr_tree_tuple_sited(const char *site, int n, mr_tree *const *items)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_tree_tuple(n, items);

    name_line(site, before);
    return r;
}

mr_tree *
mr_tree_dict_sited(const char *site, int n, const char *const *keys,
                   mr_tree *const *items)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_tree_dict(n, keys, items);

    name_line(site, before);
    return r;
}

mr_tree *
mr_tree_arrays_sited(const char *site, int n, mr_array *const *arrays)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_tree_arrays(n, arrays);

    name_line(site, before);
    return r;
}

mr_tree *
mr_tree_at_sited(const char *site, const mr_tree *t, int i)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_tree_at(t, i);

    name_line(site, before);
    return r;
}

mr_array *
mr_tree_array_at_sited(const char *site, const mr_tree *t, int i)
{
    uint64_t before = mr__error_count();
    mr_array *r = mr_tree_array_at(t, i);

    name_line(site, before);
    return r;
}

const char *
mr_tree_key_sited(const char *site, const mr_tree *t, int i)
{
    uint64_t before = mr__error_count();
    const char *r = mr_tree_key(t, i);

    name_line(site, before);
    return r;
}

mr_tree *
mr_tree_get_sited(const char *site, const mr_tree *t, const char *key)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_tree_get(t, key);

    name_line(site, before);
    return r;
}

mr_array *
mr_tree_get_array_sited(const char *site, const mr_tree *t, const char *key)
{
    uint64_t before = mr__error_count();
    mr_array *r = mr_tree_get_array(t, key);

    name_line(site, before);
    return r;
}

mr_array *
mr_tree_array_sited(const char *site, const mr_tree *t)
{
    uint64_t before = mr__error_count();
    mr_array *r = mr_tree_array(t);

    name_line(site, before);
    return r;
}

mr_code
mr_tree_leaves_sited(const char *site, const mr_tree *t, mr_array **out, int n)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_tree_leaves(t, out, n);

    name_line(site, before);
    return r;
}

mr_tree *
mr_tree_like_sited(const char *site, const mr_tree *t, mr_array *const *leaves,
                   int n)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_tree_like(t, leaves, n);

    name_line(site, before);
    return r;
}

mr_tree *
mr_tree_map_sited(const char *site,
                  mr_array *(*fn)(void *ctx, mr_array *const *x), void *ctx,
                  int n, mr_tree *const *trees)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_tree_map(fn, ctx, n, trees);

    name_line(site, before);
    return r;
}

/* ---- array.h */

int64_t
mr_array_dim_sited(const char *site, const mr_array *x, int axis)
{
    uint64_t before = mr__error_count();
    int64_t r = mr_array_dim(x, axis);

    name_line(site, before);
    return r;
}

mr_code
mr_array_copy_out_sited(const char *site, mr_array *x, void *out, size_t bytes)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_array_copy_out(x, out, bytes);

    name_line(site, before);
    return r;
}

mr_code
mr_array_copy_f32_sited(const char *site, mr_array *x, float *out, int64_t n)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_array_copy_f32(x, out, n);

    name_line(site, before);
    return r;
}

mr_code
mr_array_copy_f64_sited(const char *site, mr_array *x, double *out, int64_t n)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_array_copy_f64(x, out, n);

    name_line(site, before);
    return r;
}

mr_code
mr_array_copy_i64_sited(const char *site, mr_array *x, int64_t *out, int64_t n)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_array_copy_i64(x, out, n);

    name_line(site, before);
    return r;
}

mr_code
mr_array_item_sited(const char *site, mr_array *x, mr_scalar *out)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_array_item(x, out);

    name_line(site, before);
    return r;
}

double
mr_array_item_f64_sited(const char *site, mr_array *x)
{
    uint64_t before = mr__error_count();
    double r = mr_array_item_f64(x);

    name_line(site, before);
    return r;
}

const void *
mr_array_data_sited(const char *site, mr_array *x)
{
    uint64_t before = mr__error_count();
    const void *r = mr_array_data(x);

    name_line(site, before);
    return r;
}

const int64_t *
mr_array_strides_sited(const char *site, mr_array *x)
{
    uint64_t before = mr__error_count();
    const int64_t *r = mr_array_strides(x);

    name_line(site, before);
    return r;
}

char *
mr_array_text_sited(const char *site, mr_array *x, int precision)
{
    uint64_t before = mr__error_count();
    char *r = mr_array_text(x, precision);

    name_line(site, before);
    return r;
}

mr_code
mr_print_sited(const char *site, mr_array *x)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_print(x);

    name_line(site, before);
    return r;
}

/* ---- eval.h */

mr_code
mr_eval_sited(const char *site, mr_array *x)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_eval(x);

    name_line(site, before);
    return r;
}

mr_code
mr_eval_many_sited(const char *site, mr_array *const *x, int n)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_eval_many(x, n);

    name_line(site, before);
    return r;
}

mr_code
mr_eval_tree_sited(const char *site, const mr_tree *t)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_eval_tree(t);

    name_line(site, before);
    return r;
}

mr_code
mr_async_eval_sited(const char *site, mr_array *const *x, int n)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_async_eval(x, n);

    name_line(site, before);
    return r;
}

/* ---- transform.h */

mr_tree *
mr_value_and_grad_sited(const char *site, mr_fn fn, void *ctx,
                        const mr_tree *args, const int *argnums, int n_argnums)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_value_and_grad(fn, ctx, args, argnums, n_argnums);

    name_line(site, before);
    return r;
}

mr_tree *
mr_grad_sited(const char *site, mr_fn fn, void *ctx, const mr_tree *args,
              const int *argnums, int n_argnums)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_grad(fn, ctx, args, argnums, n_argnums);

    name_line(site, before);
    return r;
}

mr_code
mr_check_grad_sited(const char *site, mr_fn fn, void *ctx, const mr_tree *args,
                    double step, double tolerance)
{
    uint64_t before = mr__error_count();
    mr_code r = mr_check_grad(fn, ctx, args, step, tolerance);

    name_line(site, before);
    return r;
}

mr_tree *
mr_vjp_sited(const char *site, mr_fn fn, void *ctx, const mr_tree *primals,
             const mr_tree *cotangents)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_vjp(fn, ctx, primals, cotangents);

    name_line(site, before);
    return r;
}

mr_tree *
mr_jvp_sited(const char *site, mr_fn fn, void *ctx, const mr_tree *primals,
             const mr_tree *tangents)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_jvp(fn, ctx, primals, tangents);

    name_line(site, before);
    return r;
}

mr_tree *
mr_vmap_sited(const char *site, mr_fn fn, void *ctx, const mr_tree *args,
              const int32_t *in_axes, int n_in, const int32_t *out_axes,
              int n_out)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_vmap(fn, ctx, args, in_axes, n_in, out_axes, n_out);

    name_line(site, before);
    return r;
}

mr_tree *
mr_depends_sited(const char *site, const mr_tree *inputs,
                 const mr_tree *dependencies)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_depends(inputs, dependencies);

    name_line(site, before);
    return r;
}

/* ---- compile.h */

mr_function *
mr_compile_sited(const char *site, mr_fn fn, void *ctx,
                 const mr_compile_options *options)
{
    uint64_t before = mr__error_count();
    mr_function *r = mr_compile(fn, ctx, options);

    name_line(site, before);
    return r;
}

mr_tree *
mr_call_sited(const char *site, mr_function *f, const mr_tree *args)
{
    uint64_t before = mr__error_count();
    mr_tree *r = mr_call(f, args);

    name_line(site, before);
    return r;
}
