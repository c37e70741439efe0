//! Memory of CUDA device 0, if there is a driver: the simulated one, or that of a machine with a GPU.

use std::sync::OnceLock;

use libloading::Library;

type Status = i32;

/// The driver's library, initialised, with the primary context of device 0.
pub(crate) struct Driver {
    library: Library,
    context: usize,
}

impl Driver {
    fn open() -> Option<Self> {
        // SAFETY: loading a CUDA driver runs only its own initialisers.
        let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
        let mut driver = Self { library, context: 0 };
        let mut context = 0_usize;
        let ready = driver.call("cuInit", [0, 0]) == 0
            && driver.call("cuDevicePrimaryCtxRetain", [(&raw mut context).expose_provenance(), 0]) == 0;
        driver.context = context;
        ready.then_some(driver)
    }

    /// Calls a function of at most two arguments, which are numbers or addresses.
    fn call(&self, name: &str, [first, second]: [usize; 2]) -> Status {
        type Function = unsafe extern "C" fn(usize, usize) -> Status;
        // SAFETY: the functions named here take two words or fewer.
        let function = unsafe { self.library.get::<Function>(name.as_bytes()) }.expect("a function of the driver");
        // SAFETY: the arguments are what the function is documented to take.
        unsafe { function(first, second) }
    }

    /// New memory, on the device's own context.
    fn allocate(&self) -> usize {
        let mut address = 0_usize;
        let mut before = 0_usize;
        assert_eq!(self.call("cuCtxPushCurrent_v2", [self.context, 0]), 0, "no context");
        assert_eq!(self.call("cuMemAlloc_v2", [(&raw mut address).expose_provenance(), 4096]), 0, "no memory");
        self.call("cuCtxPopCurrent_v2", [(&raw mut before).expose_provenance(), 0]);
        address
    }

    fn free(&self, address: usize) {
        let mut before = 0_usize;
        self.call("cuCtxPushCurrent_v2", [self.context, 0]);
        assert_eq!(self.call("cuMemFree_v2", [address, 0]), 0, "memory that cannot be given back");
        self.call("cuCtxPopCurrent_v2", [(&raw mut before).expose_provenance(), 0]);
    }
}

/// The driver, if there is one with a device.
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    DRIVER.get_or_init(Driver::open).as_ref()
}

/// 4096 bytes on device 0, the same for all cases.
pub(crate) fn device_memory() -> usize {
    static MEMORY: OnceLock<usize> = OnceLock::new();
    *MEMORY.get_or_init(|| driver().expect("a case that needs CUDA").allocate())
}

/// An address on device 0 where there is no memory any more.
pub(crate) fn freed_memory() -> usize {
    let driver = driver().expect("a case that needs CUDA");
    let address = driver.allocate();
    driver.free(address);
    address
}
