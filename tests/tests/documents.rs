//! The documents agree with the tree: links lead somewhere, tables are whole, and what has to be listed is.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the checkout")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below `folder` with one of these endings, without hidden folders and what is built.
fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        if path.is_symlink() || name.starts_with('.') || name == "target" {
            continue;
        } else if path.is_dir() {
            files(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), &[".md"], &mut found);
    assert!(found.len() >= 15, "only {} documents", found.len());
    found
}

/// The lines outside of fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// The anchors that GitHub gives to the headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &str| line.starts_with('#').then(|| line.trim_start_matches('#').trim().to_lowercase());
    prose(text)
        .filter_map(|(_, line)| heading(line))
        .map(|title| {
            let kept = title.chars().filter(|&c| c.is_alphanumeric() || "-_ ".contains(c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// What is between the first `from` and the next `to`.
fn part<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from:?}")).1;
    rest.split_once(to).map_or(rest, |(part, _)| part)
}

#[test]
fn links_lead_somewhere() {
    let (mut wrong, mut links) = (Vec::new(), 0);
    for document in documents() {
        let text = read(&document);
        for (number, line) in prose(&text) {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if target.starts_with("http") {
                    continue;
                }
                links += 1;
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = document.parent().expect("a folder").join(file);
                let path = if file.is_empty() { &document } else { &path };
                let is_right = path.exists() && (anchor.is_empty() || anchors(&read(path)).contains(anchor));
                if !is_right {
                    wrong.push(format!("{}:{number}: {target}", document.display()));
                }
            }
        }
    }
    assert!(links > 100, "only {links} links");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rows_of_a_table_have_as_many_cells() {
    let mut wrong = Vec::new();
    for document in documents() {
        let (text, mut columns) = (read(&document), None);
        for (number, line) in prose(&text) {
            let cells = line.starts_with('|').then(|| line.replace("\\|", "").matches('|').count());
            if cells.is_some() && columns.is_some() && cells != columns {
                wrong.push(format!("{}:{number}", document.display()));
            }
            columns = cells;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_design_names_all_rooms_of_the_core() {
    let design = read(&root().join("docs/design.md"));
    let table = part(&design, "## The rooms", "## Rules");
    // The other columns have words that are names of rooms, too.
    let paths = table.lines().filter_map(|row| row.split('|').nth(1));
    let named: BTreeSet<&str> = paths.flat_map(|path| path.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
    let rooms = fs::read_dir(root().join("core/src")).expect("the core");
    let missing: Vec<PathBuf> = rooms
        .map(|entry| entry.expect("a room").path())
        .filter(|path| {
            path.file_stem().and_then(|name| name.to_str()).is_none_or(|name| name != "lib" && !named.contains(name))
        })
        .collect();
    assert!(missing.is_empty(), "docs/design.md does not say what these are for: {missing:?}");
}

#[test]
fn the_guide_lists_all_settings() {
    let guide = read(&root().join("docs/guide.md"));
    let list = part(&guide, "## Settings", "\n## ");
    let folders = [
        "core/src",
        "bindings-c/include",
        "bindings-c/src",
        "bindings-jni/src",
        "bindings-jni/java/src/main",
        "bindings-julia/src",
        "bindings-julia/DevExchange.jl/src",
        "bindings-python/src",
        "bindings-python/python",
    ];
    let mut sources = Vec::new();
    for folder in folders {
        files(&root().join(folder), &[".rs", ".hpp", ".java", ".jl", ".py"], &mut sources);
    }
    let of_tests =
        |path: &PathBuf| path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"));
    let mut settings = BTreeSet::new();
    for source in sources.iter().filter(|path| !of_tests(path)) {
        let text = read(source);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        // Names of variables and of Java's properties, as whole literals.
        let is_java = source.extension().is_some_and(|ending| ending == "java");
        let is_name =
            |literal: &&str| literal.starts_with("DEVEXCHANGE_") || is_java && literal.starts_with("devexchange.");
        let is_whole = |literal: &&str| literal.chars().all(|c| c.is_ascii_alphabetic() || "_.".contains(c));
        settings.extend(code.split('"').filter(is_name).filter(is_whole).map(str::to_owned));
    }
    assert!(settings.len() >= 6, "{settings:?}");
    let missing: Vec<&String> = settings.iter().filter(|name| !list.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/guide.md does not list {missing:?}");
}
