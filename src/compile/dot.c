/* SPDX-License-Identifier: Apache-2.0
 *
 * dot.c -- a compiled program as a graph in the DOT language of Graphviz.
 *
 * A cluster for the program, a box for each step, an ellipse for each argument,
 * constant and output.  An arrow is a value on its way through memory: dashed,
 * with the reason, between two steps that were not joined.
 *
 * Called by: explain.c, report.c.
 */
#include <inttypes.h>
#include <string.h>

#include "compile/explain.h"
#include "marram/array.h"

/* What was written on a page of its own goes between quotes. */
static void
put_quoted(mr_page *t, mr_page *label)
{
    char *words = mr__page_take(label);

    if (words != NULL)
        mr__page_quoted(t, words);
    t->failed = t->failed || words == NULL;
    mr_text_free(words);
}

/* ---- nodes
 * -------------------------------------------------------------------------- */

static void
put_end(mr_page *t, const char *id, char kind, int index, const char *what,
        const mr_slot *s)
{
    mr__page_put(t, "    \"%s.%c%d\" [shape=ellipse, label=\"%s %d\\n", id,
                 kind, index, what, index);
    mr__explain_shape(t, s->dtype, s->ndim, s->dim);
    mr__page_put(t, "\\n%" PRId64 " bytes\"];\n", mr__explain_bytes(s));
}

static mr_slot
slot_of(const mr_array *x)
{
    return (mr_slot){.dtype = (mr_dtype)x->dtype,
                     .ndim = x->ndim,
                     .dim = x->dim,
                     .stride = mr__strides(x)};
}

static void
put_ends(mr_page *t, const mr_program *p, const char *id)
{
    for (int i = 0; i < p->n_args; i++) {
        mr_slot s = slot_of(p->keep[i]);

        put_end(t, id, 'a', i, "argument", &s);
    }
    for (int i = 0; i < p->n_consts; i++) {
        mr_slot s = slot_of(p->consts[i]);

        put_end(t, id, 'c', i, "constant", &s);
    }
    for (int k = 0; k < p->n_out; k++) {
        mr_slot s = p->outs[k];

        s.stride = NULL;
        put_end(t, id, 'o', k, "output", &s);
    }
}

static void
put_step(mr_page *t, const mr_program *p, const char *id, int n)
{
    const mr_step *s = &p->steps[n];
    mr_page label = {.v = NULL};

    mr__page_put(&label, "%d: ", n);
    mr__explain_operators(&label, s);
    mr__page_put(&label, "\n%s\n", mr__explain_tier(p, s));
    mr__explain_traffic(&label, s);
    mr__page_put(&label, "\n");
    if (s->node->site != NULL) {
        mr__page_words(&label, s->node->site, strlen(s->node->site));
        mr__page_put(&label, "\n");
    }
    mr__page_put(t, "    \"%s.s%d\" [shape=box, label=\"", id, n);
    put_quoted(t, &label);
    mr__page_put(t, "\"];\n");
}

/* ---- arrows
 * -------------------------------------------------------------------------- */

static void
put_value(mr_page *label, const mr_program *p, const mr_slot *s)
{
    mr__explain_shape(label, s->dtype, s->ndim, s->dim);
    mr__page_put(label, "%s\n%" PRId64 " bytes", mr__explain_layout(s),
                 mr__explain_bytes(s));
    if (s->kind == MR_SLOT_TEMP || s->kind == MR_SLOT_OUT) {
        mr__page_put(label, " at ");
        mr__explain_place(label, p, s);
    }
}

static void
put_arrow(mr_page *t, const mr_program *p, const char *id, int n, int i)
{
    const mr_slot *s = &p->steps[n].in[i];
    mr_slot_kind kind = mr__explain_kind(p, s);
    mr_page label = {.v = NULL};
    int maker;
    const char *why = mr__explain_apart(p, n, i, &maker);

    if (s == mr__step_product(&p->steps[n]) ||
        (maker < 0 && kind != MR_SLOT_ARG && kind != MR_SLOT_CONST))
        return;
    if (maker >= 0)
        mr__page_put(t, "    \"%s.s%d\"", id, maker);
    else
        mr__page_put(t, "    \"%s.%c%d\"", id, kind == MR_SLOT_ARG ? 'a' : 'c',
                     mr__explain_index(p, s));
    mr__page_put(t, " -> \"%s.s%d\" [", id, n);
    if (why != NULL)
        mr__page_put(t, "style=dashed, color=red, ");
    mr__page_put(t, "label=\"");
    put_value(&label, p, s);
    if (why != NULL)
        mr__page_put(&label, "\nnot joined: %s\n", why);
    put_quoted(t, &label);
    mr__page_put(t, "\"];\n");
}

/* From the last step that writes the output: those before used its memory. */
static void
put_result(mr_page *t, const mr_program *p, const char *id, int k)
{
    for (int n = p->n_steps - 1; n >= 0; n--)
        for (int i = 0; i < p->steps[n].n_out; i++)
            if (p->steps[n].out[i].kind == MR_SLOT_OUT &&
                p->steps[n].out[i].index == k) {
                mr__page_put(t, "    \"%s.s%d\" -> \"%s.o%d\";\n", id, n, id,
                             k);
                return;
            }
}

/* ---- programs
 * -------------------------------------------------------------------------- */

static void
put_title(mr_page *t, const mr_cache_entry *e, const mr_program *p,
          const char *name)
{
    mr_page label = {.v = NULL};

    mr__page_words(&label, name, strlen(name));
    mr__page_put(&label, ": ");
    if (p != NULL)
        mr__explain_signature(&label, p);
    else
        mr__page_put(&label, "nothing to compute");
    mr__page_put(&label, "\n");
    mr__explain_lines(&label, e, "called with ");
    if (p != NULL) {
        mr__page_put(&label, "workspace of %zu bytes\n", p->workspace);
        mr__explain_layouts(&label, p, "");
    }
    mr__page_put(t, "    label=\"");
    put_quoted(t, &label);
    mr__page_put(t, "\"; labeljust=l;\n");
}

void
mr__explain_dot(mr_page *t, const mr_cache_entry *e, const char *name,
                const char *id)
{
    const mr_program *p = e->holder == NULL ? NULL : mr__program_of(e->holder);

    mr__page_put(t, "  subgraph \"cluster_%s\" {\n", id);
    put_title(t, e, p, name);
    if (p == NULL) /* a cluster without nodes is not drawn */
        mr__page_put(t, "    \"%s.s0\" [shape=plaintext, label=\"\"];\n", id);
    for (int n = 0; p != NULL && n < p->n_steps; n++)
        put_step(t, p, id, n);
    if (p != NULL)
        put_ends(t, p, id);
    for (int n = 0; p != NULL && n < p->n_steps; n++)
        for (int i = 0; i < p->steps[n].n_in; i++)
            put_arrow(t, p, id, n, i);
    for (int k = 0; p != NULL && k < p->n_out; k++)
        put_result(t, p, id, k);
    mr__page_put(t, "  }\n");
}
