//! Pages for users, and the parts of their Markdown that other suites check.

use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Pages outside of docs/, by their paths in the repository.
const OTHERS: [&str; 8] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "DESIGN.md",
    "README.md",
    "SECURITY.md",
    "benches/README.md",
    "deploy/README.md",
    "tests/vm/README.md",
];

/// The root of the repository.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().expect("the package is in a folder")
}

/// A page.
#[derive(Debug)]
pub struct Page {
    /// Path in the repository.
    pub path: PathBuf,
    /// Whole content.
    pub text: String,
}

impl Page {
    /// Reads the page at this path in the repository.
    pub fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let text = fs::read_to_string(root().join(&path));
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    /// Path for messages.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn events(&self) -> impl Iterator<Item = Event<'_>> {
        Parser::new_ext(&self.text, Options::ENABLE_TABLES)
    }

    /// Targets of all links and images, those of HTML included.
    pub fn links(&self) -> Vec<String> {
        let links = |event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                vec![dest_url.into_string()]
            }
            Event::Html(html) | Event::InlineHtml(html) => html_links(&html),
            _ => Vec::new(),
        };
        self.events().flat_map(links).collect()
    }

    /// All code blocks.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut is_inside = false;
        for event in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    is_inside = true;
                    let language = match kind {
                        CodeBlockKind::Fenced(language) => language.into_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    let text = String::new();
                    blocks.push(Block { language, text });
                }
                Event::Text(text) if is_inside => {
                    blocks.last_mut().expect("one began").text.push_str(&text);
                }
                Event::End(TagEnd::CodeBlock) => is_inside = false,
                _ => {}
            }
        }
        blocks
    }

    /// Code within sentences and tables, on one line each.
    pub fn spans(&self) -> Vec<String> {
        let code = |event| match event {
            Event::Code(text) => Some(text.into_string()),
            _ => None,
        };
        self.events().filter_map(code).collect()
    }
}

/// Values of an attribute in HTML that quotes all of them.
pub fn attributes(html: &str, name: &str) -> Vec<String> {
    let start = format!(" {name}=\"");
    let parts = html.split(&start).skip(1);
    let values = parts.filter_map(|part| Some(part.split_once('"')?.0));
    values.map(|value| value.replace("&amp;", "&")).collect()
}

/// Targets of all links and pictures in HTML.
pub fn html_links(html: &str) -> Vec<String> {
    ["href", "src", "srcset"]
        .map(|name| attributes(html, name))
        .concat()
}

/// A code block.
#[derive(Debug)]
pub struct Block {
    /// The language of its fence; empty without one.
    pub language: String,
    /// Its lines.
    pub text: String,
}

/// All pages.
pub fn pages() -> Vec<Page> {
    let docs = ["docs", "docs/runbooks"].into_iter().flat_map(in_folder);
    let others = OTHERS.iter().map(PathBuf::from);
    docs.chain(others).map(Page::read).collect()
}

/// Paths of the pages of a folder.
pub fn in_folder(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).expect("it is a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let paths = names.map(|name| Path::new(folder).join(name));
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    let mut paths: Vec<_> = paths.filter(is_page).collect();
    paths.sort();
    paths
}
