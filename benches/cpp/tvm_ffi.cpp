// Export and import of DLPack with tvm-ffi: the C++ interface of its headers, over its library.
#include "../c/bench.h"
#include "../c/data.h"
#include "../c/threads.h"

#include <tvm/ffi/tvm_ffi.h>

namespace ffi = tvm::ffi;

namespace {

constexpr DLDevice cpu{kDLCPU, 0};
constexpr DLDataType float32{kDLFloat, 32, 1};

// An allocator that lends memory, and counts how often it is "freed".
struct Lent {
    int64_t *released;
    void AllocData(DLTensor *tensor) { tensor->data = matrix_values; }
    void FreeData(DLTensor *) { *released += 1; }
};

struct Producer {
    int64_t released = 0;
    ffi::Tensor tensor = make();
    ffi::TypedFunction<void *(ffi::TensorView)> look =
        ffi::Function::FromTyped([](ffi::TensorView view) { return view.data_ptr(); });

    ffi::Tensor make() {
        return ffi::Tensor::FromNDAlloc(Lent{&released}, ffi::ShapeView(matrix_shape, MATRIX_NDIM), float32, cpu);
    }
};

void *set_up(int) { return new Producer; }

void tear_down(void *state) { delete static_cast<Producer *>(state); }

void run_shared(void *state, int64_t times) {
    const ffi::Tensor &tensor = static_cast<Producer *>(state)->tensor;
    for (int64_t i = 0; i < times; ++i) {
        const ffi::Tensor seen = ffi::Tensor::FromDLPackVersioned(tensor.ToDLPackVersioned());
        MUST(seen.data_ptr() == matrix_values);
    }
}

// tvm-ffi has no export that moves a tensor: the tensor is exported, then its handle is dropped.
void run_moved(void *state, int64_t times) {
    Producer *producer = static_cast<Producer *>(state);
    const int64_t before = producer->released;
    for (int64_t i = 0; i < times; ++i) {
        ffi::Tensor tensor = producer->make();
        DLManagedTensorVersioned *handed = tensor.ToDLPackVersioned();
        tensor = ffi::Tensor();
        const ffi::Tensor seen = ffi::Tensor::FromDLPackVersioned(handed);
        MUST(seen.data_ptr() == matrix_values);
    }
    MUST(producer->released == before + times);
}

// Calls a function of the kind that tvm-ffi's registry has, with a view as its argument.
void run_borrowed(void *state, int64_t times) {
    const Producer *producer = static_cast<Producer *>(state);
    for (int64_t i = 0; i < times; ++i) MUST(producer->look(producer->tensor) == matrix_values);
}

void *export_one(void *state) { return static_cast<Producer *>(state)->tensor.ToDLPackVersioned(); }

void import_one(void *handed) {
    const ffi::Tensor seen = ffi::Tensor::FromDLPackVersioned(static_cast<DLManagedTensorVersioned *>(handed));
    MUST(seen.data_ptr() == matrix_values);
}

const struct thread_bench threads = {set_up, tear_down, export_one, import_one};

} // namespace

BENCHES {
    bench_add("dlpack/shared", 0, set_up, run_shared, tear_down);
    bench_add("dlpack/moved", 0, set_up, run_moved, tear_down);
    bench_add("dlpack/borrowed", 0, set_up, run_borrowed, tear_down);
    add_thread_benches(&threads);
}
