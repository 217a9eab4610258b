//! The files that are made are those that are checked in.

use std::fs;

#[test]
fn generated_files_are_up_to_date() {
    for file in virtlens_deploy::files().expect("they can be made") {
        let path = virtlens_deploy::root().join(&file.path);
        if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
            fs::write(&path, &file.text).expect("it can be written");
            continue;
        }
        let now = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            now == file.text,
            "{} is not what the tables make; `make generate` rewrites it",
            file.path
        );
    }
}
