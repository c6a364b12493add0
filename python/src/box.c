/* Capsules that own a C object and keep alive what it refers to; exceptions; callbacks. */
#include "skvpy.h"

#include <stdarg.h>

typedef struct box {
    void *object;               /* owned; NULL: closed */
    skvpy_free_fn *free_object; /* NULL: nothing to free */
    PyObject *parent;           /* owned reference or NULL */
} box;

static void close_box(box *b)
{
    if (b->object && b->free_object) b->free_object(b->object);
    b->object = NULL;
    Py_CLEAR(b->parent);
}

static void destroy(PyObject *capsule)
{
    box *b = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    if (!b) return;
    close_box(b);
    PyMem_Free(b);
}

PyObject *skvpy_box(void *object, const char *name, skvpy_free_fn *free_object, PyObject *parent)
{
    box *b = PyMem_Malloc(sizeof *b);
    PyObject *capsule = b ? PyCapsule_New(b, name, destroy) : PyErr_NoMemory();
    if (!capsule) {
        PyMem_Free(b);
        free_object(object);
        return NULL;
    }
    Py_XINCREF(parent);
    *b = (box){object, free_object, parent};
    return capsule;
}

void *skvpy_unbox(PyObject *capsule, const char *name)
{
    const box *b = PyCapsule_GetPointer(capsule, name);
    if (!b) return NULL;
    if (!b->object) PyErr_Format(PyExc_ValueError, "%s: closed", name);
    return b->object;
}

PyObject *skvpy_parent(PyObject *capsule, const char *name)
{
    const box *b = PyCapsule_GetPointer(capsule, name);
    return b ? b->parent : NULL;
}

PyObject *skvpy_release(PyObject *module, PyObject *capsule)
{
    (void)module;
    box *b = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    if (!b) return NULL;
    close_box(b);
    Py_RETURN_NONE;
}

/* ---- errors and callbacks ---- */

PyObject *skvpy_fail(skv_status status, const skv_error *err)
{
    if (PyErr_Occurred()) return NULL;
    PyObject *module = PyImport_ImportModule("swiftkv.errors");
    PyObject *made =
        module ? PyObject_CallMethod(module, "of_status", "is", (int)status, err->text) : NULL;
    if (made) PyErr_SetObject((PyObject *)Py_TYPE(made), made);
    Py_XDECREF(made);
    Py_XDECREF(module);
    return NULL;
}

PyObject *skvpy_done(skv_status status, const skv_error *err)
{
    if (PyErr_Occurred()) return NULL;
    if (status != SKV_OK) return skvpy_fail(status, err);
    Py_RETURN_NONE;
}

bool skvpy_tell(PyObject *callable, const char *format, ...)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    bool good = !PyErr_Occurred() && PyErr_CheckSignals() == 0;
    if (good && callable != Py_None) {
        va_list list;
        va_start(list, format);
        PyObject *args = Py_VaBuildValue(format, list);
        va_end(list);
        PyObject *result = args ? PyObject_CallObject(callable, args) : NULL;
        Py_XDECREF(args);
        Py_XDECREF(result);
        good = result;
    }
    PyGILState_Release(gil);
    return good;
}
