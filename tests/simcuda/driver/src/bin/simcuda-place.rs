//! `simcuda-place DIRECTORY [VERSION]`: puts the simulated driver where `LD_LIBRARY_PATH=DIRECTORY` finds it.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (directory, version) = (args.next(), args.next());
    let version = version.map_or(Some(12090), |v| v.to_str().and_then(|v| v.parse().ok()));
    let (Some(directory), Some(version), None) = (directory, version, args.next()) else {
        eprintln!("usage: simcuda-place DIRECTORY [11080|12020|12090|13000]");
        return ExitCode::from(2);
    };
    // Where cargo puts the library that was built along with this program; beside it there may be an older one.
    let placed = std::env::current_exe().and_then(|exe| {
        simcuda_driver::place(&exe.with_file_name("deps/libsimcuda_driver.so"), Path::new(&directory), version)
    });
    match placed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("simcuda-place: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}
