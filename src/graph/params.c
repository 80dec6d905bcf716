/* SPDX-License-Identifier: Apache-2.0
 *
 * params.c -- what follows from an operator's list of fields: copying,
 * hashing, equality, text.
 *
 * Padding is never looked at; floats are compared by their bits, so that a NaN
 * equals itself and 0.0 is not -0.0.
 * Called by: node.c, compile/, io/, error messages.  Calls: base/map.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "array/dtype.h"
#include "base/map.h"
#include "graph/op.h"
#include "graph/own.h"
#include "marram/array.h"

static const void *
field_at(const mr_field *f, const void *params)
{
    return (const char *)params + f->offset;
}

static bool
is_list(const mr_field *f)
{
    return f->kind == MR_FIELD_INTS || f->kind == MR_FIELD_DIMS;
}

static mr_ints
list_of(const mr_field *f, const void *params)
{
    mr_ints list;

    memcpy(&list, field_at(f, params), sizeof list);
    return list;
}

static size_t
list_bytes(mr_ints list)
{
    return list.n > 0 ? (size_t)list.n * sizeof *list.v : 0;
}

/* The value of a field that is no list, as 64 bits. */
static uint64_t
bits_of(const mr_field *f, const void *params)
{
    const void *at = field_at(f, params);
    uint64_t bits = 0;
    int32_t small;
    bool flag;

    switch (f->kind) {
    case MR_FIELD_BOOL:
        memcpy(&flag, at, sizeof flag);
        return flag;
    case MR_FIELD_DTYPE:
    case MR_FIELD_AXIS:
    case MR_FIELD_AXES:
        memcpy(&small, at, sizeof small);
        return (uint32_t)small;
    case MR_FIELD_INT:
    case MR_FIELD_FLOAT:
    case MR_FIELD_DIM:
        memcpy(&bits, at, sizeof bits);
        return bits;
    case MR_FIELD_INTS:
    case MR_FIELD_DIMS:
        break;
    }
    return bits;
}
_Static_assert(sizeof(mr_dtype) == 4, "a dtype field is 32 bits");

/* ---- copying ------------------------------------------------------------ */

static size_t
struct_room(const mr_op *op)
{
    return ((size_t)op->params_bytes + 7) & ~(size_t)7;
}

size_t
mr__params_room(const mr_op *op, const void *params)
{
    size_t room = struct_room(op);

    for (int i = 0; i < op->n_fields; i++)
        if (is_list(&op->fields[i]))
            room += list_bytes(list_of(&op->fields[i], params));
    return room;
}

void
mr__params_copy(const mr_op *op, const void *params, void *to)
{
    char *at = (char *)to + struct_room(op);

    memcpy(to, params, op->params_bytes);
    for (int i = 0; i < op->n_fields; i++) {
        const mr_field *f = &op->fields[i];
        mr_ints list;
        size_t bytes;

        if (!is_list(f))
            continue;
        list = list_of(f, params);
        bytes = list_bytes(list);
        if (bytes > 0)
            memcpy(at, list.v, bytes);
        list.v = bytes > 0 ? (const int64_t *)(const void *)at : NULL;
        memcpy((char *)to + f->offset, &list, sizeof list);
        at += bytes;
    }
}

/* ---- hash and equality -------------------------------------------------- */

uint64_t
mr__params_hash(const mr_op *op, const void *p, uint64_t seed)
{
    uint64_t h = mr__hash_u64(seed ^ op->id);

    for (int i = 0; i < op->n_fields; i++) {
        const mr_field *f = &op->fields[i];

        if (is_list(f)) {
            mr_ints list = list_of(f, p);

            h = mr__hash_u64(h ^ (uint64_t)list.n);
            h = mr__hash_bytes(h, list.v, list_bytes(list));
        } else {
            h = mr__hash_u64(h + bits_of(f, p));
        }
    }
    return h;
}

static bool
lists_equal(mr_ints a, mr_ints b)
{
    return a.n == b.n && (a.n <= 0 || memcmp(a.v, b.v, list_bytes(a)) == 0);
}

bool
mr__params_equal(const mr_op *op, const void *a, const void *b)
{
    for (int i = 0; i < op->n_fields; i++) {
        const mr_field *f = &op->fields[i];

        if (is_list(f) ? !lists_equal(list_of(f, a), list_of(f, b))
                       : bits_of(f, a) != bits_of(f, b))
            return false;
    }
    return true;
}

/* ---- text --------------------------------------------------------------- */

static void
list_text(mr_ints list, char *buf, size_t cap)
{
    size_t at = 0;
    int n = snprintf(buf, cap, list.n < 0 ? "none" : "(");

    for (int64_t i = 0; i < list.n && n > 0 && (at += (size_t)n) < cap; i++)
        n = snprintf(buf + at, cap - at, "%s%" PRId64, i ? ", " : "",
                     list.v[i]);
    if (list.n > 0 && n > 0)
        at += (size_t)n;
    else
        at = n > 0 ? (size_t)n : 0;
    if (list.n >= 0 && at < cap)
        snprintf(buf + at, cap - at, list.n == 1 ? ",)" : ")");
}

static void
field_text(const mr_field *f, const void *p, char *buf, size_t cap)
{
    uint64_t bits = bits_of(f, p);
    double d;

    switch (f->kind) {
    case MR_FIELD_BOOL:
        snprintf(buf, cap, "%s", bits ? "true" : "false");
        break;
    case MR_FIELD_INT:
    case MR_FIELD_DIM:
        snprintf(buf, cap, "%" PRId64, (int64_t)bits);
        break;
    case MR_FIELD_FLOAT:
        memcpy(&d, &bits, sizeof d);
        snprintf(buf, cap, "%g", d);
        break;
    case MR_FIELD_DTYPE:
        snprintf(buf, cap, "%s",
                 (int32_t)bits == (int32_t)MR_DTYPE_DEFAULT
                     ? "default"
                     : mr_dtype_name((mr_dtype)bits));
        break;
    case MR_FIELD_AXIS:
        snprintf(buf, cap, "%" PRId32, (int32_t)bits);
        break;
    case MR_FIELD_AXES:
        snprintf(buf, cap, "%" PRIu32, (uint32_t)bits);
        break;
    case MR_FIELD_INTS:
    case MR_FIELD_DIMS:
        list_text(list_of(f, p), buf, cap);
        break;
    }
}

const char *
mr__params_text(const mr_op *op, const void *p, char *buf, size_t cap)
{
    size_t at = 0;

    if (cap == 0)
        return buf;
    buf[0] = '\0';
    for (int i = 0; i < op->n_fields && at < cap; i++) {
        char value[256];
        int n;

        field_text(&op->fields[i], p, value, sizeof value);
        n = snprintf(buf + at, cap - at, "%s%s=%s", i ? ", " : "",
                     op->fields[i].name, value);
        at += n > 0 ? (size_t)n : 0;
    }
    return buf;
}
