/* SPDX-License-Identifier: Apache-2.0
 *
 * sited.c -- calls that know their line.
 *
 * What makes no array of an operator (trees, reading, evaluation, transforms,
 * compiled functions) has no door of its own.  In C its name is a macro that
 * passes the line to a function here, which opens a door around the plain one:
 * what fails names that line, unless the failure has a better one, as the line
 * that made an array, or that of a call in the user's closure.
 * Called by: users' code in C.  The library and bindings call the plain ones.
 */
#include "base/error.h"
#include "graph/context.h"
#include "marram/array.h"
#include "marram/compile.h"
#include "marram/eval.h"
#include "marram/transform.h"
#include "marram/tree.h"

/* A door without an operator: those of operators inside have their own names
 * and lines.  Within an operator's own door it changes nothing. */
static struct mr__door
enter(const char *site)
{
    struct mr__door old = mr__error_here.door;

    if (old.op == NULL)
        mr__error_here.door.site = mr__ctx.site != NULL ? mr__ctx.site : site;
    return old;
}

/* ---- tree.h */

mr_tree *
mr_tree_leaf_sited(const char *site, mr_array *x)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_tree_leaf(x);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_tree_list_sited(const char *site, int n, mr_tree *const *items)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_tree_list(n, items);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_tree_tuple_sited(const char *site, int n, mr_tree *const *items)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_tree_tuple(n, items);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_tree_dict_sited(const char *site, int n, const char *const *keys,
                   mr_tree *const *items)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_tree_dict(n, keys, items);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_tree_arrays_sited(const char *site, int n, mr_array *const *arrays)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_tree_arrays(n, arrays);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_tree_at_sited(const char *site, const mr_tree *t, int i)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_tree_at(t, i);

    mr__error_door_restore(old);
    return r;
}

mr_array *
mr_tree_array_at_sited(const char *site, const mr_tree *t, int i)
{
    struct mr__door old = enter(site);
    mr_array *r = mr_tree_array_at(t, i);

    mr__error_door_restore(old);
    return r;
}

const char *
mr_tree_key_sited(const char *site, const mr_tree *t, int i)
{
    struct mr__door old = enter(site);
    const char *r = mr_tree_key(t, i);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_tree_get_sited(const char *site, const mr_tree *t, const char *key)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_tree_get(t, key);

    mr__error_door_restore(old);
    return r;
}

mr_array *
mr_tree_get_array_sited(const char *site, const mr_tree *t, const char *key)
{
    struct mr__door old = enter(site);
    mr_array *r = mr_tree_get_array(t, key);

    mr__error_door_restore(old);
    return r;
}

mr_array *
mr_tree_array_sited(const char *site, const mr_tree *t)
{
    struct mr__door old = enter(site);
    mr_array *r = mr_tree_array(t);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_tree_leaves_sited(const char *site, const mr_tree *t, mr_array **out, int n)
{
    struct mr__door old = enter(site);
    mr_code r = mr_tree_leaves(t, out, n);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_tree_like_sited(const char *site, const mr_tree *t, mr_array *const *leaves,
                   int n)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_tree_like(t, leaves, n);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_tree_map_sited(const char *site,
                  mr_array *(*fn)(void *ctx, mr_array *const *x), void *ctx,
                  int n, mr_tree *const *trees)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_tree_map(fn, ctx, n, trees);

    mr__error_door_restore(old);
    return r;
}

/* ---- array.h */

int64_t
mr_array_dim_sited(const char *site, const mr_array *x, int axis)
{
    struct mr__door old = enter(site);
    int64_t r = mr_array_dim(x, axis);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_array_copy_out_sited(const char *site, mr_array *x, void *out, size_t bytes)
{
    struct mr__door old = enter(site);
    mr_code r = mr_array_copy_out(x, out, bytes);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_array_copy_f32_sited(const char *site, mr_array *x, float *out, int64_t n)
{
    struct mr__door old = enter(site);
    mr_code r = mr_array_copy_f32(x, out, n);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_array_copy_f64_sited(const char *site, mr_array *x, double *out, int64_t n)
{
    struct mr__door old = enter(site);
    mr_code r = mr_array_copy_f64(x, out, n);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_array_copy_i64_sited(const char *site, mr_array *x, int64_t *out, int64_t n)
{
    struct mr__door old = enter(site);
    mr_code r = mr_array_copy_i64(x, out, n);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_array_item_sited(const char *site, mr_array *x, mr_scalar *out)
{
    struct mr__door old = enter(site);
    mr_code r = mr_array_item(x, out);

    mr__error_door_restore(old);
    return r;
}

double
mr_array_item_f64_sited(const char *site, mr_array *x)
{
    struct mr__door old = enter(site);
    double r = mr_array_item_f64(x);

    mr__error_door_restore(old);
    return r;
}

const void *
mr_array_data_sited(const char *site, mr_array *x)
{
    struct mr__door old = enter(site);
    const void *r = mr_array_data(x);

    mr__error_door_restore(old);
    return r;
}

const int64_t *
mr_array_strides_sited(const char *site, mr_array *x)
{
    struct mr__door old = enter(site);
    const int64_t *r = mr_array_strides(x);

    mr__error_door_restore(old);
    return r;
}

char *
mr_array_text_sited(const char *site, mr_array *x, int precision)
{
    struct mr__door old = enter(site);
    char *r = mr_array_text(x, precision);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_print_sited(const char *site, mr_array *x)
{
    struct mr__door old = enter(site);
    mr_code r = mr_print(x);

    mr__error_door_restore(old);
    return r;
}

/* ---- eval.h */

mr_code
mr_eval_sited(const char *site, mr_array *x)
{
    struct mr__door old = enter(site);
    mr_code r = mr_eval(x);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_eval_many_sited(const char *site, mr_array *const *x, int n)
{
    struct mr__door old = enter(site);
    mr_code r = mr_eval_many(x, n);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_eval_tree_sited(const char *site, const mr_tree *t)
{
    struct mr__door old = enter(site);
    mr_code r = mr_eval_tree(t);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_async_eval_sited(const char *site, mr_array *const *x, int n)
{
    struct mr__door old = enter(site);
    mr_code r = mr_async_eval(x, n);

    mr__error_door_restore(old);
    return r;
}

/* ---- transform.h */

mr_tree *
mr_value_and_grad_sited(const char *site, mr_fn fn, void *ctx,
                        const mr_tree *args, const int *argnums, int n_argnums)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_value_and_grad(fn, ctx, args, argnums, n_argnums);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_grad_sited(const char *site, mr_fn fn, void *ctx, const mr_tree *args,
              const int *argnums, int n_argnums)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_grad(fn, ctx, args, argnums, n_argnums);

    mr__error_door_restore(old);
    return r;
}

mr_code
mr_check_grad_sited(const char *site, mr_fn fn, void *ctx, const mr_tree *args,
                    double step, double tolerance)
{
    struct mr__door old = enter(site);
    mr_code r = mr_check_grad(fn, ctx, args, step, tolerance);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_vjp_sited(const char *site, mr_fn fn, void *ctx, const mr_tree *primals,
             const mr_tree *cotangents)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_vjp(fn, ctx, primals, cotangents);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_jvp_sited(const char *site, mr_fn fn, void *ctx, const mr_tree *primals,
             const mr_tree *tangents)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_jvp(fn, ctx, primals, tangents);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_vmap_sited(const char *site, mr_fn fn, void *ctx, const mr_tree *args,
              const int32_t *in_axes, int n_in, const int32_t *out_axes,
              int n_out)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_vmap(fn, ctx, args, in_axes, n_in, out_axes, n_out);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_depends_sited(const char *site, const mr_tree *inputs,
                 const mr_tree *dependencies)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_depends(inputs, dependencies);

    mr__error_door_restore(old);
    return r;
}

/* ---- compile.h */

mr_function *
mr_compile_sited(const char *site, mr_fn fn, void *ctx,
                 const mr_compile_options *options)
{
    struct mr__door old = enter(site);
    mr_function *r = mr_compile(fn, ctx, options);

    mr__error_door_restore(old);
    return r;
}

mr_tree *
mr_call_sited(const char *site, mr_function *f, const mr_tree *args)
{
    struct mr__door old = enter(site);
    mr_tree *r = mr_call(f, args);

    mr__error_door_restore(old);
    return r;
}
