/* The floor of Python: a C extension with producers and consumers over the C floor, and one Python object for what is
 * held.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../c/allocations.h"
#include "../c/floor/table.h"
#include "../c/floor/tensor.h"

/* In the preloaded library; NULL without it. */
#pragma weak bench_allocations

/* The names and the argument of all queries, made once. */
static PyObject *text_dlpack, *text_device, *text_exchange_api, *text_arrow, *max_version, *max_version_name;
static PyObject *text_requires_grad, *text_is_neg;

/* --- handles: one object for what is held, with a type for tensors and one for batches --- */

struct handle {
    PyObject_HEAD
    void *held;
    void *schema; /* of a batch */
};

/* The handle that was freed last, to be used again, as CPython does for its own small types. */
static PyObject *free_handle;

static PyObject *new_handle(PyTypeObject *type, void *held, void *schema) {
    PyObject *made = free_handle;
    if (made != NULL) {
        free_handle = NULL;
        PyObject_Init(made, type);
    } else {
        made = PyObject_New(PyObject, type);
        if (made == NULL) return NULL;
    }
    ((struct handle *)made)->held = held;
    ((struct handle *)made)->schema = schema;
    return made;
}

static void free_object(PyObject *self) {
    if (free_handle == NULL) free_handle = self;
    else PyObject_Free(self);
}

static void dealloc_tensor(PyObject *self) {
    release_tensor(((struct handle *)self)->held);
    free_object(self);
}

static void dealloc_batch(PyObject *self) {
    release_seen(((struct handle *)self)->held);
    release_seen_schema(((struct handle *)self)->schema);
    free_object(self);
}

static PyTypeObject tensor_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "floor.Tensor",
    .tp_basicsize = sizeof(struct handle),
    .tp_dealloc = dealloc_tensor,
};

static PyTypeObject batch_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "floor.Batch",
    .tp_basicsize = sizeof(struct handle),
    .tp_dealloc = dealloc_batch,
};

/* --- consumers --- */

static PyObject *keep(struct DLManagedTensorVersioned *managed) {
    if (import_tensor(managed) != NULL) return new_handle(&tensor_type, managed, NULL);
    release_tensor(managed);
    PyErr_SetString(PyExc_BufferError, "not a compact tensor of float32 in host memory");
    return NULL;
}

/* Whether objects of the type that was looked up last can have the marks of `is_marked`. */
static int has_marks;

/* The function table of a type; the last one is kept, so that it is looked up once. */
static const DLPackExchangeAPI *exchange_api(PyTypeObject *type) {
    static PyTypeObject *known;
    static const DLPackExchangeAPI *api;
    if (type != known) {
        has_marks = PyObject_HasAttr((PyObject *)type, text_requires_grad);
        PyObject *capsule = PyObject_GetAttr((PyObject *)type, text_exchange_api);
        if (capsule == NULL) return NULL;
        api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        Py_DECREF(capsule);
        known = api == NULL ? NULL : type;
    }
    return api;
}

/* Calls a method that answers yes or no; -1 with an exception set if it fails. */
static int is(PyObject *thing, PyObject *question) {
    PyObject *answer = PyObject_VectorcallMethod(question, &thing, 1, NULL);
    int yes = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return yes;
}

/* Whether a tensor has a mark that PyTorch's table ignores. A third mark exists only for complex types. */
static int is_marked(PyObject *thing) {
    PyObject *gradient = PyObject_GetAttr(thing, text_requires_grad);
    if (gradient == NULL) return -1;
    int marked = PyObject_IsTrue(gradient);
    Py_DECREF(gradient);
    return marked == 0 ? is(thing, text_is_neg) : marked;
}

/* Does not synchronize: there is no order to keep in host memory. */
static PyObject *from_exchange_api(PyObject *self, PyObject *thing) {
    struct DLManagedTensorVersioned *managed = NULL;
    const DLPackExchangeAPI *api = exchange_api(Py_TYPE(thing));
    (void)self;
    if (api == NULL) return NULL;
    int marked = has_marks ? is_marked(thing) : 0;
    if (marked != 0) {
        if (marked > 0) PyErr_SetString(PyExc_BufferError, "the tensor is marked");
        return NULL;
    }
    if (api->managed_tensor_from_py_object_no_sync(thing, &managed) != 0) return NULL;
    return keep(managed);
}

static PyObject *from_dlpack(PyObject *self, PyObject *thing) {
    PyObject *arguments[] = {thing, max_version};
    (void)self;
    PyObject *capsule = PyObject_VectorcallMethod(text_dlpack, arguments, 1, max_version_name);
    if (capsule == NULL) return NULL;
    struct DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed != NULL && PyCapsule_SetName(capsule, "used_dltensor_versioned") != 0) managed = NULL;
    PyObject *kept = managed == NULL ? NULL : keep(managed);
    Py_DECREF(capsule);
    return kept;
}

/* For a producer that may also have device memory: asks without a stream only if the tensor is in host memory. */
static PyObject *from_dlpack_of_host(PyObject *self, PyObject *thing) {
    PyObject *device = PyObject_VectorcallMethod(text_device, &thing, 1, NULL);
    if (device == NULL) return NULL;
    int on_host = PyTuple_CheckExact(device) && PyTuple_GET_SIZE(device) == 2 &&
                  PyLong_AsLong(PyTuple_GET_ITEM(device, 0)) == kDLCPU;
    Py_DECREF(device);
    if (on_host) return from_dlpack(self, thing);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_BufferError, "not in host memory");
    return NULL;
}

static PyObject *keep_batch(struct ArrowSchema *schema, struct ArrowArray *array) {
    struct seen_schema *seen_schema = import_schema(schema);
    struct seen *seen = seen_schema == NULL ? NULL : import_array(array, seen_schema);
    if (seen != NULL) return new_handle(&batch_type, seen, seen_schema);
    if (seen_schema != NULL) release_seen_schema(seen_schema);
    PyErr_SetString(PyExc_ValueError, "not a table of known types");
    return NULL;
}

/* Requests the struct with the device, which says that the data is in host memory. */
static PyObject *from_arrow(PyObject *self, PyObject *thing) {
    (void)self;
    PyObject *kept = NULL, *pair = PyObject_VectorcallMethod(text_arrow, &thing, 1, NULL);
    if (pair == NULL) return NULL;
    if (PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2) {
        struct ArrowSchema *schema = PyCapsule_GetPointer(PyTuple_GET_ITEM(pair, 0), "arrow_schema");
        struct ArrowDeviceArray *array = NULL;
        if (schema != NULL) array = PyCapsule_GetPointer(PyTuple_GET_ITEM(pair, 1), "arrow_device_array");
        if (array != NULL && array->device_type == ARROW_DEVICE_CPU) kept = keep_batch(schema, &array->array);
        else if (array != NULL) PyErr_SetString(PyExc_BufferError, "not in host memory");
    } else {
        PyErr_SetString(PyExc_TypeError, "not a pair of capsules");
    }
    Py_DECREF(pair);
    return kept;
}

/* --- a producer of tensors, over static memory --- */

static int64_t const matrix_strides[MATRIX_NDIM] = {3, 1};
static DLTensor const matrix = {matrix_values,  {kDLCPU, 0},  MATRIX_NDIM, {kDLFloat, 32, 1},
                                matrix_shape, (int64_t *)matrix_strides, 0};

static void delete_managed(struct DLManagedTensorVersioned *managed) {
    Py_DECREF((PyObject *)managed->manager_ctx);
    PyMem_Free(managed);
}

static void delete_legacy(struct DLManagedTensor *managed) {
    Py_DECREF((PyObject *)managed->manager_ctx);
    PyMem_Free(managed);
}

static void end_capsule(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        delete_managed(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    }
}

static void end_legacy_capsule(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor")) delete_legacy(PyCapsule_GetPointer(capsule, "dltensor"));
}

static struct DLManagedTensorVersioned *new_managed(PyObject *producer) {
    struct DLManagedTensorVersioned *managed = PyMem_Malloc(sizeof *managed);
    if (managed == NULL) return PyErr_NoMemory(), NULL;
    *managed = (struct DLManagedTensorVersioned){
        {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, Py_NewRef(producer), delete_managed, 0, matrix};
    return managed;
}

static PyObject *versioned_capsule(PyObject *producer) {
    struct DLManagedTensorVersioned *managed = new_managed(producer);
    if (managed == NULL) return NULL;
    PyObject *capsule = PyCapsule_New(managed, "dltensor_versioned", end_capsule);
    if (capsule == NULL) delete_managed(managed);
    return capsule;
}

static PyObject *legacy_capsule(PyObject *producer) {
    struct DLManagedTensor *managed = PyMem_Malloc(sizeof *managed);
    if (managed == NULL) return PyErr_NoMemory();
    *managed = (struct DLManagedTensor){matrix, Py_NewRef(producer), delete_legacy};
    PyObject *capsule = PyCapsule_New(managed, "dltensor", end_legacy_capsule);
    if (capsule == NULL) delete_legacy(managed);
    return capsule;
}

/* A consumer that passes no keyword gets the legacy struct, as it may know no other. The values are ignored. */
static PyObject *producer_dlpack(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *names) {
    (void)arguments, (void)n;
    return names == NULL ? legacy_capsule(self) : versioned_capsule(self);
}

static PyObject *producer_device(PyObject *self, PyObject *unused) {
    static PyObject *device;
    (void)self, (void)unused;
    if (device == NULL) device = Py_BuildValue("(ii)", kDLCPU, 0);
    return Py_XNewRef(device);
}

static int producer_managed(void *self, struct DLManagedTensorVersioned **out) {
    struct DLManagedTensorVersioned *managed = new_managed(self);
    if (managed == NULL) return -1;
    *out = managed;
    return 0;
}

/* Consumers that know function tables take the tensor without a capsule. No consumer here calls another function. */
static DLPackExchangeAPI const producer_table = {
    .header = {{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, NULL},
    .managed_tensor_from_py_object_no_sync = producer_managed,
};

static PyObject *producer_to(PyObject *self, PyObject *type) {
    const DLPackExchangeAPI *api = exchange_api((PyTypeObject *)type);
    struct DLManagedTensorVersioned *managed = api == NULL ? NULL : new_managed(self);
    void *made = NULL;
    if (managed == NULL || api->managed_tensor_to_py_object_no_sync(managed, &made) != 0) return NULL;
    return made;
}

static PyMethodDef producer_methods[] = {
    {"to", producer_to, METH_O, NULL},
    {"__dlpack__", (PyCFunction)(void (*)(void))producer_dlpack, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"__dlpack_device__", producer_device, METH_NOARGS, NULL},
    {0},
};

static PyTypeObject producer_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "floor.Producer",
    .tp_basicsize = sizeof(PyObject),
    .tp_new = PyType_GenericNew,
    .tp_methods = producer_methods,
};

/* --- a producer of batches --- */

struct tabular {
    PyObject_HEAD
    struct table *table;
};

static void end_schema_capsule(PyObject *capsule) {
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema->release != NULL) schema->release(schema);
    PyMem_Free(schema);
}

static void end_array_capsule(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array->release != NULL) array->release(array);
    PyMem_Free(array);
}

static PyObject *schema_capsule(struct table *table) {
    struct ArrowSchema *schema = PyMem_Malloc(sizeof *schema);
    if (schema == NULL || export_schema(table, schema) != 0) return PyMem_Free(schema), PyErr_NoMemory();
    return PyCapsule_New(schema, "arrow_schema", end_schema_capsule);
}

static PyObject *array_capsule(struct table *table) {
    struct ArrowArray *array = PyMem_Malloc(sizeof *array);
    if (array == NULL || export_array(table, array) != 0) return PyMem_Free(array), PyErr_NoMemory();
    return PyCapsule_New(array, "arrow_array", end_array_capsule);
}

static PyObject *table_arrow(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *names) {
    (void)arguments, (void)n, (void)names; /* a requested schema is ignored */
    struct table *table = ((struct tabular *)self)->table;
    PyObject *schema = schema_capsule(table), *array = schema == NULL ? NULL : array_capsule(table), *pair = NULL;
    if (array != NULL) pair = PyTuple_Pack(2, schema, array);
    Py_XDECREF(schema);
    Py_XDECREF(array);
    return pair;
}

static PyObject *table_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    int columns;
    (void)names;
    if (!PyArg_ParseTuple(arguments, "i", &columns)) return NULL;
    struct tabular *made = (struct tabular *)type->tp_alloc(type, 0);
    if (made != NULL) made->table = new_table(columns, &table_format, 1);
    return (PyObject *)made;
}

static void table_dealloc(PyObject *self) {
    owner_drop(&((struct tabular *)self)->table->owner);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef table_methods[] = {
    {"__arrow_c_array__", (PyCFunction)(void (*)(void))table_arrow, METH_FASTCALL | METH_KEYWORDS, NULL},
    {0},
};

static PyTypeObject table_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "floor.Table",
    .tp_basicsize = sizeof(struct tabular),
    .tp_new = table_new,
    .tp_dealloc = table_dealloc,
    .tp_methods = table_methods,
};

/* --- the module --- */

static PyObject *nothing(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    Py_RETURN_NONE;
}

static PyObject *count_allocations(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyLong_FromLongLong(bench_allocations == NULL ? -1 : bench_allocations());
}

static PyMethodDef functions[] = {
    {"nothing", nothing, METH_NOARGS, NULL},
    {"allocations", count_allocations, METH_NOARGS, NULL},
    {"from_dlpack", from_dlpack, METH_O, NULL},
    {"from_dlpack_of_host", from_dlpack_of_host, METH_O, NULL},
    {"from_exchange_api", from_exchange_api, METH_O, NULL},
    {"from_arrow", from_arrow, METH_O, NULL},
    {0},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "floor", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_floor(void) {
    PyObject *made = PyModule_Create(&module);
    text_dlpack = PyUnicode_InternFromString("__dlpack__");
    text_device = PyUnicode_InternFromString("__dlpack_device__");
    text_exchange_api = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    text_requires_grad = PyUnicode_InternFromString("requires_grad");
    text_is_neg = PyUnicode_InternFromString("is_neg");
    text_arrow = PyUnicode_InternFromString("__arrow_c_device_array__");
    max_version = Py_BuildValue("(ii)", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
    max_version_name = PyTuple_Pack(1, PyUnicode_InternFromString("max_version"));
    producer_type.tp_dict = Py_BuildValue(
        "{ON}", text_exchange_api, PyCapsule_New((void *)&producer_table, "dlpack_exchange_api", NULL));
    if (made == NULL || PyType_Ready(&tensor_type) != 0 || PyType_Ready(&batch_type) != 0 ||
        PyModule_AddType(made, &producer_type) != 0 || PyModule_AddType(made, &table_type) != 0) {
        return NULL;
    }
    return made;
}
