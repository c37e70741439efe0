//! The rooms of the core stand on floors: what is below knows nothing of what is above (docs/design.md, "The rooms").

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The floors from the ground up. A room is a file or folder of `src`; it uses rooms of lower floors only.
const FLOORS: &[&[&str]] = &[
    &["abi", "fork", "setting", "sync", "text", "thread", "vacant"],
    &["error", "trace"],
    &["dtype", "local", "stream"],
    &["device", "layout", "ledger"],
    &["memory"],
    &["runtime"],
    // One knot: work with a view is work with the whole, which is a tensor or a batch, and both know their uses.
    &["arrow", "order", "tensor", "transfer", "view"],
    &["arrow_rs", "cuda_array", "cudarc_slice", "dlpack", "manager"],
    &["convert"],
    &["ipc"],
];
const KNOT: usize = 6;

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&room))
}

/// All files with code that does not belong to tests.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The first names of paths that begin with `crate::`, except in comments and in tests.
fn named(source: &str) -> Vec<String> {
    let code: String = source
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default()
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let first_name = |path: &str| path.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    code.split("crate::")
        .skip(1)
        .flat_map(|rest| match rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((group, _)) => group.split(',').map(first_name).collect(),
            None => vec![first_name(rest)],
        })
        .collect()
}

#[test]
fn no_room_knows_of_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&root, &mut found).expect("sources");
    let (mut wrong, mut arrows) = (Vec::new(), 0);
    for path in found {
        let inside = path.strip_prefix(&root).expect("below it");
        let room = inside.iter().next().and_then(|first| Path::new(first).file_stem()?.to_str()).expect("a name");
        if room == "lib" {
            continue;
        }
        let own = floor(room).unwrap_or_else(|| panic!("{room} stands on no floor: FLOORS has to say on which"));
        for other in named(&fs::read_to_string(&path).expect("a source")) {
            if other.starts_with(char::is_uppercase) {
                wrong.push(format!("{} has {other} of the root, not of its room", inside.display()));
            }
            // Names without a floor are macros.
            let Some(its) = floor(&other).filter(|_| other != room) else { continue };
            arrows += 1;
            if its > own || (its == own && own != KNOT) {
                wrong.push(format!("{} uses {other}", inside.display()));
            }
        }
    }
    assert!(arrows > 500, "only {arrows} uses were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_are_found_wherever_they_stand() {
    let source = "use crate::{thread, trace};\nuse crate::error::Result;\n// use crate::ipc;\nfn f() { $crate::memory::x() }\n\
                  #[cfg(test)]\nmod tests { use crate::dlpack; }";
    assert_eq!(named(source), ["thread", "trace", "error", "memory"]);
}
