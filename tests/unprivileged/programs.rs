//! A property of all attached programs.

use std::fs;
use std::path::Path;

/// While one agent takes over from another, the programs of both are attached: all must
/// check which of them count.
#[test]
fn every_attached_program_checks_is_active() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf");
    let mut found = 0;
    for feature in ["lifetime", "rename", "placement", "throttle", "memory"] {
        let file = bpf.join(format!("{feature}.bpf.c"));
        let text = fs::read_to_string(&file).expect("it is there");
        for program in text.split("\nSEC(\"").skip(1) {
            let body = program.split("\n}\n").next().unwrap_or_default();
            let name = body.lines().nth(1).unwrap_or_default();
            assert!(body.contains("is_active()"), "{feature}: {name}");
            found += 1;
        }
    }
    assert_eq!(found, 11, "programs of the features that hook something");
}
