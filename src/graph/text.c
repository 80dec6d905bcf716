/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c -- arrays as text: "array([1, 2], dtype=float32)".
 *
 * More than six entries on an axis shorten to the first and last three.  Rows
 * are separated by a comma, a newline and seven spaces plus one a depth, so
 * that they stand below each other behind "array(".  Numbers are written in
 * the C locale whatever the program's is.
 * Called by: users, bindings.  Calls: read.c, array/, base/.
 */
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "array/dtype.h"
#include "array/number.h"
#include "base/alloc.h"
#include "base/error.h"
#include "graph/node.h"
#include "graph/read.h"
#include "marram/array.h"

enum {
    MOST_ENTRIES = 6, /* of an axis, unshortened */
    EDGE = 3,         /* entries shown at each end otherwise */
    DIGITS = 6,
    MOST_DECIMALS = 100,
    NUMBER_BYTES = 512, /* the longest double has 309 digits and its decimals */
    INDENT = 7,         /* "array([" */
};

typedef struct mr_text {
    char *s;
    size_t n, cap;
    bool failed;
    const mr_array *x;
    int precision; /* < 0: DIGITS significant ones */
} mr_text;

static void
put(mr_text *t, const char *s, size_t n)
{
    if (t->failed)
        return;
    if (t->cap - t->n <= n) {
        size_t cap = 2 * t->cap + n + 64;
        char *more = mr__alloc_again(t->s, cap);

        if (more == NULL) {
            t->failed = true;
            return;
        }
        t->s = more;
        t->cap = cap;
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
}

static void
puts_text(mr_text *t, const char *s)
{
    put(t, s, strlen(s));
}

/* ---- numbers ------------------------------------------------------------ */

/* `plus`: with a sign in front of positive numbers too. */
static void
put_float(mr_text *t, double v, bool plus)
{
    char s[NUMBER_BYTES];

    if (isnan(v)) /* the sign of a NaN says nothing */
        snprintf(s, sizeof s, "%snan", plus ? "+" : "");
    else if (t->precision < 0)
        snprintf(s, sizeof s, plus ? "%+.*g" : "%.*g", DIGITS, v);
    else
        snprintf(s, sizeof s, plus ? "%+.*f" : "%.*f",
                 t->precision < MOST_DECIMALS ? t->precision : MOST_DECIMALS,
                 v);
    puts_text(t, s);
}

static void
put_element(mr_text *t, const char *at)
{
    mr_scalar v = mr__number_read((mr_dtype)t->x->dtype, at);
    char s[32];

    switch (v.kind) {
    case MR_SCALAR_BOOL:
        puts_text(t, v.as.b ? "True" : "False");
        break;
    case MR_SCALAR_INT:
        snprintf(s, sizeof s, "%" PRId64, v.as.i);
        puts_text(t, s);
        break;
    case MR_SCALAR_UINT:
        snprintf(s, sizeof s, "%" PRIu64, v.as.u);
        puts_text(t, s);
        break;
    case MR_SCALAR_FLOAT:
        put_float(t, v.as.f, false);
        break;
    case MR_SCALAR_COMPLEX:
        put_float(t, v.as.c.re, false);
        put_float(t, v.as.c.im, true);
        puts_text(t, "j");
        break;
    }
}

/* ---- axes --------------------------------------------------------------- */

static void
put_separator(mr_text *t, int axis)
{
    static const char spaces[MR_MAX_NDIM + INDENT + 1] =
        "                                       ";

    if (axis == t->x->ndim - 1) {
        puts_text(t, ", ");
        return;
    }
    puts_text(t, ",\n");
    put(t, spaces, (size_t)(INDENT + axis));
}

/* Recurses over the axes, of which there are few. */
static void
put_axis(mr_text *t, int axis, const char *at)
{
    const mr_array *x = t->x;
    int64_t n, step;

    if (axis == x->ndim) {
        put_element(t, at);
        return;
    }
    n = x->dim[axis];
    step = mr__strides(x)[axis] * mr__dtype_size((mr_dtype)x->dtype);
    puts_text(t, "[");
    for (int64_t i = 0; i < n && !t->failed; i++) {
        if (i > 0)
            put_separator(t, axis);
        if (n > MOST_ENTRIES && i == EDGE) {
            puts_text(t, "...");
            i = n - EDGE - 1;
        } else {
            put_axis(t, axis + 1, at + i * step);
        }
    }
    puts_text(t, "]");
}

char *
mr_array_text(mr_array *x, int precision)
{
    mr_text t = {.x = x, .precision = precision};
    locale_t c, old = (locale_t)0;

    if (mr__array_ready(x) != MR_OK)
        return NULL;
    c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c)
        old = uselocale(c);
    puts_text(&t, "array(");
    put_axis(&t, 0, mr__array_first(x));
    puts_text(&t, ", dtype=");
    puts_text(&t, mr_dtype_name((mr_dtype)x->dtype));
    puts_text(&t, ")");
    if (c) {
        uselocale(old);
        freelocale(c);
    }
    if (!t.failed)
        return t.s;
    mr__dealloc(t.s);
    return NULL;
}

void
mr_text_free(char *text)
{
    mr__dealloc(text);
}

mr_code
mr_print(mr_array *x)
{
    char *text = mr_array_text(x, -1);
    int written;

    if (text == NULL)
        return mr__error_code();
    written = puts(text);
    mr_text_free(text);
    return written < 0 ? mr__fail(MR_E_IO, "standard output refused the text")
                       : MR_OK;
}
