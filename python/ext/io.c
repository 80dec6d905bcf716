/* SPDX-License-Identifier: Apache-2.0
 *
 * io.c -- load, save and save_safetensors, on paths and file objects.
 *
 * A path's ending names its format; a file object's first bytes do.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

/* A path as text (str, bytes or os.PathLike), or NULL without an exception for
 * a file object. */
static PyObject *
path_of(PyObject *file)
{
    PyObject *path, *bytes = NULL;

    if (!PyUnicode_Check(file) && !PyBytes_Check(file) &&
        !PyObject_HasAttrString(file, "__fspath__"))
        return NULL;
    path = PyOS_FSPath(file);
    if (path && PyUnicode_Check(path)) {
        bytes = PyUnicode_EncodeFSDefault(path);
        Py_DECREF(path);
        return bytes;
    }
    return path;
}

static bool
ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- loading ------------------------------------------------------------ */

/* {name: array} */
static PyObject *
dict_of_tree(mr_tree *t)
{
    PyObject *dict = t ? PyDict_New() : ext_raise();
    int n = t ? mr_tree_size(t) : 0;

    for (int i = 0; dict && i < n; i++) {
        PyObject *x = ext_wrap(mr_retain(mr_tree_array_at(t, i)));
        if (!x || PyDict_SetItemString(dict, mr_tree_key(t, i), x) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(x);
    }
    mr_tree_release(t);
    return dict;
}

/* Pairs of texts, each ended by a NUL, up to an empty key. */
static PyObject *
dict_of_metadata(const char *p)
{
    PyObject *dict = PyDict_New();

    while (dict && p && *p) {
        const char *value = p + strlen(p) + 1;
        PyObject *v = PyUnicode_FromString(value);
        if (!v || PyDict_SetItemString(dict, p, v) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(v);
        p = value + strlen(value) + 1;
    }
    return dict;
}

static PyObject *
with_metadata(PyObject *dict, char *metadata, int wanted)
{
    PyObject *m, *pair = NULL;

    if (!dict || !wanted) {
        mr_text_free(metadata);
        return dict;
    }
    m = dict_of_metadata(metadata);
    mr_text_free(metadata);
    if (m)
        pair = PyTuple_Pack(2, dict, m);
    Py_XDECREF(m);
    Py_DECREF(dict);
    return pair;
}

static PyObject *
load_path(const char *path, const char *format, int metadata)
{
    char *text = NULL;
    mr_array *x;
    mr_tree *t;

    if (format ? strcmp(format, "npy") == 0 : ends_with(path, ".npy")) {
        Py_BEGIN_ALLOW_THREADS x = mr_load_npy(path);
        Py_END_ALLOW_THREADS return ext_wrap(x);
    }
    if (format ? strcmp(format, "safetensors") == 0
               : ends_with(path, ".safetensors")) {
        Py_BEGIN_ALLOW_THREADS t = mr_load_safetensors(path, &text);
        Py_END_ALLOW_THREADS return with_metadata(dict_of_tree(t), text,
                                                  metadata);
    }
    PyErr_Format(PyExc_ValueError,
                 "%s: no format of this name; npy and safetensors can be "
                 "loaded",
                 format ? format : path);
    return NULL;
}

static PyObject *
load_bytes(PyObject *bytes, const char *format, int metadata)
{
    const char *p = PyBytes_AsString(bytes);
    size_t n = (size_t)PyBytes_Size(bytes);
    char *text = NULL;
    PyObject *dict;

    if (format ? strcmp(format, "npy") == 0
               : n >= 6 && memcmp(p, "\x93NUMPY", 6) == 0)
        return ext_wrap(mr_load_npy_memory(p, n));
    if (format ? strcmp(format, "safetensors") == 0 : n >= 9 && p[8] == '{') {
        dict = dict_of_tree(mr_load_safetensors_memory(p, n, &text));
        return with_metadata(dict, text, metadata);
    }
    PyErr_SetString(ext.file_error, "the file is neither npy nor safetensors");
    return NULL;
}

static PyObject *
load_file(PyObject *file, const char *format, int metadata)
{
    PyObject *bytes, *r = NULL;

    if (!PyObject_HasAttrString(file, "read")) {
        ext_wrong_type(file, "load() needs a path or a file object");
        return NULL;
    }
    bytes = PyObject_CallMethod(file, "read", NULL);
    if (bytes && !PyBytes_Check(bytes))
        PyErr_SetString(PyExc_TypeError,
                        "the file must be opened for reading bytes ('rb')");
    else if (bytes)
        r = load_bytes(bytes, format, metadata);
    Py_XDECREF(bytes);
    return r;
}

static PyObject *
load(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD(""), EXT_WORD("format"),
                            EXT_WORD("return_metadata"), EXT_WORD("stream"),
                            NULL};
    PyObject *file, *path, *stream = Py_None, *r;
    const char *format = NULL;
    int metadata = 0;
    mr_stream s;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|zp$O:load", names, &file,
                                     &format, &metadata, &stream) ||
        !ext_stream_of(stream, &s))
        return NULL;
    path = path_of(file);
    if (!path)
        return PyErr_Occurred() ? NULL : load_file(file, format, metadata);
    r = load_path(PyBytes_AsString(path), format, metadata);
    Py_DECREF(path);
    return r;
}

/* ---- saving ------------------------------------------------------------- */

static PyObject *
done(mr_code code)
{
    if (code != MR_OK)
        return ext_raise();
    Py_RETURN_NONE;
}

/* Writes what was made in memory (freed) to a file object. */
static PyObject *
write_file(PyObject *file, void *p, size_t n)
{
    PyObject *r;

    if (!p)
        return ext_raise();
    r = PyObject_CallMethod(file, "write", "y#", (const char *)p,
                            (Py_ssize_t)n);
    mr_text_free(p);
    if (!r)
        return NULL;
    Py_DECREF(r);
    Py_RETURN_NONE;
}

static bool
is_file(PyObject *file, const char *who)
{
    if (PyErr_Occurred())
        return false;
    if (PyObject_HasAttrString(file, "write"))
        return true;
    return ext_wrong_type(file, "%s() needs a path or a file object", who);
}

/* A path that has the ending. */
static PyObject *
path_ending(PyObject *path, const char *end)
{
    PyObject *r;

    if (ends_with(PyBytes_AsString(path), end))
        return path;
    r = PyBytes_FromFormat("%s%s", PyBytes_AsString(path), end);
    Py_DECREF(path);
    return r;
}

static PyObject *
save(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("file"), EXT_WORD("arr"), NULL};
    PyObject *file, *array, *path, *r = NULL;
    mr_array *x;
    size_t n = 0;
    mr_code code;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "OO!:save", names, &file,
                                     ext.array, &array))
        return NULL;
    x = mr_retain(ext_x(array));
    path = path_of(file);
    if (path && (path = path_ending(path, ".npy"))) {
        const char *name = PyBytes_AsString(path);
        Py_BEGIN_ALLOW_THREADS code = mr_save_npy(name, x);
        Py_END_ALLOW_THREADS r = done(code);
    } else if (!path && is_file(file, "save")) {
        void *p = mr_save_npy_memory(x, &n);
        r = write_file(file, p, n);
    }
    Py_XDECREF(path);
    mr_release(x);
    return r;
}

/* The keys and values of a dict of text, borrowed from it. */
static bool
metadata_of(PyObject *dict, const char ***keys, const char ***values, int *n)
{
    PyObject *key, *value;
    Py_ssize_t at = 0, size = dict == Py_None ? 0 : PyDict_Size(dict);

    *keys = calloc((size_t)size + 1, sizeof **keys);
    *values = calloc((size_t)size + 1, sizeof **values);
    if (!*keys || !*values) {
        PyErr_NoMemory();
        return false;
    }
    while (size && PyDict_Next(dict, &at, &key, &value)) {
        if (!PyUnicode_Check(key) || !PyUnicode_Check(value))
            return ext_wrong_type(PyUnicode_Check(key) ? value : key,
                                  "keys and values of metadata must be text");
        (*keys)[*n] = PyUnicode_AsUTF8AndSize(key, NULL);
        (*values)[*n] = PyUnicode_AsUTF8AndSize(value, NULL);
        if (!(*keys)[*n] || !(*values)[(*n)++])
            return false;
    }
    return true;
}

static mr_tree *
tree_of_dict(PyObject *dict)
{
    Py_ssize_t n = PyDict_Size(dict), at = 0;
    const char **keys = calloc((size_t)n + 1, sizeof *keys);
    mr_tree **items = calloc((size_t)n + 1, sizeof *items), *t = NULL;
    PyObject *key, *value;
    int i = 0;

    while (keys && items && PyDict_Next(dict, &at, &key, &value)) {
        if (!PyUnicode_Check(key) || !ext_is_array(value)) {
            if (PyUnicode_Check(key))
                ext_wrong_type(value, "the value of '%U' must be an array",
                               key);
            else
                ext_wrong_type(key, "the keys of arrays must be text");
            break;
        }
        keys[i] = PyUnicode_AsUTF8AndSize(key, NULL);
        items[i] = keys[i] ? mr_tree_leaf(ext_x(value)) : NULL;
        if (!items[i++])
            break;
    }
    if (keys && items && i == n && !PyErr_Occurred())
        t = mr_tree_dict(i, keys, items);
    for (int k = 0; items && k < i; k++)
        mr_tree_release(items[k]);
    free(items);
    free(keys);
    if (!t)
        ext_raise();
    return t;
}

static PyObject *
save_safetensors(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("file"), EXT_WORD("arrays"),
                            EXT_WORD("metadata"), NULL};
    PyObject *file, *arrays, *metadata = Py_None, *path, *r = NULL;
    const char **keys = NULL, **values = NULL;
    mr_tree *t;
    size_t bytes = 0;
    int n = 0;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "OO!|O:save_safetensors", names,
                                     &file, &PyDict_Type, &arrays, &metadata))
        return NULL;
    if (metadata != Py_None && !PyDict_Check(metadata)) {
        ext_wrong_type(metadata, "metadata must be a dict of text");
        return NULL;
    }
    t = tree_of_dict(arrays);
    if (t && metadata_of(metadata, &keys, &values, &n)) {
        path = path_of(file);
        if (path && (path = path_ending(path, ".safetensors"))) {
            const char *name = PyBytes_AsString(path);
            mr_code code;
            Py_BEGIN_ALLOW_THREADS code =
                mr_save_safetensors(name, t, n, keys, values);
            Py_END_ALLOW_THREADS r = done(code);
        } else if (!path && is_file(file, "save_safetensors")) {
            void *p = mr_save_safetensors_memory(t, n, keys, values, &bytes);
            r = write_file(file, p, bytes);
        }
        Py_XDECREF(path);
    }
    mr_tree_release(t);
    free(keys);
    free(values);
    return r;
}

PyMethodDef ext_io_functions[] = {
    {"load", EXT_KEYWORDS(load),
     "load(file, /, format=None, return_metadata=False, *, stream=None)\n--\n\n"
     "An array (npy) or a dict of arrays (safetensors) from a path or a file\n"
     "object.\n\n"
     "Raises:\n"
     "    FileError: the file is missing or broken"},
    {"save", EXT_KEYWORDS(save),
     "save(file, arr)\n--\n\nWrites an array as npy."},
    {"save_safetensors", EXT_KEYWORDS(save_safetensors),
     "save_safetensors(file, arrays, metadata=None)\n--\n\n"
     "Writes a dict of arrays, and one of text, as safetensors."},
    {NULL, NULL, 0, NULL},
};
