//! Imports inside a crate are acyclic: modules of the model import from lower layers
//! only, and no modules of the model, the agent or the exporter import each other in a
//! cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

/// The layers of `crates/model`, lowest first.
const LAYERS: [&str; 8] = [
    "prefetch", "vocab", "facts", "snapshot", "identify", "account", "fleet", "judge",
];

/// The highest layer from which `timeline` may import.
const VOCAB: usize = 1;

/// An import: the importing module and the imported one.
type Arrow = (String, String);

/// Modules of a crate by path, without `crate`; the root has an empty path.
type Sources = BTreeMap<String, String>;

/// The sources of a crate, without its tests.
fn sources(folder: &str) -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder);
    let mut found = Sources::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(&root).expect("it is inside");
            let module = inside.with_extension("").display().to_string();
            let is_rust = path.extension().is_some_and(|end| end == "rs");
            let is_test = module.split('/').any(|part| part == "tests");
            if is_rust && !is_test {
                let text = fs::read_to_string(&path).expect("the file can be read");
                found.insert(name_of(&module), text);
            }
        }
    }
    found
}

/// Module path of a file.
fn name_of(file: &str) -> String {
    match file {
        "lib" | "main" => String::new(),
        file => file.trim_end_matches("/mod").replace('/', "::"),
    }
}

/// Collects the paths in one module, as absolute paths of segments.
struct Paths<'a> {
    module: Vec<String>,
    children: BTreeSet<String>,
    named: &'a mut BTreeSet<Vec<String>>,
}

impl Paths<'_> {
    fn name(&mut self, path: &[String]) {
        let mut here = self.module.clone();
        let mut rest = path.iter().peekable();
        match rest.peek().map(|first| first.as_str()) {
            Some("crate") => {
                here.clear();
                rest.next();
            }
            Some("self") => {
                rest.next();
            }
            Some("super") => {
                while rest.next_if(|one| *one == "super").is_some() {
                    here.pop();
                }
            }
            Some(child) if self.children.contains(child) => {}
            _ => return,
        }
        here.extend(rest.cloned());
        self.named.insert(here);
    }

    fn tree(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.tree(&path.tree, &with(path.ident.to_string())),
            UseTree::Name(name) => self.name(&with(name.ident.to_string())),
            UseTree::Rename(name) => self.name(&with(name.ident.to_string())),
            UseTree::Glob(_) => self.name(before),
            UseTree::Group(group) => group.items.iter().for_each(|one| self.tree(one, before)),
        }
    }
}

/// Whether an item is compiled for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let words = attribute.meta.require_list().map(|list| &list.tokens);
        attribute.path().is_ident("cfg") && words.is_ok_and(|words| words.to_string() == "test")
    })
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.tree(&item.tree, &[]);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    /// `pub(super)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|one| one.ident.to_string());
        self.name(&segments.collect::<Vec<_>>());
        visit::visit_path(self, path);
    }
}

/// The imports among the modules of a crate.
fn arrows(sources: &Sources) -> Vec<Arrow> {
    let mut arrows = BTreeSet::new();
    for (module, text) in sources {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{module}: {error}"));
        let children = file.items.iter().filter_map(|item| match item {
            Item::Mod(child) if child.content.is_none() => Some(child.ident.to_string()),
            _ => None,
        });
        let mut named = BTreeSet::new();
        let parts = module.split("::").filter(|part| !part.is_empty());
        let mut paths = Paths {
            module: parts.map(str::to_owned).collect(),
            children: children.collect(),
            named: &mut named,
        };
        paths.visit_file(&file);
        for path in named {
            // The innermost module on the path; the segments after it are items.
            let all = (0..=path.len()).rev();
            let target = all
                .map(|length| path.get(..length).unwrap_or_default().join("::"))
                .find(|path| sources.contains_key(path))
                .unwrap_or_default();
            if target != *module {
                arrows.insert((module.clone(), target));
            }
        }
    }
    arrows.into_iter().collect()
}

/// The imports on cycles: what remains after repeatedly removing modules that import
/// nothing and modules that nothing imports.
fn circular(arrows: &[Arrow]) -> Vec<Arrow> {
    let mut left = arrows.to_vec();
    loop {
        let importing: BTreeSet<_> = left.iter().map(|(from, _)| from.clone()).collect();
        let imported: BTreeSet<_> = left.iter().map(|(_, to)| to.clone()).collect();
        let before = left.len();
        left.retain(|(from, to)| imported.contains(from) && importing.contains(to));
        if left.len() == before {
            return left;
        }
    }
}

/// The imports of the model from a layer above the module's own.
fn upward(arrows: &[Arrow]) -> Vec<Arrow> {
    let layer = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let height = |module: &str| LAYERS.iter().position(|one| *one == layer(module));
    let is_upward = |(from, to): &&Arrow| match (height(from), height(to)) {
        (Some(from), Some(to)) => to > from,
        (Some(_), None) => true,
        // The root declares the layers, and `timeline` is not one of them.
        (None, Some(to)) => layer(from) == "timeline" && to > VOCAB,
        (None, None) => false,
    };
    arrows.iter().filter(is_upward).cloned().collect()
}

fn of(modules: &[(&str, &str)]) -> Vec<Arrow> {
    let modules = modules.iter();
    let sources = modules.map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    arrows(&sources.collect())
}

#[test]
fn model_imports_from_lower_layers_only() {
    let arrows = arrows(&sources("crates/model/src"));
    assert!(
        arrows.len() > 100,
        "only {} imports were read",
        arrows.len()
    );
    assert_eq!(upward(&arrows), []);
}

#[test]
fn modules_have_no_import_cycle() {
    for folder in ["crates/model/src", "crates/export/src", "agent/src"] {
        let arrows = arrows(&sources(folder));
        assert!(arrows.len() > 10, "{folder}: {arrows:?}");
        assert_eq!(circular(&arrows), [], "{folder}");
    }
}

#[test]
fn upward_import_is_found_in_every_form() {
    for import in [
        "use crate::judge::Interval;",
        "use crate::{judge::interval, vocab::Role};",
        "pub use super::super::judge::*;",
        "fn one() { crate::judge::interval::judge(); }",
        "struct One(crate::judge::interval::Interval);",
    ] {
        let modules = [
            ("facts", ""),
            ("facts::thread", import),
            ("judge", ""),
            ("judge::interval", "use crate::facts::thread;"),
            ("vocab", ""),
        ];
        let found = upward(&of(&modules));
        assert_eq!(found.len(), 1, "{import}: {found:?}");
        assert_eq!(found[0].0, "facts::thread", "{import}");
    }
    let tests = "#[cfg(test)]\nmod tests {\n    use crate::judge::Interval;\n}";
    assert_eq!(upward(&of(&[("facts", tests), ("judge", "")])), []);
}

#[test]
fn import_cycle_through_parent_is_found() {
    let modules = [
        ("fleet", "mod naming;\nfn name() { naming::free_name(); }"),
        ("fleet::naming", "use super::Fleet;"),
        ("fleet::alone", "use crate::fleet::naming;"),
    ];
    let found = circular(&of(&modules));
    let names: Vec<_> = found.iter().map(|(from, _)| from.as_str()).collect();
    assert_eq!(names, ["fleet", "fleet::naming"]);
}
