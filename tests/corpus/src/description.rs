//! The contents of the files: cases in groups, and the good structs that the cases spoil.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::cuda;

/// The languages that have a runner.
pub const LANGUAGES: [&str; 5] = ["rust", "c", "java", "julia", "python"];

const FILES: &[(&str, &str)] = &[
    ("schema.toml", include_str!("../cases/schema.toml")),
    ("format.toml", include_str!("../cases/format.toml")),
    ("array.toml", include_str!("../cases/array.toml")),
    ("device_array.toml", include_str!("../cases/device_array.toml")),
    ("stream.toml", include_str!("../cases/stream.toml")),
    ("async.toml", include_str!("../cases/async.toml")),
    ("dlpack.toml", include_str!("../cases/dlpack.toml")),
    ("cuda_array.toml", include_str!("../cases/cuda_array.toml")),
    ("cuda_array_dict.toml", include_str!("../cases/cuda_array_dict.toml")),
    ("ipc.toml", include_str!("../cases/ipc.toml")),
];

/// One input and its expected result.
#[derive(Clone, Debug)]
pub struct Case {
    /// A unique name: the kind, and what is wrong.
    pub name: String,
    /// What is imported: `schema`, `array`, `dlpack`, …
    pub kind: String,
    /// The good struct that is spoiled.
    pub base: String,
    /// What is changed in it.
    pub edits: Vec<String>,
    /// The stream's first step.
    pub schema: Option<Step>,
    /// The stream's later steps.
    pub steps: Vec<Step>,
    /// The name of the error's status; empty if the input must be accepted.
    pub status: String,
    /// A part of the error's text: the field and its value.
    pub says: String,
    /// When the error comes: at the `import`, or when the imported struct is `read`.
    pub stage: String,
    /// How many batches come before the end or the error.
    pub batches: u32,
    /// How often the producer's release is called in total.
    pub releases: u32,
    /// The source of the rule.
    pub source: String,
    languages: Vec<String>,
    needs: String,
}

impl Case {
    /// The languages whose runners must run the case.
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    /// Whether the case cannot run without a CUDA driver.
    pub fn needs_cuda(&self) -> bool {
        self.needs == "cuda"
    }

    /// Whether the runner of a language must run the case, here and now: some cases are for one language only, some
    /// need a CUDA driver, some need that there is none.
    pub fn is_for(&self, language: &str) -> bool {
        let here = match self.needs.as_str() {
            "cuda" => cuda::driver().is_some(),
            "no cuda" => cuda::driver().is_none(),
            _ => true,
        };
        here && self.languages.iter().any(|other| other == language)
    }
}

/// Something that a producer of a stream does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// Gives an array (or schema) of this base.
    pub give: Option<String>,
    /// What is changed in it.
    pub edits: Vec<String>,
    /// Fails with this code (`errno`).
    pub error: Option<i32>,
    /// The text of the failure; no text if this is missing.
    pub text: Option<String>,
    /// Its metadata, as in an edit.
    pub metadata: Option<String>,
    /// Ends the stream.
    pub end: bool,
    /// Gives the task without a way to extract it.
    pub no_extract: bool,
    /// Gives a schema where a task was expected.
    pub again: bool,
    /// Gives the schema before it sets `handler.producer`.
    pub unknown: bool,
    /// Releases the handler.
    pub release: bool,
}

/// A node of a tree: a field and its array.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) format: String,
    pub(crate) flags: i64,
    pub(crate) length: i64,
    pub(crate) null_count: i64,
    pub(crate) offset: i64,
    /// The buffers, as in an edit.
    pub(crate) buffers: Vec<String>,
    pub(crate) children: Vec<Node>,
    pub(crate) dictionary: Option<Box<Node>>,
    /// The number of lists of one value around it.
    lists: u32,
}

impl Node {
    /// Puts these lists around the node.
    fn nested(mut self) -> Self {
        for _ in 0..std::mem::take(&mut self.lists) {
            self = Self {
                name: self.name.clone(),
                format: "+l".to_owned(),
                length: 1,
                buffers: vec!["NULL".to_owned(), "i32[0, 1]".to_owned()],
                children: vec![self],
                ..Self::default()
            };
        }
        self
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bases {
    tree: BTreeMap<String, Node>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    group: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// One or several kinds of input: each case is one of each.
    kinds: Vec<String>,
    base: String,
    source: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    stage: Option<String>,
    #[serde(default)]
    languages: Option<Vec<String>>,
    #[serde(default)]
    needs: String,
    #[serde(default)]
    cases: Vec<Row>,
    /// Cases that are one format string each: refused with a text that quotes it, or accepted.
    #[serde(default)]
    formats: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default)]
    base: Option<String>,
    #[serde(default)]
    edits: Vec<String>,
    #[serde(default)]
    schema: Option<Step>,
    #[serde(default)]
    steps: Vec<Step>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    says: String,
    #[serde(default)]
    stage: Option<String>,
    #[serde(default)]
    batches: u32,
    #[serde(default)]
    releases: Option<u32>,
    #[serde(default)]
    languages: Option<Vec<String>>,
    #[serde(default)]
    needs: Option<String>,
}

/// Every case, in the order of the files.
///
/// # Panics
/// If a file is invalid.
pub fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        let mut all = Vec::new();
        for (name, text) in FILES {
            let file: File = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            all.extend(file.group.into_iter().flat_map(expand));
        }
        let mut names: Vec<_> = all.iter().map(|case| &case.name).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair.first(), pair.last(), "two cases have the same name");
        }
        all
    })
}

/// A good struct by its name.
pub(crate) fn tree(name: &str) -> &'static Node {
    static BASES: OnceLock<BTreeMap<String, Node>> = OnceLock::new();
    let bases = BASES.get_or_init(|| {
        let bases: Bases = toml::from_str(include_str!("../cases/bases.toml")).expect("bases.toml");
        bases.tree.into_iter().map(|(name, node)| (name, node.nested())).collect()
    });
    bases.get(name).unwrap_or_else(|| panic!("there is no tree {name:?}"))
}

fn expand(group: Group) -> Vec<Case> {
    let formats = group.formats.iter().map(|format| Row {
        name: format!("format {format:?}"),
        edits: vec![format!("format = {format:?}")],
        says: if group.status.is_empty() { String::new() } else { format!("format is {format:?}") },
        base: None,
        schema: None,
        steps: Vec::new(),
        status: None,
        stage: None,
        batches: 0,
        releases: None,
        languages: None,
        needs: None,
    });
    let rows = formats.chain(group.cases).collect::<Vec<_>>();
    let mut cases = Vec::new();
    for kind in &group.kinds {
        for row in &rows {
            let languages = row.languages.clone().or_else(|| group.languages.clone());
            let languages = languages.unwrap_or_else(|| LANGUAGES.map(str::to_owned).to_vec());
            for language in &languages {
                assert!(LANGUAGES.contains(&language.as_str()), "{}: there is no language {language:?}", row.name);
            }
            let status = row.status.clone().unwrap_or_else(|| group.status.clone());
            assert_eq!(status.is_empty(), row.says.is_empty(), "{}: a status and what it says go together", row.name);
            let stage = row.stage.clone().or_else(|| group.stage.clone()).unwrap_or_else(|| "import".to_owned());
            assert!(matches!(stage.as_str(), "import" | "read"), "{}: stage is {stage:?}", row.name);
            let needs = row.needs.clone().unwrap_or_else(|| group.needs.clone());
            assert!(matches!(needs.as_str(), "" | "cuda" | "no cuda"), "{}: needs is {needs:?}", row.name);
            cases.push(Case {
                name: format!("{kind}: {}", row.name),
                kind: kind.clone(),
                base: row.base.clone().unwrap_or_else(|| group.base.clone()),
                edits: row.edits.clone(),
                schema: row.schema.clone(),
                steps: row.steps.clone(),
                status,
                says: row.says.clone(),
                stage,
                batches: row.batches,
                releases: row.releases.unwrap_or(1),
                source: group.source.clone(),
                languages,
                needs,
            });
        }
    }
    cases
}
