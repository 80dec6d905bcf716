/* SPDX-License-Identifier: Apache-2.0
 *
 * contract.c -- sums of products over labelled axes (einsum), and products of
 * picked, segmented and masked matrices.
 *
 * einsum keeps a list of terms, each an array and a label for each axis.  Two
 * terms are contracted (path.c says which) until one is left: labels that
 * nobody else wants are summed first, those that both have and somebody wants
 * are batch axes, those that both have alone are contracted by a matrix
 * product. Called by: the generated doors.  Calls: marram/ops.h.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "gen/build.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/einsum.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/path.h"
#include "ops/rules.h"

/* ---- terms
 * -------------------------------------------------------------------- */

#define MAX_TERMS 64
/* Labels are letters; the axes that ... stands for have these and upwards,
 * counted from the right. */
#define DOTS 128

typedef struct term {
    mr_array *x; /* NULL in the term of the result */
    int n;
    int label[MR_MAX_NDIM];
} term;

static int
find_label(const term *t, int label)
{
    for (int i = 0; i < t->n; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

static bool
has(const term *t, int label)
{
    return find_label(t, label) >= 0;
}

static bool
put_label(term *t, int label)
{
    if (t->n == MR_MAX_NDIM) {
        mr__fail(MR_E_VALUE, "a term of more than the %d possible axes",
                 MR_MAX_NDIM);
        return false;
    }
    t->label[t->n++] = label;
    return true;
}

/* The label at s, or of the axes of `dots`; moves s on. */
static bool
read_label(const char **s, term *t, int dots)
{
    if (isalpha((unsigned char)**s))
        return put_label(t, *(*s)++);
    if (strncmp(*s, "...", 3) != 0) {
        mr__fail(MR_E_VALUE, "subscripts: '%c' is no label, letters are", **s);
        return false;
    }
    *s += 3;
    for (int k = dots; k > 0; k--)
        if (!put_label(t, DOTS + k - 1))
            return false;
    return true;
}

static void
skip_spaces(const char **s)
{
    while (**s == ' ')
        ++*s;
}

/* How many letters stand before the next ',' or '->'. */
static int
count_letters(const char *s)
{
    int n = 0;

    for (; *s != '\0' && *s != ',' && *s != '-'; s++)
        n += isalpha((unsigned char)*s) != 0;
    return n;
}

static bool
read_term(const char **s, term *t, int *most_dots)
{
    int letters = count_letters(*s);
    int dots = t->x->ndim - letters;
    bool elided = false;
    const char *from = *s;
    mr_text text;

    for (skip_spaces(s); **s != '\0' && **s != ',' && **s != '-';
         skip_spaces(s)) {
        elided = elided || **s == '.';
        if (!read_label(s, t, dots))
            return false;
    }
    if (dots < 0 || t->n != t->x->ndim) {
        mr__fail(MR_E_VALUE,
                 "subscripts: '%.*s' has %d labels for an operand of shape "
                 "%s: needs one for each axis",
                 (int)(*s - from), from, letters, mr__shape_of(t->x, &text));
        return false;
    }
    if (elided && dots > *most_dots)
        *most_dots = dots;
    return true;
}

/* Without "->": the elided axes, then the labels that occur once, in order. */
static bool
implied_result(const term *terms, int n, int dots, term *out)
{
    for (int k = dots; k > 0; k--)
        if (!put_label(out, DOTS + k - 1))
            return false;
    for (int c = 'A'; c <= 'z'; c++) {
        int count = 0;

        for (int i = 0; i < n; i++)
            for (int j = 0; j < terms[i].n; j++)
                count += terms[i].label[j] == c;
        if (count == 1 && !put_label(out, c))
            return false;
    }
    return true;
}

static bool
given_result(const char *s, const term *terms, int n, int dots, term *out)
{
    for (skip_spaces(&s); *s != '\0'; skip_spaces(&s))
        if (!read_label(&s, out, dots))
            return false;
    for (int i = 0; i < out->n; i++) {
        bool known = false;

        for (int k = 0; k < n; k++)
            known = known || has(&terms[k], out->label[i]);
        if (!known || find_label(out, out->label[i]) != i) {
            mr__fail(MR_E_VALUE, "subscripts: label '%c' of the result is %s",
                     out->label[i] < DOTS ? out->label[i] : '.',
                     known ? "given twice" : "in no operand");
            return false;
        }
    }
    return true;
}

static bool
read_subscripts(const char *s, term *terms, int n, term *out)
{
    int dots = 0;

    for (int i = 0; i < n; i++) {
        if (!read_term(&s, &terms[i], &dots))
            return false;
        if (*s == ',' && i + 1 < n)
            s++;
        else if (*s == ',' || i + 1 < n) {
            mr__fail(MR_E_VALUE,
                     "subscripts for %s than %d operands: needs a term for "
                     "each",
                     *s == ',' ? "more" : "fewer", n);
            return false;
        }
    }
    if (*s == '\0')
        return implied_result(terms, n, dots, out);
    if (s[0] != '-' || s[1] != '>') {
        mr__fail(MR_E_VALUE, "subscripts: a '-' without '>'");
        return false;
    }
    return given_result(s + 2, terms, n, dots, out);
}

/* ---- contraction
 * ------------------------------------------------------------------ */

/* A label repeated in one operand: its diagonal, which becomes the last axis.
 */
static bool
take_diagonals(term *t)
{
    for (int i = 0; i < t->n; i++) {
        for (int j = i + 1; j < t->n; j++) {
            int label = t->label[i], k = 0;

            if (t->label[j] != label)
                continue;
            if (t->x->dim[i] != t->x->dim[j]) {
                mr__fail(MR_E_SHAPE,
                         "label '%c' has the sizes %lld and %lld: needs one",
                         label, (long long)t->x->dim[i],
                         (long long)t->x->dim[j]);
                return false;
            }
            t->x = mr_diagonal(t->x, 0, i, j);
            if (t->x == NULL)
                return false;
            for (int m = 0; m < t->n; m++)
                if (m != i && m != j)
                    t->label[k++] = t->label[m];
            t->label[k++] = label;
            t->n = k;
            i = -1;
            break;
        }
    }
    return true;
}

/* Sum over the labels that are neither in a nor in b. */
static bool
sum_unwanted(term *t, const term *a, const term *b)
{
    int32_t axes[MR_MAX_NDIM], n = 0;
    int k = 0;

    for (int i = 0; i < t->n; i++) {
        if (has(a, t->label[i]) || has(b, t->label[i]))
            t->label[k++] = t->label[i];
        else
            axes[n++] = i;
    }
    t->n = k;
    if (n > 0)
        t->x = mr_sum(t->x, (mr_axes){axes, n}, false);
    return t->x != NULL;
}

/* Labels that both have get one size: 1 is repeated. */
static bool
agree_sizes(term *a, const term *b)
{
    mr_list shape = mr__dims(a->x);

    for (int i = 0; i < a->n; i++) {
        int j = find_label(b, a->label[i]);

        if (j < 0 || shape.v[i] == b->x->dim[j] || b->x->dim[j] == 1)
            continue;
        if (shape.v[i] != 1) {
            mr__fail(MR_E_SHAPE,
                     "label '%c' has the sizes %lld and %lld: needs one",
                     a->label[i] < DOTS ? a->label[i] : '.',
                     (long long)shape.v[i], (long long)b->x->dim[j]);
            return false;
        }
        shape.v[i] = b->x->dim[j];
    }
    a->x = mr_broadcast_to(a->x, mr__shape(&shape));
    return a->x != NULL;
}

/* The axes in the order of `labels` (all of t's), flattened to `groups` axes:
 * the first n_batch as they are, then two groups of the counts given. */
static mr_array *
grouped(const term *t, const int *labels, int n_batch, int n_first)
{
    mr_list order = {.n = t->n}, shape = {.n = n_batch + 2};

    for (int i = 0; i < t->n; i++)
        order.v[i] = find_label(t, labels[i]);
    shape.v[n_batch] = shape.v[n_batch + 1] = 1;
    for (int i = 0; i < t->n; i++) {
        int64_t size = t->x->dim[order.v[i]];

        if (i < n_batch)
            shape.v[i] = size;
        else
            shape.v[i < n_batch + n_first ? n_batch : n_batch + 1] *= size;
    }
    return mr_reshape(mr_transpose(t->x, mr__ints(&order)), mr__shape(&shape));
}

typedef struct label_list {
    int v[2 * MR_MAX_NDIM];
    int n;
} label_list;

static void
add_label(label_list *l, int label)
{
    l->v[l->n++] = label;
}

/* Nothing to sum: line the axes up and multiply. */
static bool
multiply_terms(term *a, const term *b, const label_list *kept)
{
    const term *both[2] = {a, b};
    mr_array *x[2];

    for (int k = 0; k < 2; k++) {
        const term *t = both[k];
        mr_list order = {.n = 0}, shape = {.n = kept->n};

        for (int i = 0; i < kept->n; i++) {
            int j = find_label(t, kept->v[i]);

            shape.v[i] = j < 0 ? 1 : t->x->dim[j];
            if (j >= 0)
                order.v[order.n++] = j;
        }
        x[k] =
            mr_reshape(mr_transpose(t->x, mr__ints(&order)), mr__shape(&shape));
    }
    a->x = mr_multiply(x[0], x[1]);
    return a->x != NULL;
}

/* a becomes the contraction of both; `rest` says which labels are wanted. */
static bool
contract_pair(term *a, term *b, const term *rest)
{
    label_list batch = {.n = 0}, sums = {.n = 0}, left, right, kept;
    mr_list shape = {.n = 0};
    mr_array *x, *y;

    if (!sum_unwanted(a, b, rest) || !sum_unwanted(b, a, rest) ||
        !agree_sizes(a, b) || !agree_sizes(b, a))
        return false;
    for (int i = 0; i < a->n; i++)
        if (has(b, a->label[i]))
            add_label(has(rest, a->label[i]) ? &batch : &sums, a->label[i]);
    left = right = kept = batch;
    for (int i = 0; i < a->n; i++)
        if (!has(b, a->label[i])) {
            add_label(&left, a->label[i]);
            add_label(&kept, a->label[i]);
        }
    for (int i = 0; i < sums.n; i++) {
        add_label(&left, sums.v[i]);
        add_label(&right, sums.v[i]);
    }
    for (int i = 0; i < b->n; i++)
        if (!has(a, b->label[i])) {
            add_label(&right, b->label[i]);
            add_label(&kept, b->label[i]);
        }
    if (kept.n > MR_MAX_NDIM) {
        mr__fail(MR_E_VALUE, "a product of %d axes, at most %d are possible",
                 (int)kept.n, MR_MAX_NDIM);
        return false;
    }
    if (sums.n == 0) {
        if (!multiply_terms(a, b, &kept))
            return false;
    } else {
        for (int i = 0; i < kept.n; i++) {
            int j = find_label(a, kept.v[i]);

            shape.v[shape.n++] =
                j >= 0 ? a->x->dim[j] : b->x->dim[find_label(b, kept.v[i])];
        }
        x = grouped(a, left.v, batch.n, left.n - batch.n - sums.n);
        y = grouped(b, right.v, batch.n, sums.n);
        a->x = mr_reshape(mr_matmul(x, y), mr__shape(&shape));
    }
    a->n = kept.n;
    memcpy(a->label, kept.v, (size_t)kept.n * sizeof *kept.v);
    return a->x != NULL;
}

/* All labels that the result or a term but i and j want. */
static void
wanted_labels(const term *terms, int n, int i, int j, const term *out,
              term *rest)
{
    bool seen[DOTS + MR_MAX_NDIM] = {false};

    rest->n = 0;
    for (int k = 0; k <= n; k++) {
        const term *t = k == n ? out : &terms[k];

        for (int m = 0; k != i && k != j && m < t->n; m++)
            seen[t->label[m]] = true;
    }
    for (int c = 0; c < DOTS + MR_MAX_NDIM && rest->n < MR_MAX_NDIM; c++)
        if (seen[c])
            rest->label[rest->n++] = c;
}

/* ---- the order
 * ------------------------------------------------------------------------ */

/* The number of a label among those seen so far; -1: there are too many. */
static int
label_number(int *labels, int *n, int label)
{
    for (int i = 0; i < *n; i++)
        if (labels[i] == label)
            return i;
    if (*n == MR_PATH_LABELS)
        return -1;
    labels[*n] = label;
    return (*n)++;
}

/* One more axis; false with an error where its size does not fit. */
static bool
add_axis(mr_path *p, int number, int label, int64_t size)
{
    double have = p->size[number];

    if (have < 0.0 || have == 1.0)
        have = (double)size;
    if (size != 1 && have != (double)size) {
        mr__fail(MR_E_SHAPE,
                 "label '%c' has the sizes %.0f and %lld: needs one",
                 label < DOTS ? label : '.', have, (long long)size);
        return false;
    }
    p->size[number] = have;
    return true;
}

/* What the terms look like to path.c; false with an error. */
static bool
describe(const term *terms, int n, const term *out, mr_path *p)
{
    int labels[MR_PATH_LABELS], n_labels = 0;

    p->n = n;
    p->out = 0;
    for (int i = 0; i < MR_PATH_LABELS; i++)
        p->size[i] = -1.0; /* not seen */
    for (int k = 0; k <= n; k++) {
        const term *t = k == n ? out : &terms[k];
        uint64_t *bits = k == n ? &p->out : &p->term[k];

        *bits = 0;
        for (int i = 0; i < t->n; i++) {
            int number = label_number(labels, &n_labels, t->label[i]);

            if (number < 0) {
                mr__fail(MR_E_VALUE, "more than %d different labels",
                         MR_PATH_LABELS);
                return false;
            }
            *bits |= (uint64_t)1 << number;
            if (k < n && !add_axis(p, number, t->label[i], t->x->dim[i]))
                return false;
        }
    }
    return true;
}

static bool
read_terms(const char *subscripts, mr_array *const *operands, int n,
           term *terms, term *out)
{
    if (subscripts == NULL || n < 1 || n > MAX_TERMS) {
        mr__fail(MR_E_VALUE,
                 "needs subscripts and 1 to %d operands, got %s and %d",
                 MAX_TERMS, subscripts == NULL ? "none" : "some", n);
        return false;
    }
    for (int i = 0; i < n; i++)
        terms[i] = (term){.x = operands[i]};
    return read_subscripts(subscripts, terms, n, out);
}

/* Terms i and j are taken away, their contraction comes last. */
static bool
contract_step(term *terms, int *n, const int *step, const term *out)
{
    term rest, a = terms[step[0]], b = terms[step[1]];
    int k = 0;

    wanted_labels(terms, *n, step[0], step[1], out, &rest);
    if (!contract_pair(&a, &b, &rest))
        return false;
    for (int i = 0; i < *n; i++)
        if (i != step[0] && i != step[1])
            terms[k++] = terms[i];
    terms[k++] = a;
    *n = k;
    return true;
}

mr_array *
mr__build_einsum(const char *subscripts, mr_array *const *operands,
                 int n_operands)
{
    term terms[MAX_TERMS], out = {.n = 0};
    mr_list order = {.n = 0};
    int n = n_operands;
    mr_path path;

    if (!read_terms(subscripts, operands, n, terms, &out))
        return NULL;
    for (int i = 0; i < n; i++)
        if (!take_diagonals(&terms[i]))
            return NULL;
    if (!describe(terms, n, &out, &path))
        return NULL;
    mr__path_find(&path);
    for (int k = 0; k < path.n_steps; k++)
        if (!contract_step(terms, &n, path.step[k], &out))
            return NULL;
    if (!sum_unwanted(&terms[0], &out, &out))
        return NULL;
    order.n = out.n;
    for (int i = 0; i < out.n; i++)
        order.v[i] = find_label(&terms[0], out.label[i]);
    return mr_transpose(terms[0].x, mr__ints(&order));
}

static char *
path_report(const char *subscripts, const mr_path *p)
{
    size_t cap = strlen(subscripts) + 256;
    char *text = mr__alloc(cap);

    if (text != NULL)
        snprintf(text, cap,
                 "  Complete contraction:  %s\n"
                 "         Naive scaling:  %d\n"
                 "     Optimized scaling:  %d\n"
                 "      Naive FLOP count:  %.0f\n"
                 "  Optimized FLOP count:  %.0f\n",
                 subscripts, p->naive_labels, p->labels, p->naive_flops,
                 p->flops);
    return text;
}

static char *
find_and_report(const char *subscripts, mr_array *const *operands, int n,
                int *path)
{
    term terms[MAX_TERMS], out = {.n = 0};
    mr_path p;

    if (!read_terms(subscripts, operands, n, terms, &out) ||
        !describe(terms, n, &out, &p))
        return NULL;
    mr__path_find(&p);
    mr__path_measure(&p);
    for (int k = 0; path != NULL && k < p.n_steps; k++) {
        path[2 * k] = p.step[k][0];
        path[2 * k + 1] = p.step[k][1];
    }
    return path_report(subscripts, &p);
}

char *
mr_einsum_path(const char *subscripts, mr_array *const *operands, int n,
               int *path)
{
    struct mr__door outer = mr__error_door_outer("einsum_path", NULL);
    char *text = NULL;
    bool all = n < 1 || operands != NULL;

    if (!all)
        mr__fail(MR_E_NULL, "%d operands at NULL: needs a list of them", n);
    for (int i = 0; all && i < n; i++) {
        all = operands[i] != NULL && operands[i] != MR_NONE;
        if (!all)
            mr__fail(MR_E_NULL, "operand %d is NULL", i);
    }
    if (all)
        text = find_and_report(subscripts, operands, n, path);
    mr__error_door_restore(outer);
    return text;
}

/* ---- picked, segmented, masked matrices
 * ---------------------------------------------- */

static mr_code
check_matrices(const mr_array *a, const mr_array *b)
{
    mr_text ta, tb;

    if (a->ndim >= 2 && b->ndim >= 2)
        return MR_OK;
    return mr__fail(MR_E_SHAPE, "shapes %s and %s: needs matrices",
                    mr__shape_of(a, &ta), mr__shape_of(b, &tb));
}

static mr_array *
picked(mr_array *x, mr_array *indices)
{
    if (!mr__given(indices))
        return x;
    x = x->ndim == 2 ? mr_expand_dims(x, MR_AXES(0)) : mr_flatten(x, 0, -3);
    return mr__pick(x, indices, MR_PICKS_MATRICES);
}

mr_array *
mr__build_gather_mm(mr_array *a, mr_array *b, mr_array *lhs_indices,
                    mr_array *rhs_indices, bool sorted_indices)
{
    (void)sorted_indices;
    if (check_matrices(a, b) != MR_OK)
        return NULL;
    return mr_matmul(picked(a, lhs_indices), picked(b, rhs_indices));
}

mr_array *
mr__build_segmented_mm(mr_array *a, mr_array *b, mr_array *segments)
{
    mr_array *at, *start, *end, *inside;
    int32_t last = segments->ndim - 1;
    mr_text text;

    if (check_matrices(a, b) != MR_OK)
        return NULL;
    if (!mr__is_index(segments) || last < 0 || segments->dim[last] != 2)
        return mr__fail_null(MR_E_VALUE,
                             "segments are integers (..., 2), got %s of shape "
                             "%s",
                             mr_dtype_name((mr_dtype)segments->dtype),
                             mr__shape_of(segments, &text));
    if (a->ndim != 2 || b->ndim != 2)
        return mr__fail_null(MR_E_VALUE,
                             "needs two matrices, got %d and %d axes",
                             (int)a->ndim, (int)b->ndim);
    if (mr__dtype_is_complex((mr_dtype)a->dtype) ||
        mr__dtype_is_complex((mr_dtype)b->dtype))
        return mr__fail_null(MR_E_DTYPE, "needs real numbers, got %s and %s",
                             mr_dtype_name((mr_dtype)a->dtype),
                             mr_dtype_name((mr_dtype)b->dtype));
    /* read where they point to, so that one out of range is found; a negative
     * one is a large one */
    segments = mr__cast(mr__cast(segments, MR_INT64), MR_UINT64);
    segments = mr__pick(mr__cast(mr__iota(a->dim[1] + 1, 0, 1), MR_INT64),
                        segments, MR_PICKS_SEGMENTS);
    start = mr__slice_one(segments, last, 0, 1, 1);
    end = mr__slice_one(segments, last, 1, 2, 1);
    at = mr__cast(mr__iota(a->dim[1], 0, 1), MR_INT64);
    inside = mr_logical_and(mr_greater_equal(at, start), mr_less(at, end));
    inside = mr_expand_dims(inside, MR_AXES(-2));
    a = mr__cast(a, mr__to_inexact((mr_dtype)a->dtype));
    return mr_matmul(mr__masked(inside, a), b);
}

/* A mask entry for each block, spread over the block and cut to x's size. */
static mr_array *
apply_blocks(mr_array *x, mr_array *mask, int64_t block)
{
    mr_text tm, tx;

    if (x == NULL || !mr__given(mask))
        return x;
    for (int32_t k = 1; k <= 2; k++) {
        int64_t n = x->dim[x->ndim - k];

        if (mask->ndim < 2 ||
            mask->dim[mask->ndim - k] != (n + block - 1) / block)
            return mr__fail_null(MR_E_SHAPE,
                                 "a mask of shape %s: needs an entry for each "
                                 "block of %lld of shape %s",
                                 mr__shape_of(mask, &tm), (long long)block,
                                 mr__shape_of(x, &tx));
    }
    for (int32_t k = 1; k <= 2; k++) {
        int32_t axis = mask->ndim - k;

        mask = mr_repeat(mask, block, axis);
        mask = mr__slice_one(mask, axis, 0, x->dim[x->ndim - k], 1);
        if (mask == NULL)
            return NULL;
    }
    if ((mr_dtype)mask->dtype == MR_BOOL)
        return mr__masked(mask, x);
    return mr_multiply(x, mr__cast(mask, (mr_dtype)x->dtype));
}

mr_array *
mr__build_block_masked_mm(mr_array *a, mr_array *b, int64_t block_size,
                          mr_array *mask_out, mr_array *mask_lhs,
                          mr_array *mask_rhs)
{
    if (block_size < 1 || block_size > INT32_MAX)
        return mr__fail_null(MR_E_VALUE,
                             "a block size of %lld: needs 1 to 2^31 - 1",
                             (long long)block_size);
    if (check_matrices(a, b) != MR_OK)
        return NULL;
    a = apply_blocks(a, mask_lhs, block_size);
    b = apply_blocks(b, mask_rhs, block_size);
    return apply_blocks(mr_matmul(a, b), mask_out, block_size);
}
