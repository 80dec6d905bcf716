/* SPDX-License-Identifier: Apache-2.0
 *
 * captured.c -- the arrays that a traced function found outside itself.
 *
 * A walk down from the results.  It ends at placeholders and at arrays that
 * were made before the trace began: a node made under it has its number or an
 * outer one's, an array of plain data is told by the list of what was made.
 *
 * Called by: function.c.
 */
#include "compile/captured.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "compile/cache.h"
#include "compile/call.h"
#include "graph/node.h"
#include "marram/array.h"

/* Arrays that a message names. */
enum { NAMED = 3 };

void
mr__captured_begin(mr_made *made)
{
    *made = (mr_made){.outer = mr__ctx.made};
    mr__ctx.made = made;
}

void
mr__captured_end(mr_made *made)
{
    mr__ctx.made = made->outer;
}

static bool
was_there(const mr_made *made, uint64_t trace, const mr_array *x)
{
    if (x->flags & MR_NODE_PLACEHOLDER || x->trace == trace)
        return false;
    return made == NULL || mr__map_get(&made->node, x) == NULL;
}

static bool
meet(mr_map *seen, mr_vec *stack, mr_array *x)
{
    return x == NULL || mr__vec_push_new(stack, seen, x);
}

bool
mr__captured_find(const mr_made *made, uint64_t trace, mr_array *const *leaf,
                  int n, mr_vec *found)
{
    mr_map seen = {0};
    mr_vec stack = {0};
    bool ok = true;

    for (int i = 0; ok && i < n; i++)
        ok = meet(&seen, &stack, leaf[i]);
    while (ok && stack.n > 0) {
        mr_array *x = mr__vec_pop(&stack);

        if (was_there(made, trace, x)) {
            ok = mr__vec_push(found, x);
            continue;
        }
        if (mr__state(x) == MR_NEW)
            for (int i = 0; ok && i < mr__n_edges(x); i++)
                ok = meet(&seen, &stack, x->in[i]);
    }
    mr__map_free(&seen);
    mr__vec_free(&stack);
    return ok;
}

/* "float32 (3, 4) of model.py:12, ..." */
static void
describe(const mr_vec *found, char *text, size_t cap)
{
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < found->n && i < NAMED && at + 1 < cap; i++) {
        const mr_array *x = found->v[i];
        char shape[128];
        int n;

        mr__shape_text(shape, sizeof shape, x->ndim, x->dim);
        n = snprintf(text + at, cap - at, "%s%s %s%s%s", i > 0 ? ", " : "",
                     mr_dtype_name((mr_dtype)x->dtype), shape,
                     x->site != NULL && x->site[0] ? " made at " : "",
                     x->site != NULL ? x->site : "");
        at += n > 0 ? (size_t)n : 0;
    }
    if (found->n > NAMED && at + 1 < cap)
        snprintf(text + at, cap - at, " and %zu more", found->n - NAMED);
}

/* A binding's mode: it reads what it finds at each call, and did not find it.
 */
static mr_code
not_found(const mr_function *f, size_t n, const char *text)
{
    const char *it = n == 1 ? "it" : "them", *s = n == 1 ? "" : "s";

    return mr__fail(MR_E_STATE,
                    "%s uses %zu array%s that captures=\"input\" cannot read "
                    "at each call, since no variable, attribute, list or dict "
                    "that it can replace was found to hold %s: %s. Pass %s as "
                    "argument%s, or make it an array inside the function",
                    f->name, n, s, it, text, it, s);
}

mr_code
mr__captured_judge(const mr_function *f, const mr_vec *found)
{
    const char *s = found->n == 1 ? "" : "s";
    const char *help = f->capture_help != NULL ? f->capture_help : "";
    char text[512];

    if (found->n == 0)
        return MR_OK;
    describe(found, text, sizeof text);
    if (f->captures == MR_CAPTURE_INPUT && f->capture_help != NULL)
        return not_found(f, found->n, text);
    if (f->captures != MR_CAPTURE_CONSTANT)
        return mr__fail(MR_E_STATE,
                        "%s uses %zu array%s that it was not given: %s. Pass "
                        "them as arguments%s",
                        f->name, found->n, s, text, help);
    mr__log(MR_LOG_WARN,
            "%s keeps %zu captured array%s as constants: %s. Later changes of "
            "what holds them have no effect: pass them as arguments%s.",
            f->name, found->n, s, text, help);
    return MR_OK;
}
