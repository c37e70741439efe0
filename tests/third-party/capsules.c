/* PyCapsules around the structs of DLPack and Arrow, with their destructors. A destructor may run while an exception is
 * pending, when Python code must not run. So the destructors are in C. They save the exception and restore it, because a
 * release may run Python code.
 */
#include <Python.h>

#include "arrow/c/device.h"
#include "dlpack/dlpack.h"

/* The struct; NULL if a consumer has taken it, because consumers of DLPack rename the capsule. */
static void *content(PyObject *capsule, const char *name) {
    return PyCapsule_IsValid(capsule, name) ? PyCapsule_GetPointer(capsule, name) : NULL;
}

/* --- DLPack: the producer owns the struct, and its deleter frees it --- */

#define VERSIONED "dltensor_versioned"
#define UNVERSIONED "dltensor"

static void drop_versioned(PyObject *capsule) {
    struct DLManagedTensorVersioned *tensor = content(capsule, VERSIONED);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (tensor != NULL && tensor->deleter != NULL) {
        tensor->deleter(tensor);
    }
    PyErr_Restore(type, value, trace);
}

static void drop_unversioned(PyObject *capsule) {
    struct DLManagedTensor *tensor = content(capsule, UNVERSIONED);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (tensor != NULL && tensor->deleter != NULL) {
        tensor->deleter(tensor);
    }
    PyErr_Restore(type, value, trace);
}

PyObject *new_versioned(void *tensor) { return PyCapsule_New(tensor, VERSIONED, drop_versioned); }

PyObject *new_unversioned(void *tensor) { return PyCapsule_New(tensor, UNVERSIONED, drop_unversioned); }

/* --- Arrow: the capsule owns the struct, which is zeroed at first; its release is NULL after an import --- */

#define SCHEMA "arrow_schema"
#define ARRAY "arrow_array"
#define DEVICE_ARRAY "arrow_device_array"

static void drop_schema(PyObject *capsule) {
    struct ArrowSchema *schema = content(capsule, SCHEMA);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (schema->release != NULL) {
        schema->release(schema);
    }
    PyMem_RawFree(schema);
    PyErr_Restore(type, value, trace);
}

/* A device array begins with its ArrowArray. */
static void drop_array_in(PyObject *capsule, const char *name) {
    struct ArrowArray *array = content(capsule, name);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (array->release != NULL) {
        array->release(array);
    }
    PyMem_RawFree(array);
    PyErr_Restore(type, value, trace);
}

static void drop_array(PyObject *capsule) { drop_array_in(capsule, ARRAY); }

static void drop_device_array(PyObject *capsule) { drop_array_in(capsule, DEVICE_ARRAY); }

static PyObject *new_struct(size_t size, const char *name, PyCapsule_Destructor drop) {
    void *room = PyMem_RawCalloc(1, size);
    PyObject *capsule = room == NULL ? PyErr_NoMemory() : PyCapsule_New(room, name, drop);
    if (capsule == NULL) {
        PyMem_RawFree(room);
    }
    return capsule;
}

PyObject *new_schema(void) { return new_struct(sizeof(struct ArrowSchema), SCHEMA, drop_schema); }

PyObject *new_array(void) { return new_struct(sizeof(struct ArrowArray), ARRAY, drop_array); }

PyObject *new_device_array(void) {
    return new_struct(sizeof(struct ArrowDeviceArray), DEVICE_ARRAY, drop_device_array);
}
