/* SPDX-License-Identifier: Apache-2.0
 *
 * npy.c -- NumPy's file of one array.
 *
 * The format (NEP 1): "\x93NUMPY", a version, the header's length, a Python
 * dict literal with 'descr', 'fortran_order' and 'shape', then the elements.
 * Read: versions 1 to 3, both byte orders, both element orders.  Written:
 * version 1, the data at a multiple of 64 bytes.  bfloat16, which NumPy does
 * not have, is '<V2', as other frameworks write it.  Objects are refused:
 * reading them would run code.
 *
 * Called by: users, the bindings (npz too).  Calls: source.c, sink.c.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "io/file.h"
#include "marram/array.h"
#include "marram/eval.h"
#include "marram/io.h"

static const struct {
    mr_dtype dtype;
    const char *descr; /* without the byte order */
} descr_of[] = {
    {MR_BOOL, "b1"},    {MR_UINT8, "u1"},     {MR_UINT16, "u2"},
    {MR_UINT32, "u4"},  {MR_UINT64, "u8"},    {MR_INT8, "i1"},
    {MR_INT16, "i2"},   {MR_INT32, "i4"},     {MR_INT64, "i8"},
    {MR_FLOAT16, "f2"}, {MR_BFLOAT16, "V2"},  {MR_FLOAT32, "f4"},
    {MR_FLOAT64, "f8"}, {MR_COMPLEX64, "c8"}, {MR_COMPLEX128, "c16"},
};
enum { N_DESCR = sizeof descr_of / sizeof descr_of[0] };

static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* ---- the header's text ----------------------------------------------------
 */
typedef struct scan {
    const char *at, *end;
    const char *name; /* of the file */
} scan;

typedef struct header {
    bool has_descr, has_order, has_shape;
    mr_dtype dtype;
    bool swapped, fortran;
    int32_t ndim;
    int64_t dim[MR_MAX_NDIM];
} header;

static void
skip_space(scan *s)
{
    while (s->at < s->end && isspace((unsigned char)*s->at))
        s->at++;
}

static bool
next_is(scan *s, char c)
{
    skip_space(s);
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

static mr_code
malformed(const scan *s, const char *what)
{
    return mr__fail(MR_E_IO, "%s: the npy header has %s", s->name, what);
}

/* A quoted text without escapes, into out. */
static mr_code
scan_text(scan *s, char *out, size_t room)
{
    size_t n = 0;
    char quote;

    skip_space(s);
    if (s->at == s->end || (*s->at != '\'' && *s->at != '"'))
        return malformed(s, "no quoted text where one is right");
    quote = *s->at++;
    while (s->at < s->end && *s->at != quote && *s->at != '\\' && n + 1 < room)
        out[n++] = *s->at++;
    out[n] = '\0';
    if (s->at == s->end || *s->at != quote)
        return malformed(s, "a text that is cut, escaped or too long");
    s->at++;
    return MR_OK;
}

static mr_code
scan_word(scan *s, bool *out)
{
    skip_space(s);
    if (s->end - s->at >= 4 && memcmp(s->at, "True", 4) == 0) {
        s->at += 4;
        *out = true;
        return MR_OK;
    }
    if (s->end - s->at >= 5 && memcmp(s->at, "False", 5) == 0) {
        s->at += 5;
        *out = false;
        return MR_OK;
    }
    return malformed(s, "a fortran_order that is neither True nor False");
}

static mr_code
scan_number(scan *s, int64_t *out)
{
    const char *begin;
    int64_t v = 0;

    skip_space(s);
    if (s->at < s->end && *s->at == '-')
        return malformed(s, "a negative size in its shape");
    begin = s->at;
    for (; s->at < s->end && isdigit((unsigned char)*s->at); s->at++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, *s->at - '0', &v))
            return malformed(s, "a size beyond 64 bits in its shape");
    if (s->at == begin)
        return malformed(s, "no number where one is right in its shape");
    if (s->at < s->end && *s->at == 'L') /* Python 2 wrote longs so */
        s->at++;
    *out = v;
    return MR_OK;
}

static mr_code
scan_shape(scan *s, header *h)
{
    h->ndim = 0;
    if (!next_is(s, '('))
        return malformed(s, "a shape that is no tuple");
    while (!next_is(s, ')')) {
        mr_code code;

        if (h->ndim == MR_MAX_NDIM)
            return malformed(s, "a shape of more than 32 axes");
        code = scan_number(s, &h->dim[h->ndim++]);
        if (code != MR_OK)
            return code;
        if (!next_is(s, ',')) {
            if (next_is(s, ')'))
                break;
            return malformed(s, "a shape that does not end");
        }
    }
    return MR_OK;
}

static mr_code
scan_descr(scan *s, header *h)
{
    char text[32];
    const char *type = text;
    mr_code code;

    skip_space(s);
    if (s->at < s->end && *s->at == '[')
        return mr__fail(MR_E_IO, "%s: a structured dtype cannot be read",
                        s->name);
    code = scan_text(s, text, sizeof text);
    if (code != MR_OK)
        return code;
    if (text[0] && strchr("<>=|", text[0]))
        type++;
    for (int i = 0; i < N_DESCR; i++)
        if (strcmp(type, descr_of[i].descr) == 0) {
            h->dtype = descr_of[i].dtype;
            h->swapped = text[0] == '>' && mr_dtype_size(h->dtype) > 1;
            return MR_OK;
        }
    if (type[0] == 'O')
        return mr__fail(MR_E_IO,
                        "%s: an array of Python objects is never read: "
                        "unpickling runs code",
                        s->name);
    return mr__fail(MR_E_IO, "%s: elements of type '%s' cannot be read",
                    s->name, text);
}

static mr_code
scan_entry(scan *s, header *h)
{
    char key[32];
    bool *seen;
    mr_code code = scan_text(s, key, sizeof key);

    if (code != MR_OK)
        return code;
    if (!next_is(s, ':'))
        return malformed(s, "a key without a value");
    seen = strcmp(key, "descr") == 0           ? &h->has_descr
           : strcmp(key, "fortran_order") == 0 ? &h->has_order
           : strcmp(key, "shape") == 0         ? &h->has_shape
                                               : NULL;
    if (!seen)
        return malformed(s, "a key that the format does not know");
    if (*seen)
        return malformed(s, "a key twice");
    *seen = true;
    if (seen == &h->has_descr)
        return scan_descr(s, h);
    return seen == &h->has_order ? scan_word(s, &h->fortran) : scan_shape(s, h);
}

static mr_code
scan_header(scan *s, header *h)
{
    if (!next_is(s, '{'))
        return malformed(s, "no dict");
    while (!next_is(s, '}')) {
        mr_code code = scan_entry(s, h);

        if (code != MR_OK)
            return code;
        if (!next_is(s, ',')) {
            if (next_is(s, '}'))
                break;
            return malformed(s, "a dict that does not end");
        }
    }
    skip_space(s);
    if (s->at != s->end)
        return malformed(s, "something behind its dict");
    if (!h->has_descr || !h->has_order || !h->has_shape)
        return mr__fail(MR_E_IO, "%s: the npy header lacks '%s'", s->name,
                        !h->has_descr   ? "descr"
                        : !h->has_order ? "fortran_order"
                                        : "shape");
    return MR_OK;
}

/* ---- reading --------------------------------------------------------------
 */

/* Where the header's text lies. */
static mr_code
find_header(const mr_source *s, size_t *at, size_t *length)
{
    const uint8_t *p = s->data;

    if (s->bytes < 8 || memcmp(p, magic, sizeof magic) != 0)
        return mr__fail(MR_E_IO, "%s: is no npy file: %s", s->name,
                        s->bytes < 8 ? "it ends before its first 8 bytes"
                                     : "it does not begin with \\x93NUMPY");
    if (p[6] < 1 || p[6] > 3 || p[7] != 0)
        return mr__fail(MR_E_IO,
                        "%s: npy version %d.%d cannot be read, only 1.0, 2.0 "
                        "and 3.0",
                        s->name, p[6], p[7]);
    *at = p[6] == 1 ? 10 : 12;
    if (s->bytes < *at)
        return mr__fail(MR_E_IO, "%s: ends inside its npy header", s->name);
    *length = (size_t)p[8] | (size_t)p[9] << 8;
    if (p[6] > 1)
        *length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (*length > s->bytes - *at)
        return mr__fail(MR_E_IO,
                        "%s: ends inside its npy header: %zu bytes announced, "
                        "%zu there",
                        s->name, *length, s->bytes - *at);
    return MR_OK;
}

static mr_array *
read_source(const mr_source *s)
{
    header h = {0};
    mr_stored a;
    scan text;
    size_t at = 0, length = 0, bytes;

    if (find_header(s, &at, &length) != MR_OK)
        return NULL;
    text.at = (const char *)s->data + at;
    text.end = text.at + length;
    text.name = s->name;
    if (scan_header(&text, &h) != MR_OK)
        return NULL;
    a = (mr_stored){.at = at + length,
                    .dtype = h.dtype,
                    .ndim = h.ndim,
                    .dim = h.dim,
                    .swapped = h.swapped,
                    .fortran = h.fortran};
    if (!mr__stored_bytes(&a, &bytes))
        return mr__fail_null(MR_E_IO, "%s: a shape beyond 64 bits", s->name);
    if (bytes > s->bytes - a.at)
        return mr__fail_null(MR_E_IO,
                             "%s: the data ends early: %zu bytes announced, "
                             "%zu there",
                             s->name, bytes, s->bytes - a.at);
    return mr__stored_array(s, &a);
}

mr_array *
mr_load_npy(const char *path)
{
    mr_source s;
    mr_array *x = NULL;

    if (mr__source_file(&s, path) == MR_OK) {
        x = read_source(&s);
        mr__source_close(&s);
    }
    return x;
}

mr_array *
mr_load_npy_memory(const void *data, size_t bytes)
{
    mr_source s;
    mr_array *x = NULL;

    if (mr__source_memory(&s, data, bytes) == MR_OK) {
        x = read_source(&s);
        mr__source_close(&s);
    }
    return x;
}

/* ---- writing --------------------------------------------------------------
 */

/* Room for 32 sizes of 19 digits, separators, and the rest. */
enum { HEADER_ROOM = 1024 };

static size_t
format_header(const mr_array *x, char *out)
{
    mr_dtype t = mr_array_dtype(x);
    mr_shape shape = mr_array_shape(x);
    const char *descr = "";
    size_t n = 10, end;

    for (int i = 0; i < N_DESCR; i++)
        if (descr_of[i].dtype == t)
            descr = descr_of[i].descr;
    n += (size_t)snprintf(out + n, HEADER_ROOM - n,
                          "{'descr': '%c%s', 'fortran_order': False, "
                          "'shape': (",
                          mr_dtype_size(t) == 1 ? '|' : '<', descr);
    for (int64_t i = 0; i < shape.n; i++)
        n += (size_t)snprintf(out + n, HEADER_ROOM - n, "%s%" PRId64 "%s",
                              i > 0 ? " " : "", shape.dim[i],
                              i + 1 < shape.n || shape.n == 1 ? "," : "");
    n += (size_t)snprintf(out + n, HEADER_ROOM - n, "), }");
    end = (n + 1 + 63) / 64 * 64;
    memset(out + n, ' ', end - n);
    out[end - 1] = '\n';
    memcpy(out, magic, sizeof magic);
    out[6] = 1;
    out[7] = 0;
    out[8] = (char)((end - 10) & 0xff);
    out[9] = (char)((end - 10) >> 8);
    return end;
}

static mr_code
write_sink(mr_sink *s, mr_array *x)
{
    char text[HEADER_ROOM];
    mr_code code = mr__sink_put(s, text, format_header(x, text));

    return code == MR_OK ? mr__sink_array(s, x) : code;
}

/* Evaluated before the file is touched. */
static mr_code
ready_to_write(mr_array *x)
{
    if (!x)
        return mr__error_pending() ? mr__error_code()
                                   : mr__fail(MR_E_NULL, "the array is NULL");
    return mr_eval(x);
}

mr_code
mr_save_npy(const char *path, mr_array *x)
{
    mr_sink s;
    mr_code code = ready_to_write(x);

    if (code != MR_OK)
        return code;
    if (!path)
        return mr__fail(MR_E_NULL, "the path is NULL");
    code = mr__sink_open(&s, path);
    if (code == MR_OK)
        code = write_sink(&s, x);
    if (code == MR_OK)
        code = mr__sink_commit(&s);
    mr__sink_close(&s);
    return code;
}

void *
mr_save_npy_memory(mr_array *x, size_t *bytes)
{
    mr_sink s;
    void *memory = NULL;

    if (bytes == NULL)
        return mr__fail_null(MR_E_NULL, "the place for the size is NULL");
    if (ready_to_write(x) != MR_OK)
        return NULL;
    if (mr__sink_open(&s, NULL) == MR_OK && write_sink(&s, x) == MR_OK)
        memory = mr__sink_take_memory(&s, bytes);
    mr__sink_close(&s);
    return memory;
}
