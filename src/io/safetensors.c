/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.c -- files of named arrays.
 *
 * The format: 8 bytes little-endian N, N bytes of JSON, then data.  The JSON
 * is one object: a name to {"dtype", "shape", "data_offsets"}, and
 * "__metadata__" to an object of texts.  The offsets count from the data's
 * beginning; together the arrays must fill the data, without overlap or hole.
 *
 * Reading trusts the offsets alone, never the order, and checks everything
 * before the first array is made.  Arrays look into the one buffer of the file
 * where their bytes are aligned; else they are copied.  8-bit floats have no
 * dtype here: F8_E4M3 and F8_E5M2 become float16, F8_E8M0 bfloat16, which hold
 * all their values.
 *
 * Writing lays data out in the order of the names and pads the header with
 * spaces to a multiple of 8.
 *
 * Called by: users, the bindings.  Calls: source.c, sink.c, cJSON.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "io/file.h"
#include "io/float8.h"
#include "marram/array.h"
#include "marram/eval.h"
#include "marram/io.h"
#include "marram/scope.h"
#include "marram/tree.h"

static const struct {
    const char *name;
    mr_dtype dtype;
    void (*convert)(void *out, const uint8_t *in, size_t n);
} type_of[] = {
    {"BOOL", MR_BOOL, NULL},
    {"U8", MR_UINT8, NULL},
    {"U16", MR_UINT16, NULL},
    {"U32", MR_UINT32, NULL},
    {"U64", MR_UINT64, NULL},
    {"I8", MR_INT8, NULL},
    {"I16", MR_INT16, NULL},
    {"I32", MR_INT32, NULL},
    {"I64", MR_INT64, NULL},
    {"F16", MR_FLOAT16, NULL},
    {"BF16", MR_BFLOAT16, NULL},
    {"F32", MR_FLOAT32, NULL},
    {"F64", MR_FLOAT64, NULL},
    {"C64", MR_COMPLEX64, NULL},
    {"F8_E4M3", MR_FLOAT16, mr__float16_from_e4m3},
    {"F8_E5M2", MR_FLOAT16, mr__float16_from_e5m2},
    {"F8_E8M0", MR_BFLOAT16, mr__bfloat16_from_e8m0},
};
enum { N_TYPES = sizeof type_of / sizeof type_of[0] };

/* ---- reading --------------------------------------------------------------
 */

/* An array as the header describes it; the names belong to the JSON tree. */
typedef struct entry {
    const char *name;
    mr_stored stored;
    int64_t dim[MR_MAX_NDIM];
    size_t begin, end; /* in the data */
} entry;

typedef struct file {
    mr_source source;
    size_t data_at, data_bytes;
    cJSON *json;
    const cJSON *metadata;
    entry *entry; /* in file order */
    size_t n;
} file;

static mr_code
broken(const file *f, const char *name, const char *what)
{
    return name ? mr__fail(MR_E_IO, "%s: tensor '%.80s' %s", f->source.name,
                           name, what)
                : mr__fail(MR_E_IO, "%s: %s", f->source.name, what);
}

/* A JSON number as a size: whole, not negative, and small enough for a double
 * to hold it exactly. */
static bool
number_to_size(const cJSON *j, int64_t *out)
{
    if (!cJSON_IsNumber(j) ||
        !(j->valuedouble >= 0 && j->valuedouble <= 9007199254740992.0))
        return false;
    *out = (int64_t)j->valuedouble;
    return (double)*out == j->valuedouble;
}

/* cJSON ends texts at a NUL that was written as an escape: two names could
 * become one. */
static bool
has_escaped_nul(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i + 5 < n; i++) {
        if (p[i] != '\\')
            continue;
        if (memcmp(p + i + 1, "u0000", 5) == 0)
            return true;
        i++;
    }
    return false;
}

static mr_code
parse_header(file *f)
{
    const mr_source *s = &f->source;
    uint64_t length = 0;
    const uint8_t *text = s->data + 8;
    const char *end = NULL;

    if (s->bytes < 8)
        return broken(f, NULL,
                      "is no safetensors file: it ends before its "
                      "first 8 bytes");
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)s->data[i] << 8 * i;
    if (s->bytes > 8 && text[0] != '{' && length > s->bytes - 8)
        return broken(f, NULL,
                      "is no safetensors file: these begin with the length of "
                      "a header, in 8 bytes, and its '{'");
    if (length > s->bytes - 8)
        return mr__fail(MR_E_IO,
                        "%s: ends inside its header: %llu bytes announced, "
                        "%zu there",
                        s->name, (unsigned long long)length, s->bytes - 8);
    if (length == 0 || text[0] != '{')
        return broken(f, NULL, "the header does not begin with '{'");
    if (!mr__is_utf8(text, (size_t)length))
        return broken(f, NULL, "the header is not UTF-8");
    if (has_escaped_nul(text, (size_t)length))
        return broken(f, NULL, "a text of the header contains NUL");
    f->json = cJSON_ParseWithLengthOpts((const char *)text, (size_t)length,
                                        &end, false);
    if (!f->json || !cJSON_IsObject(f->json))
        return mr__fail(MR_E_IO, "%s: the header is not JSON (near byte %lld)",
                        s->name,
                        end ? (long long)(end - (const char *)s->data) : 8LL);
    for (; end < (const char *)text + length; end++)
        if (!strchr(" \t\r\n", *end))
            return broken(f, NULL,
                          "something stands behind the header's "
                          "object");
    f->data_at = 8 + (size_t)length;
    f->data_bytes = s->bytes - f->data_at;
    return MR_OK;
}

static mr_code
parse_shape(const file *f, const cJSON *j, entry *e)
{
    const cJSON *d;

    if (!cJSON_IsArray(j))
        return broken(f, e->name, "has no shape");
    cJSON_ArrayForEach(d, j)
    {
        if (e->stored.ndim == MR_MAX_NDIM)
            return broken(f, e->name, "has more than 32 axes");
        if (!number_to_size(d, &e->dim[e->stored.ndim++]))
            return broken(f, e->name,
                          "has a shape with an entry that is no "
                          "whole number from 0 to 2**53");
    }
    return MR_OK;
}

static mr_code
parse_type(const file *f, const cJSON *j, entry *e)
{
    if (!cJSON_IsString(j))
        return broken(f, e->name, "has no dtype");
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(j->valuestring, type_of[i].name) == 0) {
            e->stored.dtype = type_of[i].dtype;
            e->stored.convert = type_of[i].convert;
            e->stored.width = 1;
            return MR_OK;
        }
    return mr__fail(MR_E_IO,
                    "%s: tensor '%.80s' is of type '%.40s', which "
                    "cannot be read",
                    f->source.name, e->name, j->valuestring);
}

static mr_code
parse_offsets(const file *f, const cJSON *j, entry *e)
{
    int64_t begin, end;
    size_t bytes;

    if (!cJSON_IsArray(j) || cJSON_GetArraySize(j) != 2 ||
        !number_to_size(j->child, &begin) ||
        !number_to_size(j->child->next, &end) || end < begin)
        return broken(f, e->name,
                      "has data_offsets that are not [begin, "
                      "end]");
    if ((size_t)end > f->data_bytes)
        return mr__fail(MR_E_IO,
                        "%s: the data ends early: tensor '%.80s' ends at byte "
                        "%lld, %zu are there",
                        f->source.name, e->name, (long long)end, f->data_bytes);
    e->begin = (size_t)begin;
    e->end = (size_t)end;
    if (!mr__stored_bytes(&e->stored, &bytes))
        return broken(f, e->name, "has a shape beyond 64 bits");
    if (bytes != e->end - e->begin)
        return mr__fail(MR_E_IO,
                        "%s: tensor '%.80s' needs %zu bytes by its shape and "
                        "dtype, its data_offsets give %zu",
                        f->source.name, e->name, bytes, e->end - e->begin);
    return MR_OK;
}

static mr_code
parse_entry(const file *f, const cJSON *j, entry *e)
{
    const cJSON *shape = NULL, *type = NULL, *offsets = NULL, *field;
    mr_code code = MR_OK;

    e->name = j->string;
    if (!cJSON_IsObject(j))
        return broken(f, e->name, "is no object");
    cJSON_ArrayForEach(field, j)
    {
        const cJSON **at = strcmp(field->string, "shape") == 0   ? &shape
                           : strcmp(field->string, "dtype") == 0 ? &type
                           : strcmp(field->string, "data_offsets") == 0
                               ? &offsets
                               : NULL;

        if (at && *at)
            return broken(f, e->name, "has a field twice");
        if (at)
            *at = field;
    }
    code = parse_type(f, type, e);
    if (code == MR_OK)
        code = parse_shape(f, shape, e);
    e->stored.dim = e->dim;
    if (code == MR_OK)
        code = parse_offsets(f, offsets, e);
    e->stored.at = f->data_at + e->begin;
    return code;
}

static int
by_name(const void *a, const void *b)
{
    const entry *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int
by_offset(const void *a, const void *b)
{
    const entry *const *x = a, *const *y = b;

    if ((*x)->begin != (*y)->begin)
        return (*x)->begin < (*y)->begin ? -1 : 1;
    return ((*x)->end > (*y)->end) - ((*x)->end < (*y)->end);
}

static mr_code
check_tiling(const file *f, entry *const *sorted)
{
    size_t at = 0;

    for (size_t i = 0; i < f->n; i++) {
        if (sorted[i]->begin < at)
            return broken(f, sorted[i]->name, "shares bytes with another");
        if (sorted[i]->begin > at)
            return broken(f, sorted[i]->name,
                          "has bytes in front of it that belong to none");
        at = sorted[i]->end;
    }
    if (at != f->data_bytes)
        return mr__fail(MR_E_IO,
                        "%s: %zu bytes behind the last tensor belong to none",
                        f->source.name, f->data_bytes - at);
    return MR_OK;
}

static mr_code
check_entries(const file *f)
{
    entry **sorted = mr__alloc_array(f->n + 1, sizeof(entry *));
    mr_code code = MR_OK;

    if (!sorted)
        return MR_E_MEMORY;
    for (size_t i = 0; i < f->n; i++)
        sorted[i] = &f->entry[i];
    qsort(sorted, f->n, sizeof(entry *), by_name);
    for (size_t i = 1; code == MR_OK && i < f->n; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            code = broken(f, sorted[i]->name, "is there twice");
    qsort(sorted, f->n, sizeof(entry *), by_offset);
    if (code == MR_OK)
        code = check_tiling(f, sorted);
    mr__dealloc(sorted);
    return code;
}

static mr_code
check_metadata(const file *f)
{
    const cJSON *j;

    if (!f->metadata)
        return MR_OK;
    if (!cJSON_IsObject(f->metadata))
        return broken(f, NULL, "__metadata__ is no object");
    cJSON_ArrayForEach(j, f->metadata)
    {
        if (!cJSON_IsString(j) || !j->string[0])
            return broken(f, NULL,
                          "__metadata__ is not a map from names to "
                          "texts");
    }
    return MR_OK;
}

static mr_code
parse_file(file *f)
{
    const cJSON *j;
    mr_code code = parse_header(f);

    if (code != MR_OK)
        return code;
    f->entry = mr__alloc_array((size_t)cJSON_GetArraySize(f->json) + 1,
                               sizeof *f->entry);
    if (!f->entry)
        return MR_E_MEMORY;
    cJSON_ArrayForEach(j, f->json)
    {
        if (strcmp(j->string, "__metadata__") == 0) {
            if (f->metadata)
                return broken(f, NULL, "__metadata__ is there twice");
            f->metadata = j;
            continue;
        }
        f->entry[f->n] = (entry){.name = NULL};
        code = parse_entry(f, j, &f->entry[f->n]);
        if (code != MR_OK)
            return code;
        f->n++;
    }
    code = check_entries(f);
    return code == MR_OK ? check_metadata(f) : code;
}

/* "key\0value\0...\0" */
static char *
metadata_text(const file *f)
{
    size_t n = 1;
    const cJSON *j;
    char *text, *at;

    cJSON_ArrayForEach(j, f->metadata) n +=
        strlen(j->string) + strlen(j->valuestring) + 2;
    text = at = mr__alloc(n);
    if (!text)
        return NULL;
    cJSON_ArrayForEach(j, f->metadata)
    {
        at = stpcpy(at, j->string) + 1;
        at = stpcpy(at, j->valuestring) + 1;
    }
    *at = '\0';
    return text;
}

static mr_tree *
make_tree(const file *f)
{
    const char **name = mr__alloc_array(f->n, sizeof(char *));
    mr_tree **leaf = mr__alloc_array(f->n, sizeof(mr_tree *));
    mr_tree *tree = NULL;
    bool ok = name && leaf;
    mr_scope s = mr_scope_begin();

    ok = ok && s.token != 0;
    for (size_t i = 0; ok && i < f->n; i++) {
        mr_array *x = mr__stored_array(&f->source, &f->entry[i].stored);

        name[i] = f->entry[i].name;
        leaf[i] = x ? mr_tree_leaf(x) : NULL;
        ok = leaf[i] != NULL;
    }
    if (ok)
        tree = mr_tree_dict((int)f->n, name, leaf);
    if (s.token != 0) {
        tree = mr_scope_return_tree(s, tree);
        mr_scope_end(s);
    }
    mr__dealloc(name);
    mr__dealloc(leaf);
    return tree;
}

/* Takes the source. */
static mr_tree *
read_source(mr_source source, char **metadata)
{
    file f = {.source = source};
    char *text = NULL;
    mr_tree *tree = NULL;

    if (parse_file(&f) == MR_OK && (!metadata || (text = metadata_text(&f))))
        tree = make_tree(&f);
    if (tree && metadata) {
        *metadata = text;
        text = NULL;
    }
    mr__dealloc(text);
    mr__dealloc(f.entry);
    cJSON_Delete(f.json);
    mr__source_close(&f.source);
    return tree;
}

mr_tree *
mr_load_safetensors(const char *path, char **metadata)
{
    mr_source s;

    return mr__source_file(&s, path) == MR_OK ? read_source(s, metadata) : NULL;
}

mr_tree *
mr_load_safetensors_memory(const void *data, size_t bytes, char **metadata)
{
    mr_source s;

    return mr__source_memory(&s, data, bytes) == MR_OK
               ? read_source(s, metadata)
               : NULL;
}

/* ---- writing --------------------------------------------------------------
 */
typedef struct named {
    const char *name;
    mr_array *x;
} named;

static int
named_order(const void *a, const void *b)
{
    const named *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static mr_code
put_text(mr_sink *s, const char *text)
{
    return mr__sink_put(s, text, strlen(text));
}

/* The text as a JSON string. */
static mr_code
put_quoted(mr_sink *s, const char *text)
{
    mr_code code = put_text(s, "\"");

    for (const char *p = text; code == MR_OK && *p; p++) {
        unsigned char c = (unsigned char)*p;
        char escape[8] = {(char)c};

        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (c < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", c);
        code = put_text(s, escape);
    }
    return code == MR_OK ? put_text(s, "\"") : code;
}

static mr_code
put_metadata(mr_sink *s, int n, const char *const *keys,
             const char *const *values)
{
    mr_code code = put_text(s, "\"__metadata__\":{");

    for (int i = 0; code == MR_OK && i < n; i++) {
        if (i > 0)
            code = put_text(s, ",");
        if (code == MR_OK)
            code = put_quoted(s, keys[i]);
        if (code == MR_OK)
            code = put_text(s, ":");
        if (code == MR_OK)
            code = put_quoted(s, values[i]);
    }
    return code == MR_OK ? put_text(s, "}") : code;
}

static const char *
type_name(mr_dtype t)
{
    for (int i = 0; i < N_TYPES; i++)
        if (type_of[i].dtype == t && !type_of[i].convert)
            return type_of[i].name;
    return NULL;
}

static mr_code
put_entry(mr_sink *s, const named *e, size_t begin)
{
    mr_shape shape = mr_array_shape(e->x);
    char number[96];
    mr_code code = put_quoted(s, e->name);

    snprintf(number, sizeof number, ":{\"dtype\":\"%s\",\"shape\":[",
             type_name(mr_array_dtype(e->x)));
    if (code == MR_OK)
        code = put_text(s, number);
    for (int64_t i = 0; code == MR_OK && i < shape.n; i++) {
        snprintf(number, sizeof number, "%s%lld", i > 0 ? "," : "",
                 (long long)shape.dim[i]);
        code = put_text(s, number);
    }
    snprintf(number, sizeof number, "],\"data_offsets\":[%zu,%zu]}", begin,
             begin + mr_array_nbytes(e->x));
    return code == MR_OK ? put_text(s, number) : code;
}

/* The header into memory, with its length in front. */
static mr_code
put_header(mr_sink *s, const named *e, int n, int n_metadata,
           const char *const *keys, const char *const *values)
{
    size_t at = 0;
    mr_code code = mr__sink_put(s, "\0\0\0\0\0\0\0", 8);

    if (code == MR_OK)
        code = put_text(s, "{");
    if (code == MR_OK && n_metadata > 0)
        code = put_metadata(s, n_metadata, keys, values);
    for (int i = 0; code == MR_OK && i < n; i++) {
        if (i > 0 || n_metadata > 0)
            code = put_text(s, ",");
        if (code == MR_OK)
            code = put_entry(s, &e[i], at);
        at += mr_array_nbytes(e[i].x);
    }
    if (code == MR_OK)
        code = put_text(s, "}");
    while (code == MR_OK && s->bytes % 8 != 0)
        code = put_text(s, " ");
    for (int i = 0; code == MR_OK && i < 8; i++)
        s->memory[i] = (uint8_t)((s->bytes - 8) >> 8 * i);
    return code;
}

static mr_code
check_text(const char *text, const char *what)
{
    if (!text)
        return mr__fail(MR_E_NULL, "%s is NULL", what);
    if (!mr__is_utf8((const uint8_t *)text, strlen(text)))
        return mr__fail(MR_E_VALUE, "%s is not UTF-8", what);
    return MR_OK;
}

static mr_code
check_named(const mr_tree *arrays, int i, named *out)
{
    const mr_tree *t = mr_tree_at(arrays, i);
    mr_code code;

    out->name = mr_tree_key(arrays, i);
    code = check_text(out->name, "a name");
    if (code != MR_OK)
        return code;
    if (strcmp(out->name, "__metadata__") == 0)
        return mr__fail(MR_E_VALUE, "the format keeps the name __metadata__ "
                                    "for itself");
    if (mr_tree_kind_of(t) != MR_TREE_LEAF)
        return mr__fail(MR_E_TYPE,
                        "the value of '%.80s' is no array: flatten nested "
                        "dicts, for instance to names with dots",
                        out->name);
    out->x = mr_tree_array(t);
    if (!type_name(mr_array_dtype(out->x)))
        return mr__fail(MR_E_DTYPE,
                        "safetensors has no type for %s ('%.80s'): cast it "
                        "first",
                        mr_dtype_name(mr_array_dtype(out->x)), out->name);
    return MR_OK;
}

/* All that can be refused is refused before a file is touched. */
static mr_code
collect(const mr_tree *arrays, named *e, int n, int n_metadata,
        const char *const *keys, const char *const *values)
{
    mr_code code = MR_OK;

    if (n_metadata < 0 || (n_metadata > 0 && (!keys || !values)))
        return mr__fail(MR_E_VALUE,
                        "%d pairs of metadata: needs a list of names and one "
                        "of texts",
                        n_metadata);
    for (int i = 0; code == MR_OK && i < n; i++)
        code = check_named(arrays, i, &e[i]);
    for (int i = 0; code == MR_OK && i < n_metadata; i++) {
        code = check_text(keys[i], "a name of the metadata");
        if (code == MR_OK && !keys[i][0])
            code = mr__fail(MR_E_VALUE, "a name of the metadata is empty");
        if (code == MR_OK)
            code = check_text(values[i], "a text of the metadata");
        for (int j = 0; code == MR_OK && j < i; j++)
            if (strcmp(keys[i], keys[j]) == 0)
                code = mr__fail(MR_E_VALUE,
                                "the metadata has the name '%.80s' twice",
                                keys[i]);
    }
    if (code != MR_OK)
        return code;
    qsort(e, (size_t)n, sizeof *e, named_order);
    return mr_eval_tree(arrays);
}

static mr_code
write_sink(mr_sink *s, const named *e, int n, int n_metadata,
           const char *const *keys, const char *const *values)
{
    mr_sink header;
    mr_code code = mr__sink_open(&header, NULL);

    if (code == MR_OK)
        code = put_header(&header, e, n, n_metadata, keys, values);
    if (code == MR_OK)
        code = mr__sink_put(s, header.memory, header.bytes);
    mr__sink_close(&header);
    for (int i = 0; code == MR_OK && i < n; i++)
        code = mr__sink_array(s, e[i].x);
    return code;
}

/* path NULL: to memory, which then is in the sink. */
static mr_code
save(mr_sink *s, const char *path, const mr_tree *arrays, int n_metadata,
     const char *const *keys, const char *const *values)
{
    named *e;
    mr_code code;
    int n;

    *s = (mr_sink){.fd = -1};
    if (!arrays)
        return mr__error_pending() ? mr__error_code()
                                   : mr__fail(MR_E_NULL, "arrays is NULL");
    if (mr_tree_kind_of(arrays) != MR_TREE_DICT)
        return mr__fail(MR_E_TYPE, "the arrays must be a dict");
    n = mr_tree_size(arrays);
    e = mr__alloc_array((size_t)n, sizeof *e);
    if (!e)
        return MR_E_MEMORY;
    code = collect(arrays, e, n, n_metadata, keys, values);
    if (code == MR_OK)
        code = mr__sink_open(s, path);
    if (code == MR_OK)
        code = write_sink(s, e, n, n_metadata, keys, values);
    if (code == MR_OK)
        code = mr__sink_commit(s);
    mr__dealloc(e);
    return code;
}

mr_code
mr_save_safetensors(const char *path, const mr_tree *arrays, int n_metadata,
                    const char *const *keys, const char *const *values)
{
    mr_sink s;
    mr_code code;

    if (!path)
        return mr__fail(MR_E_NULL, "the path is NULL");
    code = save(&s, path, arrays, n_metadata, keys, values);
    mr__sink_close(&s);
    return code;
}

void *
mr_save_safetensors_memory(const mr_tree *arrays, int n_metadata,
                           const char *const *keys, const char *const *values,
                           size_t *bytes)
{
    mr_sink s;
    void *memory = NULL;

    if (bytes == NULL)
        return mr__fail_null(MR_E_NULL, "the place for the size is NULL");
    if (save(&s, NULL, arrays, n_metadata, keys, values) == MR_OK)
        memory = mr__sink_take_memory(&s, bytes);
    mr__sink_close(&s);
    return memory;
}
