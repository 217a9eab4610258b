//! Reference pages that are made of the program's texts are those that are checked in.
//! `make generate` writes them.

use virtlens::cli::reference;

use virtlens_tests::golden::assert_golden;
use virtlens_tests::pages::root;

#[test]
fn reference_pages_are_up_to_date() {
    assert_golden(root().join("docs/cli.md"), &reference::commands());
    assert_golden(root().join("docs/settings.md"), &reference::settings());
}
