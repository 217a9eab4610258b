//! Writes the files that are generated from the tables of this package.

#![forbid(unsafe_code)]

use std::fs;

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    for file in virtlens_deploy::files()? {
        let path = virtlens_deploy::root().join(&file.path);
        let folder = path.parent().context("a file lies in a folder")?;
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(&path, file.text).with_context(|| path.display().to_string())?;
        println!("{}", file.path);
    }
    Ok(())
}
