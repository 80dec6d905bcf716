/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c -- devices and streams: DeviceType, Device, Stream, stream().
 *
 * mx.cpu and mx.gpu are DeviceTypes and stand for a Device of index 0 wherever
 * one is wanted.
 */
#include "ext.h"

#include "marram/marram.h"
#include "marram/sys/testing.h"

typedef struct device_object {
    PyObject_HEAD mr_device d; /* a DeviceType has index 0 */
} device_object;

/* Owns its mr_stream unless it is a default one. */
typedef struct stream_object {
    PyObject_HEAD mr_stream s;
    mr_device d;
    bool owned;
} stream_object;

static const char *
type_name(mr_device_type t)
{
    return t == MR_CPU ? "cpu" : t == MR_GPU ? "gpu" : "test";
}

static bool
device_of(PyObject *o, mr_device *out)
{
    if (Py_TYPE(o) == ext.device || Py_TYPE(o) == ext.device_type) {
        *out = ((device_object *)o)->d;
        return true;
    }
    return false;
}

static bool
device_want(PyObject *o, mr_device *out)
{
    if (device_of(o, out))
        return true;
    ext_wrong_type(o, "expected a Device or DeviceType");
    return false;
}

static bool
device_check(mr_device d)
{
    if (mr_device_available(d))
        return true;
    if (mr_cpu_tier() == NULL) { /* there is none at all, and why */
        ext_raise();
        return false;
    }
    PyErr_Format(PyExc_ValueError,
                 "no device %s %d here: device_count() says how many there are",
                 type_name(d.type), (int)d.index);
    return false;
}

static PyObject *
device_new_of(PyTypeObject *type, mr_device d)
{
    device_object *o = (device_object *)PyType_GenericAlloc(type, 0);

    if (o)
        o->d = d;
    return (PyObject *)o;
}

static PyObject *
device_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("type"), EXT_WORD("index"), NULL};
    PyObject *kind;
    mr_device d = {MR_CPU, 0};
    int index = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|i:Device", names, &kind,
                                     &index) ||
        !device_want(kind, &d))
        return NULL;
    if (index < 0) {
        PyErr_Format(PyExc_ValueError,
                     "a device index of %d: devices count from 0", index);
        return NULL;
    }
    d.index = index;
    return device_new_of(type, d);
}

static PyObject *
device_repr(PyObject *self)
{
    mr_device d = ((device_object *)self)->d;

    if (Py_TYPE(self) == ext.device_type)
        return PyUnicode_FromFormat("DeviceType.%s", type_name(d.type));
    return PyUnicode_FromFormat("Device(%s, %d)", type_name(d.type),
                                (int)d.index);
}

static PyObject *
device_richcompare(PyObject *a, PyObject *b, int op)
{
    mr_device x, y;
    bool same;

    if ((op != Py_EQ && op != Py_NE) || !device_of(a, &x) || !device_of(b, &y))
        Py_RETURN_NOTIMPLEMENTED;
    same = x.type == y.type && x.index == y.index;
    return PyBool_FromLong(same == (op == Py_EQ));
}

static Py_hash_t
device_hash(PyObject *self)
{
    mr_device d = ((device_object *)self)->d;

    return (Py_hash_t)d.type * 1000 + d.index + 17;
}

static PyObject *
device_type(PyObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef(((device_object *)self)->d.type == MR_CPU ? ext.cpu
                                                               : ext.gpu);
}

static PyObject *
device_index(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong(((device_object *)self)->d.index);
}

static PyObject *
device_type_name(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(type_name(((device_object *)self)->d.type));
}

static PyObject *
device_type_value(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong((long)((device_object *)self)->d.type);
}

static PyGetSetDef device_getset[] = {
    {"type", device_type, NULL, "Its kind: mx.cpu or mx.gpu.", NULL},
    {"index", device_index, NULL, "Which of its kind.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef device_type_getset[] = {
    {"name", device_type_name, NULL, "\"cpu\" or \"gpu\".", NULL},
    {"value", device_type_value, NULL, "0 for cpu, 1 for gpu.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot device_slots[] = {
    {Py_tp_doc,
     EXT_DOC("Device(type, index=0)\n--\n\nA device: its kind and index.")},
    {Py_tp_new, device_new},
    {Py_tp_repr, device_repr},
    {Py_tp_richcompare, device_richcompare},
    {Py_tp_hash, device_hash},
    {Py_tp_getset, device_getset},
    {0, NULL},
};

static PyType_Slot device_type_slots[] = {
    {Py_tp_doc, EXT_DOC("A kind of device; stands for its Device of index 0.")},
    {Py_tp_repr, device_repr},
    {Py_tp_richcompare, device_richcompare},
    {Py_tp_hash, device_hash},
    {Py_tp_getset, device_type_getset},
    {0, NULL},
};

/* ---- streams ------------------------------------------------------------ */

static PyObject *
stream_object_new(mr_stream s, mr_device d, bool owned)
{
    stream_object *o = (stream_object *)PyType_GenericAlloc(ext.stream, 0);

    if (!o) {
        if (owned)
            mr_stream_free(s);
        return NULL;
    }
    o->s = s;
    o->d = d;
    o->owned = owned;
    return (PyObject *)o;
}

static void
stream_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    stream_object *o = (stream_object *)self;

    if (o->owned)
        mr_stream_free(o->s);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *
stream_repr(PyObject *self)
{
    stream_object *o = (stream_object *)self;

    return PyUnicode_FromFormat("Stream(Device(%s, %d), %u)",
                                type_name(o->d.type), (int)o->d.index,
                                (unsigned)o->s.id);
}

static PyObject *
stream_richcompare(PyObject *a, PyObject *b, int op)
{
    bool same;

    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(b) != ext.stream)
        Py_RETURN_NOTIMPLEMENTED;
    same = ((stream_object *)a)->s.id == ((stream_object *)b)->s.id;
    return PyBool_FromLong(same == (op == Py_EQ));
}

static Py_hash_t
stream_hash(PyObject *self)
{
    return (Py_hash_t)((stream_object *)self)->s.id;
}

static PyObject *
stream_device(PyObject *self, void *closure)
{
    (void)closure;
    return device_new_of(ext.device, ((stream_object *)self)->d);
}

static PyGetSetDef stream_getset[] = {
    {"device", stream_device, NULL, "The device that it runs on.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc,
     EXT_DOC("An ordered queue of work on a device; any thread may use it.")},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_repr, stream_repr},
    {Py_tp_richcompare, stream_richcompare},
    {Py_tp_hash, stream_hash},
    {Py_tp_getset, stream_getset},
    {0, NULL},
};

/* ---- streams of threads ------------------------------------------------- */

/* One handle, a stream for each thread that uses it. */
typedef struct local_object {
    PyObject_HEAD mr_device d;
    PyObject *streams; /* dict: thread to Stream */
} local_object;

static PyTypeObject *local_type;

static PyObject *
local_repr(PyObject *self)
{
    mr_device d = ((local_object *)self)->d;

    return PyUnicode_FromFormat("ThreadLocalStream(Device(%s, %d))",
                                type_name(d.type), (int)d.index);
}

static void
local_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_XDECREF(((local_object *)self)->streams);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *
local_device(PyObject *self, void *closure)
{
    (void)closure;
    return device_new_of(ext.device, ((local_object *)self)->d);
}

static PyObject *
local_richcompare(PyObject *a, PyObject *b, int op)
{
    if (op != Py_EQ && op != Py_NE)
        Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((a == b) == (op == Py_EQ));
}

static Py_hash_t
local_hash(PyObject *self)
{
    return (Py_hash_t)((uintptr_t)self >> 4);
}

static PyGetSetDef local_getset[] = {
    {"device", local_device, NULL, "The device that it runs on.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot local_slots[] = {
    {Py_tp_doc, EXT_DOC("A handle that is another stream on each thread.")},
    {Py_tp_dealloc, local_dealloc},
    {Py_tp_repr, local_repr},
    {Py_tp_richcompare, local_richcompare},
    {Py_tp_hash, local_hash},
    {Py_tp_getset, local_getset},
    {0, NULL},
};

/* This thread's stream; borrowed. */
static PyObject *
local_stream(local_object *l)
{
    PyObject *key = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    PyObject *o = key ? PyDict_GetItemWithError(l->streams, key) : NULL;
    mr_stream s;

    if (key && !o && !PyErr_Occurred()) {
        s = mr_stream_new(l->d);
        o = s.id ? stream_object_new(s, l->d, true) : ext_raise();
        if (o && PyDict_SetItem(l->streams, key, o) < 0)
            Py_CLEAR(o);
        Py_XDECREF(o);
    }
    Py_XDECREF(key);
    return o;
}

/* The default device's stream is the thread's default, whatever that is when
 * the work is planned; others have one for each thread. */
static bool
stream_on(mr_device d, mr_stream *s)
{
    mr_device usual = mr_default_device();

    if (d.type == usual.type && d.index == usual.index)
        return true;
    *s = mr_stream_of(d);
    if (s->id == 0)
        ext_raise();
    return s->id != 0;
}

bool
ext_place_of(PyObject *o, mr_stream *s, mr_device *d)
{
    *s = (mr_stream){0};
    if (Py_TYPE(o) == local_type && !(o = local_stream((local_object *)o)))
        return false;
    if (Py_TYPE(o) == ext.stream) {
        *s = ((stream_object *)o)->s;
        *d = ((stream_object *)o)->d;
        return true;
    }
    if (device_of(o, d))
        return device_check(*d) && stream_on(*d, s);
    ext_wrong_type(o, "stream must be a Stream, a Device or a DeviceType");
    return false;
}

bool
ext_stream_of(PyObject *o, mr_stream *out)
{
    mr_device d = {MR_CPU, 0};

    *out = (mr_stream){0};
    return o == Py_None || ext_place_of(o, out, &d);
}

/* ---- functions ---------------------------------------------------------- */

PyObject *
ext_default_device(void)
{
    if (ext_scopes_open > 0)
        ext_scope_sync();
    return device_new_of(ext.device, mr_default_device());
}

static PyObject *
default_device(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return ext_default_device();
}

static PyObject *
set_default_device(PyObject *self, PyObject *o)
{
    mr_device d = {MR_CPU, 0};

    (void)self;
    if (!device_want(o, &d) || !device_check(d))
        return NULL;
    if (mr_set_default_device(d) < 0)
        return ext_raise();
    Py_RETURN_NONE;
}

/* What stream() has put in force, {0}: nothing. */
static mr_stream
stream_in_force(void)
{
    mr_stream s;

    if (ext_scopes_open > 0)
        ext_scope_sync();
    s = mr_stream_scope((mr_stream){0});
    mr_stream_scope(s);
    return s;
}

static PyObject *
default_stream(PyObject *self, PyObject *o)
{
    mr_device d = {MR_CPU, 0}, in_force;
    mr_stream s;

    (void)self;
    if (!device_want(o, &d) || !device_check(d))
        return NULL;
    s = stream_in_force();
    in_force = mr_stream_device(s);
    if (s.id == 0 || in_force.type != d.type || in_force.index != d.index)
        s = mr_stream_of(d);
    return s.id ? stream_object_new(s, d, false) : ext_raise();
}

static PyObject *
new_stream(PyObject *self, PyObject *o)
{
    mr_device d = {MR_CPU, 0};
    mr_stream s;

    (void)self;
    if (!device_want(o, &d) || !device_check(d))
        return NULL;
    s = mr_stream_new(d);
    if (s.id == 0)
        return ext_raise();
    return stream_object_new(s, d, true);
}

static PyObject *
new_thread_local_stream(PyObject *self, PyObject *o)
{
    local_object *l;
    mr_device d = {MR_CPU, 0};

    (void)self;
    if (!device_want(o, &d) || !device_check(d))
        return NULL;
    l = (local_object *)PyType_GenericAlloc(local_type, 0);
    if (!l)
        return NULL;
    l->d = d;
    l->streams = PyDict_New();
    if (!l->streams)
        Py_CLEAR(l);
    return (PyObject *)l;
}

/* Streams live as long as their objects: there is nothing to clear. */
static PyObject *
clear_streams(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    if (mr_stream_sync((mr_stream){0}) < 0)
        return ext_raise();
    Py_RETURN_NONE;
}

static PyObject *
set_default_stream(PyObject *self, PyObject *o)
{
    (void)self;
    if (Py_TYPE(o) != ext.stream) {
        ext_wrong_type(o, "expected a Stream");
        return NULL;
    }
    if (mr_stream_set_default(((stream_object *)o)->s) < 0)
        return ext_raise();
    Py_RETURN_NONE;
}

static PyObject *
stream_function(PyObject *self, PyObject *o)
{
    (void)self;
    return PyObject_CallFunctionObjArgs((PyObject *)ext.stream_context, o,
                                        NULL);
}

static PyObject *
synchronize(PyObject *self, PyObject *args)
{
    PyObject *o = Py_None;
    mr_stream s;

    (void)self;
    if (!PyArg_ParseTuple(args, "|O:synchronize", &o) || !ext_stream_of(o, &s))
        return NULL;
    if (o == Py_None)
        s = stream_in_force();
    if (mr_stream_sync(s) < 0)
        return ext_raise();
    Py_RETURN_NONE;
}

static PyObject *
is_available(PyObject *self, PyObject *o)
{
    mr_device d = {MR_CPU, 0};

    (void)self;
    if (!device_want(o, &d))
        return NULL;
    return PyBool_FromLong(mr_device_available(d));
}

static PyObject *
device_count(PyObject *self, PyObject *o)
{
    mr_device d = {MR_CPU, 0};

    (void)self;
    if (!device_want(o, &d))
        return NULL;
    return PyLong_FromLong(mr_device_count(d.type));
}

PyMethodDef ext_stream_functions[] = {
    {"default_device", default_device, METH_NOARGS,
     "default_device()\n--\n\nThe device that operators run on."},
    {"set_default_device", set_default_device, METH_O,
     "set_default_device(device, /)\n--\n\nMakes a device the default one.\n\n"
     "Raises:\n    ValueError: there is no such device"},
    {"default_stream", default_stream, METH_O,
     "default_stream(device, /)\n--\n\nThis thread's default stream there."},
    {"new_stream", new_stream, METH_O,
     "new_stream(device, /)\n--\n\nA new stream; any thread may use it."},
    {"new_thread_unsafe_stream", new_stream, METH_O,
     "new_thread_unsafe_stream(device, /)\n--\n\nAnother name of new_stream: "
     "every stream may be used from any thread."},
    {"new_thread_local_stream", new_thread_local_stream, METH_O,
     "new_thread_local_stream(device, /)\n--\n\nA handle that is another "
     "stream on each thread."},
    {"clear_streams", clear_streams, METH_NOARGS,
     "clear_streams()\n--\n\nWaits for this thread's default stream; "
     "streams end with their objects."},
    {"set_default_stream", set_default_stream, METH_O,
     "set_default_stream(stream, /)\n--\n\nMakes a stream this thread's "
     "default."},
    {"stream", stream_function, METH_O,
     "stream(s, /)\n--\n\nA context in which a stream or device is this "
     "thread's default."},
    {"synchronize", synchronize, METH_VARARGS,
     "synchronize(stream=None, /)\n--\n\nWaits for the work submitted to a "
     "stream."},
    {"is_available", is_available, METH_O,
     "is_available(device, /)\n--\n\nWhether there is such a device."},
    {"device_count", device_count, METH_O,
     "device_count(device_type, /)\n--\n\nHow many devices of a kind there "
     "are."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *
type_new(PyObject *module, const char *name, int size, PyType_Slot *slots,
         unsigned flags)
{
    PyType_Spec spec = {name, size, 0, Py_TPFLAGS_DEFAULT | (unsigned)flags,
                        slots};
    PyObject *type = PyType_FromSpec(&spec);

    if (type && PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

int
ext_init_stream(PyObject *module)
{
    const unsigned closed = Py_TPFLAGS_DISALLOW_INSTANTIATION;

    ext.device = type_new(module, "marram.core.Device", sizeof(device_object),
                          device_slots, 0);
    ext.device_type =
        type_new(module, "marram.core.DeviceType", sizeof(device_object),
                 device_type_slots, closed);
    ext.stream = type_new(module, "marram.core.Stream", sizeof(stream_object),
                          stream_slots, closed);
    local_type = type_new(module, "marram.core.ThreadLocalStream",
                          sizeof(local_object), local_slots, closed);
    if (!local_type || !ext.device || !ext.device_type || !ext.stream ||
        ext_init_scope(module) < 0)
        return -1;
    ext.cpu = device_new_of(ext.device_type, (mr_device){MR_CPU, 0});
    ext.gpu = device_new_of(ext.device_type, (mr_device){MR_GPU, 0});
    if (!ext.cpu || !ext.gpu ||
        PyObject_SetAttrString((PyObject *)ext.device_type, "cpu", ext.cpu) <
            0 ||
        PyObject_SetAttrString((PyObject *)ext.device_type, "gpu", ext.gpu) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "cpu", ext.cpu) < 0 ||
                   PyModule_AddObjectRef(module, "gpu", ext.gpu) < 0
               ? -1
               : 0;
}

/* ---- for tests: where things are ---------------------------------------- */

static PyObject *
test_device(PyObject *self, PyObject *o)
{
    long index = PyLong_AsLong(o);

    (void)self;
    if (index == -1 && PyErr_Occurred())
        return NULL;
    return device_new_of(ext.device,
                         (mr_device){MR_TEST_DEVICE, (int32_t)index});
}

static PyObject *
is_on_stream(PyObject *self, PyObject *args)
{
    PyObject *x, *o;
    mr_stream s;

    (void)self;
    if (!PyArg_ParseTuple(args, "OO:_is_on_stream", &x, &o) ||
        !ext_stream_of(o, &s))
        return NULL;
    if (!ext_is_array(x)) {
        ext_wrong_type(x, "expected an array");
        return NULL;
    }
    return PyBool_FromLong(mr_test_stream_of(ext_x(x)).id == s.id);
}

static PyObject *
is_same_array(PyObject *self, PyObject *args)
{
    PyObject *x, *y;

    (void)self;
    if (!PyArg_ParseTuple(args, "OO:_is_same_array", &x, &y))
        return NULL;
    return PyBool_FromLong(ext_is_array(x) && ext_is_array(y) &&
                           ext_x(x) == ext_x(y));
}

static PyObject *
device_of_array(PyObject *self, PyObject *x)
{
    (void)self;
    if (!ext_is_array(x)) {
        ext_wrong_type(x, "expected an array");
        return NULL;
    }
    return device_new_of(ext.device, mr_test_device_of(ext_x(x)));
}

PyMethodDef ext_place_functions[] = {
    {"_test_device", test_device, METH_O,
     "_test_device(index)\n--\n\nA device of the tests'."},
    {"_is_on_stream", is_on_stream, METH_VARARGS,
     "_is_on_stream(x, s)\n--\n\nWhether x is or will be computed on s."},
    {"_is_same_array", is_same_array, METH_VARARGS,
     "_is_same_array(x, y)\n--\n\nWhether two objects stand for one array."},
    {"_device_of", device_of_array, METH_O,
     "_device_of(x)\n--\n\nThe device whose memory x was made in."},
    {NULL, NULL, 0, NULL},
};
