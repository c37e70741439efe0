"""Julia within Python."""

import ctypes


class Julia:
    """A Julia package and program, which runs on the thread that made this object."""

    def __init__(self, library, bindir, package, program):
        runtime = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        runtime.jl_eval_string.restype = runtime.jl_exception_occurred.restype = ctypes.c_void_p
        runtime.jl_unbox_voidpointer.restype = ctypes.c_void_p
        runtime.jl_unbox_voidpointer.argtypes = runtime.jl_typeof_str.argtypes = [ctypes.c_void_p]
        runtime.jl_typeof_str.restype = ctypes.c_char_p
        self.runtime = runtime
        # The function's name before Julia 1.6, then the later one.
        old = getattr(runtime, "jl_init_with_image__threading", None)
        (old or runtime.jl_init_with_image)(bindir.encode(), None)
        self.eval(f'pushfirst!(LOAD_PATH, raw"{package}"); include(raw"{program}"); nothing')

    def eval(self, source):
        value = self.runtime.jl_eval_string(source.encode())
        if thrown := self.runtime.jl_exception_occurred():
            kind = self.runtime.jl_typeof_str(thrown).decode()
            self.runtime.jl_eval_string(b"showerror(stderr, ccall(:jl_exception_occurred, Any, ())); println(stderr)")
            raise RuntimeError(f"Julia threw a {kind}: {source}")
        return value

    def functions(self, name, signatures):
        """The functions whose addresses are in a vector of this name; the first item of a signature is the result type.
        """
        pointers = [self.runtime.jl_unbox_voidpointer(self.eval(f"{name}[{k + 1}]")) for k in range(len(signatures))]
        return [ctypes.CFUNCTYPE(*signature)(at) for signature, at in zip(signatures, pointers, strict=True)]

    def close(self):
        self.runtime.jl_atexit_hook(0)
