/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c -- the module marram._core: its types, functions, submodules.
 *
 * Functions say that they are marram.core's, which shows them all.
 */
#include "ext.h"

#include "marram/marram.h"

struct ext_state ext;

/* Adds functions under the name of the public module. */
static int
add_functions(PyObject *module, PyObject *name, PyMethodDef *m)
{
    for (; m->ml_name; m++) {
        PyObject *f = PyCFunction_NewEx(m, NULL, name);
        int r = f ? PyModule_AddObjectRef(module, m->ml_name, f) : -1;
        Py_XDECREF(f);
        if (r < 0)
            return -1;
    }
    return 0;
}

static int
add_public(PyObject *module, const char *name, PyMethodDef *m)
{
    PyObject *text = PyUnicode_FromString(name);
    int r = text ? add_functions(module, text, m) : -1;

    Py_XDECREF(text);
    return r;
}

static PyMethodDef *
extra_functions(const char *name)
{
    if (name[0] == 'r')
        return ext_random_functions;
    if (name[0] == 'f' && name[1] == 'a')
        return ext_fast_functions;
    if (name[0] == 'l')
        return ext_linalg_functions;
    return NULL;
}

/* marram.core.NAME, an attribute of the core module and importable. */
static int
add_submodule(PyObject *core, const ext_module *m)
{
    PyMethodDef *extra = extra_functions(m->name);
    PyObject *name = PyUnicode_FromFormat("marram.core.%s", m->name);
    PyObject *sub = name ? PyModule_NewObject(name) : NULL;
    int r = -1;

    if (sub && add_functions(sub, name, m->methods) == 0 &&
        (!extra || add_functions(sub, name, extra) == 0) &&
        PyModule_AddObjectRef(core, m->name, sub) == 0)
        r = PyDict_SetItem(PyImport_GetModuleDict(), name, sub);
    Py_XDECREF(sub);
    Py_XDECREF(name);
    return r;
}

static int
add_all(PyObject *core)
{
    PyMethodDef *const parts[] = {
        ext_functions,           ext_system_functions,  ext_stream_functions,
        ext_transform_functions, ext_compile_functions, ext_io_functions,
        ext_dtype_functions,     ext_select_functions,  ext_debug_functions,
    };

    for (const ext_module *m = ext_generated; m->name; m++)
        if (m->name[0] ? add_submodule(core, m) < 0
                       : add_public(core, "marram.core", m->methods) < 0)
            return -1;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (add_public(core, "marram.core", parts[i]) < 0)
            return -1;
    if (add_public(core, "marram._core", ext_state_functions) < 0)
        return -1;
    return add_public(core, "marram._core", ext_place_functions);
}

static int
core_exec(PyObject *module)
{
    if (ext.core) {
        PyErr_SetString(PyExc_ImportError,
                        "marram._core is loaded by one interpreter of a "
                        "process");
        return -1;
    }
    ext.core = Py_NewRef(module);
    ext_init_sites();
    if (ext_init_errors(module) < 0 || ext_init_dtype(module) < 0 ||
        ext_init_stream(module) < 0 || ext_init_array(module) < 0 ||
        ext_init_at(module) < 0 || ext_init_tree() < 0 ||
        ext_init_transform(module) < 0 || ext_init_size() < 0 ||
        ext_init_compile(module) < 0 || add_all(module) < 0)
        return -1;
    if (PyModule_AddStringConstant(module, "__version__", mr_version()) < 0)
        return -1;
    return ext_init_system();
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)core_exec},
    {0, NULL},
};

static PyModuleDef core_definition = {
    PyModuleDef_HEAD_INIT,
    "marram._core",
    "Arrays, operators and transforms: see marram.core.",
    0,
    NULL,
    core_slots,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&core_definition);
}
