//! A machine without a CUDA driver: the library works with host memory, and reports the missing driver when CUDA is
//! requested.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::abi::types::DEVX_DEVICE;
use devexchange_core::dlpack::{self, Copying, Request};
use devexchange_core::runtime::cuda::{info, pointer};
use devexchange_core::runtime::{releases_lost, releases_waiting};
use devexchange_core::{Batch, DType, Device, DeviceType, Stream, Tensor, convert};
use devexchange_tests::foreign::{self, bytes_schema};
use devexchange_tests::{peer, sim};

/// Set for the process that can find no driver.
const CHILD: &str = "DEVX_WITHOUT_A_DRIVER";

/// A directory in `place` that hides a driver in the system's own path: there the loader of glibc finds files that are no
/// libraries, and looks no further.
fn no_driver(place: &Path) -> PathBuf {
    let nothing = place.join("nothing");
    std::fs::create_dir_all(&nothing).expect("a directory");
    for name in ["libcuda.so.1", "libcuda.so"] {
        std::fs::write(nothing.join(name), "").expect("written");
    }
    nothing
}

#[test]
fn without_a_driver_host_memory_works() {
    if std::env::var_os(CHILD).is_some() {
        return without_a_driver();
    }
    let place = std::env::temp_dir().join(format!("devx-no-driver-{}", std::process::id()));
    let nothing = no_driver(&place);
    let path = nothing.to_str().expect("UTF-8");
    let output = peer::run("without_a_driver_host_memory_works", &[("LD_LIBRARY_PATH", path), (CHILD, "1")]);
    std::fs::remove_dir_all(&place).expect("removed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn without_a_driver() {
    let cuda = Device { kind: DeviceType::CUDA, id: 0 };
    let host = Tensor::from_vec(vec![1_u8, 2, 3, 4], &[4]).expect("a tensor");
    let stream = Stream::legacy(0);
    let managed = foreign::dlpack(0x1000, 4, cuda, || ());
    let mut array = foreign::arrow(0x1000, 4, cuda, 0, || ());
    let bytes = [0; 4];
    let refusals = [
        info::device_count().map(drop),
        info::driver_version().map(drop),
        info::device_info(0).map(drop),
        info::memory_info(0).map(drop),
        Device::new(DeviceType::CUDA, 0).map(drop),
        Device::new(DeviceType::CUDA_HOST, 0).map(drop),
        Device::new(DeviceType::CUDA_MANAGED, 0).map(drop),
        Stream::create(0).map(drop),
        stream.synchronize(),
        stream.is_capturing().map(drop),
        pointer::locate(bytes.as_ptr().cast()).map(drop),
        Tensor::allocate(cuda, DType::UINT8, &[4], None).map(drop),
        Tensor::allocate(cuda, DType::UINT8, &[4], Some(stream)).map(drop),
        host.copy_to(cuda, stream).map(drop),
        unsafe { dlpack::import(managed.as_ptr()) }.map(drop),
        unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.map(drop),
    ];
    for (which, refused) in refusals.into_iter().enumerate() {
        let error = refused.expect_err("there is no driver");
        assert_eq!(error.status(), DEVX_DEVICE, "{which}: {error}");
        assert!(error.message().contains("there is no CUDA driver on this machine"), "{which}: {error}");
    }
    drop(unsafe { dlpack::Owned::from_raw(managed) });
    unsafe { devexchange_core::arrow::release_array(&raw mut array.array) };
    // Host exchange.
    let exported = dlpack::export::<DLManagedTensorVersioned>(host.clone(), &Request::default()).expect("exported");
    assert_eq!(exported.import().expect("imported").as_slice::<u8>().expect("host memory"), [1, 2, 3, 4]);
    // Copies within host memory, although a stream is named.
    let mut read = [0; 4];
    host.read(&mut read, Some(stream)).expect("read");
    let copy = host.copy_to(Device::CPU, stream).expect("copied");
    unsafe { copy.write(&[5, 6, 7, 8], Some(stream)) }.expect("written");
    host.read(&mut [0; 4], None).expect("read without a stream");
    assert_eq!((read, copy.as_slice::<u8>().expect("host memory")), ([1, 2, 3, 4], &[5, 6, 7, 8][..]));
    let column = convert::column(&host, "x", Copying::Never).expect("a view");
    let copy = column.copy_to(Device::CPU, stream).expect("copied");
    assert_eq!(copy.root().values::<u8>().expect("host memory"), [1, 2, 3, 4]);
    assert_eq!(column.root().values::<u8>().expect("host memory"), [1, 2, 3, 4]);
    assert_eq!(host.used_on(stream).expect_err("host memory").message(), "device is cpu:0, which has no streams");
    assert_eq!((releases_waiting(), releases_lost()), (0, 0));
}

/// Set for the process that finds a driver that cannot be used: the text that its error must contain, or empty if there
/// is another one, too.
const STUB: &str = "DEVX_WITH_A_STUB";

/// The toolkit has such a library, for linkers; each of its functions reports that it is a stub. Other drivers that cannot
/// be initialised report other codes.
#[test]
fn a_driver_without_devices_is_described_and_a_stub_hides_none() {
    if let Ok(said) = std::env::var(STUB) {
        let count = info::device_count();
        match said.as_str() {
            "" => assert!(count.is_ok(), "{count:?}"),
            _ => assert!(count.is_err_and(|error| error.message().contains(&said)), "{said}"),
        }
        return;
    }
    if sim::skipped("this needs a C compiler and the simulated driver") {
        return;
    }
    let place = std::env::temp_dir().join(format!("devx-stub-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    let driver = sim::placed();
    // The names of all functions.
    let names = Command::new("nm").args(["-D", "--defined-only"]).arg(&driver).output().expect("nm");
    let names = String::from_utf8(names.stdout).expect("UTF-8");
    let names = names.lines().filter_map(|line| line.rsplit(' ').next());
    // Functions that the driver hides, because it is placed as an older one, end in a character that no name in C has.
    let names = names.filter(|name| name.starts_with("cu") && !name.ends_with('!'));
    let functions: String = names.map(|name| format!("int {name}(void) {{ return CODE; }}\n")).collect();
    let source = place.join("stub.c");
    std::fs::write(&source, functions).expect("written");
    let unusable = |code: u32| {
        let library = place.join(code.to_string()).join("libcuda.so");
        std::fs::create_dir_all(library.parent().expect("a directory")).expect("made");
        let mut compile = Command::new("cc");
        compile.args(["-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", &format!("-DCODE={code}"), "-o"]);
        assert!(compile.arg(&library).arg(&source).status().expect("a C compiler").success());
        library
    };
    let [stub, no_device, unknown] = [34, 100, 999].map(unusable);
    // The stub by a name that no driver has on Linux: it is not loaded.
    let other = place.join("other").join("libnvcuda.so");
    std::fs::create_dir_all(place.join("other")).expect("a directory");
    std::fs::copy(&stub, &other).expect("copied");
    let [stub, no_device, unknown, other, driver] = [&stub, &no_device, &unknown, &other, &driver]
        .map(|library| library.parent().and_then(Path::to_str).expect("UTF-8"));
    let nothing = no_driver(&place);
    for (path, said) in [
        (stub, "only the toolkit's stub of one (cuInit: 34)"),
        (&format!("{stub}:{driver}"), ""),
        (no_device, "no CUDA device that it may use (cuInit: 100)"),
        (unknown, "the CUDA driver cannot be initialised (cuInit: 999)"),
        (other, "libcuda.so.1 was not found"),
    ] {
        let test = "a_driver_without_devices_is_described_and_a_stub_hides_none";
        let path = format!("{path}:{}", nothing.display());
        let output = peer::run(test, &[("LD_LIBRARY_PATH", &path), (STUB, said)]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{path}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    std::fs::remove_dir_all(&place).expect("removed");
}

/// Set for the process whose driver loads slowly: the file in which the driver reports that it is being loaded, and the
/// one that tells it to continue.
const SLOW: &str = "DEVX_WITH_A_SLOW_DRIVER";

/// It continues by itself after a minute; otherwise a process whose test failed could not end.
const SLOW_DRIVER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void load(void) {
    char loading[4096], loaded[4096];
    snprintf(loading, sizeof loading, "%s/loading", getenv("DEVX_WITH_A_SLOW_DRIVER"));
    snprintf(loaded, sizeof loaded, "%s/loaded", getenv("DEVX_WITH_A_SLOW_DRIVER"));
    fclose(fopen(loading, "w"));
    for (int i = 0; i < 60000 && access(loaded, F_OK) != 0; i++) usleep(1000);
}
"#;

#[test]
fn a_fork_does_not_wait_for_a_driver_that_its_parent_looks_for() {
    if let Some(place) = std::env::var_os(SLOW) {
        let place = Path::new(&place);
        let is_of_fork = || info::device_count().expect_err("it has no functions").message().contains("fork");
        // While a library is being loaded, no thread begins, and none sets up anything that is its own (glibc).
        let steps = Arc::new(AtomicU32::new(0));
        let (loading, step) = (place.join("loading"), Arc::clone(&steps));
        let second = std::thread::spawn(move || {
            step.store(1, SeqCst);
            peer::soon("the driver is being loaded", || loading.exists());
            step.store(2, SeqCst);
            is_of_fork()
        });
        peer::soon("the second thread runs", || steps.load(SeqCst) == 1);
        let first = std::thread::spawn(is_of_fork);
        peer::soon("the second thread looks, too", || steps.load(SeqCst) == 2);
        let status = peer::forked(is_of_fork);
        std::fs::write(place.join("loaded"), "").expect("written");
        assert_eq!([first, second].map(|looking| looking.join().expect("ended")), [false; 2]);
        assert_eq!(status, 0, "a wait status");
        return;
    }
    if sim::skipped("this needs a C compiler") {
        return;
    }
    let place = std::env::temp_dir().join(format!("devx-slow-driver-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    std::fs::write(place.join("slow.c"), SLOW_DRIVER).expect("written");
    let library = place.join("libcuda.so.1");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(place.join("slow.c")).status();
    assert!(compiled.expect("a C compiler").success());
    let at = place.to_str().expect("UTF-8");
    let test = "a_fork_does_not_wait_for_a_driver_that_its_parent_looks_for";
    let output = peer::run(test, &[("LD_LIBRARY_PATH", at), (SLOW, at)]);
    std::fs::remove_dir_all(&place).expect("removed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}
