//! Writes the files that are generated from the tables of this package; with a command, a
//! document of a release to standard output.

#![forbid(unsafe_code)]

use std::fs;

use anyhow::{Context as _, bail};
use serde_json::Value;
use virtlens_deploy::release::{Library, Origin, artifacts, krew, provenance, sbom};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => generate(),
        ["sbom", crates, libraries @ ..] => print(&bill_of_materials(crates, libraries)?),
        ["provenance", sums, commit, builder, tools @ ..] => {
            let sums = artifacts(&read(sums)?)?;
            let tools: Vec<String> = tools.iter().map(ToString::to_string).collect();
            print(&provenance(
                &sums,
                &Origin {
                    commit,
                    builder,
                    tools: &tools,
                },
            ))
        }
        ["krew", sums, version, downloads] => {
            print(&krew(&artifacts(&read(sums)?)?, version, downloads)?)
        }
        _ => bail!(
            "expected nothing, `sbom FILE PACKAGE=VERSION...`, \
             `provenance SUMS COMMIT BUILDER TOOL...` or `krew SUMS VERSION DOWNLOADS`"
        ),
    }
}

fn generate() -> anyhow::Result<()> {
    for file in virtlens_deploy::files()? {
        let path = virtlens_deploy::root().join(&file.path);
        let folder = path.parent().context("a file lies in a folder")?;
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(&path, file.text).with_context(|| path.display().to_string())?;
        println!("{}", file.path);
    }
    Ok(())
}

fn bill_of_materials(crates: &str, libraries: &[&str]) -> anyhow::Result<Value> {
    let library = |text: &&str| {
        let (package, version) = text.split_once('=')?;
        Some(Library {
            package: package.to_owned(),
            version: version.to_owned(),
        })
    };
    let libraries: Option<Vec<Library>> = libraries.iter().map(library).collect();
    let libraries = libraries.context("a library has the form PACKAGE=VERSION")?;
    let crates = serde_json::from_str(&read(crates)?).context("the bill of materials")?;
    Ok(sbom(crates, &libraries))
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.to_owned())
}

fn print(document: &Value) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(document)?);
    Ok(())
}
