//! The documentation as a site of mdBook: it builds, contains every page, and has no dead
//! link.
//!
//! The source of the site mirrors the repository, so that a link between any two pages works
//! both there and in the site. It consists of the pages of docs/SUMMARY.md and of the files
//! that they link to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use mdbook_driver::MDBook;
use mdbook_driver::config::Config;

use virtlens_tests::pages::{Page, attributes, html_links, in_folder, pages, root};

/// Environment variable with an absolute path: `make site` keeps the site there.
const TARGET: &str = "VIRTLENS_SITE";

/// Removes `.` and `..` from a relative path; `None` if it leaves the directory.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => found.push(name),
            Component::CurDir => {}
            Component::ParentDir if found.pop() => {}
            _ => return None,
        }
    }
    Some(found)
}

/// Path and anchor that a link on `page` leads to, both relative to the same root as `page`;
/// `None` for a link that leaves the root.
fn target(page: &Path, link: &str) -> Option<(PathBuf, Option<String>)> {
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_owned())),
        None => (link, None),
    };
    let path = match path {
        "" => page.to_owned(),
        _ => normal(&page.parent()?.join(path))?,
    };
    Some((path, anchor))
}

/// Whether a link leads to another site, by a complete URL.
fn is_external(link: &str) -> bool {
    let rest = link
        .strip_prefix("https://")
        .or(link.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let host = rest.split(['/', '#', '?']).next().unwrap_or_default();
        let is_of_host = |char: char| char.is_ascii_alphanumeric() || ".-:".contains(char);
        host.contains('.') && host.chars().all(is_of_host) && !rest.contains(char::is_whitespace)
    })
}

/// The table of contents with paths from the root of the repository.
fn summary() -> String {
    let summary = Page::read("docs/SUMMARY.md").text;
    let from_root = summary.replace("](", "](docs/");
    from_root.replace("](docs/../", "](")
}

/// Paths of the pages of the site.
fn chapters() -> BTreeSet<PathBuf> {
    let links = Page::read("docs/SUMMARY.md").links();
    let path = |link: &String| normal(&Path::new("docs").join(link)).expect("it is a page");
    links.iter().map(path).collect()
}

/// Copies the pages, and files that they link to, into `folder`.
fn write_source(folder: &Path) {
    let mut files = chapters();
    for chapter in chapters() {
        let links = Page::read(&chapter).links();
        let inside = links.iter().filter(|link| !is_external(link));
        let targets = inside.filter_map(|link| target(&chapter, link));
        let paths = targets.map(|(path, _)| path);
        // The site contains only chapters, so a link to another page is dead.
        files.extend(paths.filter(|path| path.extension().is_none_or(|end| end != "md")));
    }
    for file in files {
        let from = root().join(&file);
        if from.is_file() {
            let to = folder.join(file);
            fs::create_dir_all(to.parent().expect("it is below")).expect("there is room");
            fs::copy(from, to).expect("it can be copied");
        }
    }
    fs::write(folder.join("SUMMARY.md"), summary()).expect("there is room");
}

/// Builds the site below `target`, with a source in `scratch`.
fn build(scratch: &Path, target: &Path) {
    let mut config = Config::from_disk(root().join("docs/book.toml")).expect("it is valid");
    config.book.src = "source".into();
    target.clone_into(&mut config.build.build_dir);
    write_source(&scratch.join("source"));
    let book = MDBook::load_with_config(scratch, config).expect("all pages are there");
    book.build().expect("they can be rendered");
}

/// All files below a folder, by their paths in it; pages with their HTML.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("it is a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let is_html = path.extension().is_some_and(|end| end == "html");
            let html = is_html.then(|| fs::read_to_string(&path).expect("it is text"));
            let name = path.strip_prefix(folder).expect("it is below");
            found.insert(name.to_owned(), html.unwrap_or_default());
        }
    }
    found
}

/// Links and pictures of a site that lead nowhere, each with its page.
fn dead_links(site: &Path) -> BTreeSet<String> {
    let files = files(site);
    let has = |path: &Path, anchor: String| attributes(&files[path], "id").contains(&anchor);
    let mut dead = BTreeSet::new();
    for (page, html) in &files {
        for link in html_links(html) {
            let is_alive = is_external(&link)
                || target(page, &link).is_some_and(|(path, anchor)| {
                    files.contains_key(&path) && anchor.is_none_or(|anchor| has(&path, anchor))
                });
            if !is_alive {
                dead.insert(format!("{}: {link}", page.display()));
            }
        }
    }
    dead
}

#[test]
fn site_builds_without_dead_links() {
    let scratch = tempfile::tempdir().expect("there is room for a folder");
    let kept = std::env::var_os(TARGET).map(PathBuf::from);
    let site = kept.unwrap_or_else(|| scratch.path().join("site"));
    build(scratch.path(), &site);
    let dead = dead_links(&site);
    assert!(dead.is_empty(), "{dead:#?}");
    // The checks above would also pass on an empty site.
    let built = files(&site);
    for chapter in chapters() {
        let html = built.get(&chapter.with_extension("html"));
        assert!(
            html.is_some_and(|html| html.contains("<h1")),
            "{} is a page",
            chapter.display()
        );
    }
    for picture in ["docs/images/fleet.png", "docs/images/pod.png"] {
        assert!(built.contains_key(Path::new(picture)), "{picture}");
    }
}

#[test]
fn every_page_of_docs_is_in_the_summary() {
    let chapters = chapters();
    let docs = ["docs", "docs/runbooks"].into_iter().flat_map(in_folder);
    let missing: Vec<_> = docs.filter(|page| !chapters.contains(page)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The repository's own view shows folders, too.
#[test]
fn every_link_between_files_of_the_repository_resolves() {
    let mut dead = Vec::new();
    for page in pages() {
        for link in page.links() {
            let leads_to_file = || {
                let (path, _) = target(&page.path, &link)?;
                Some(root().join(path).exists())
            };
            if !is_external(&link) && leads_to_file() != Some(true) {
                dead.push(format!("{}: {link}", page.name()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn dead_link_picture_and_anchor_are_found() {
    let site = tempfile::tempdir().expect("there is room for a folder");
    fs::create_dir(site.path().join("docs")).expect("there is room");
    let one = "<h1 id=\"top\">One</h1><a class=\"x\" href=\"docs/two.html#here\">2</a>\
               <a href=\"#top\">up</a><a href=\"https://example.org/a#b\">e</a>\
               <a href=\"docs/three.html\">3</a><a href=\"docs/two.html#there\">2</a>\
               <a href=\"https://example/\">e</a><img src=\"one.png\">";
    let two = "<h1 id=\"here\">Two</h1><a href=\"../one.html\">1</a><a href=\"../../x\">0</a>";
    fs::write(site.path().join("one.html"), one).expect("there is room");
    fs::write(site.path().join("docs/two.html"), two).expect("there is room");
    let dead = [
        "docs/two.html: ../../x",
        "one.html: docs/three.html",
        "one.html: docs/two.html#there",
        "one.html: https://example/",
        "one.html: one.png",
    ];
    assert_eq!(
        dead_links(site.path()),
        dead.map(str::to_owned).into_iter().collect()
    );
}
