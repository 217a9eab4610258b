//! Tests the refault accounting of resident RAM (`bpf/refault.h`) against the counters of
//! a host with many CPUs: compiled for this host, with the kernel's counter algorithm in
//! place of a kernel.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use virtlens_probe::facts::KernelFacts;
use virtlens_probe::plan::plan;

const MIB: u64 = 1 << 20;

/// Returns the bytes that the program counts as taken again, although nothing was.
fn taken_again(program: &Path, cpus: usize, error_bytes: u64) -> u64 {
    let output = Command::new(program)
        .args([cpus.to_string(), error_bytes.to_string()])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("digits");
    text.trim().parse().expect("a number")
}

fn compiled(dir: &Path) -> std::path::PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = dir.join("refault");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let status = Command::new(&clang)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("../../bpf"))
        .arg(root.join("tests/refault.c"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(status.expect(&clang).success(), "{clang} compiles it");
    program
}

#[test]
fn refault_is_within_what_the_counters_may_be_off_by() {
    let dir = env::temp_dir().join(format!("virtlens-refault-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("there is room");
    let program = compiled(&dir);
    for online_cpus in [2, 16, 64, 256] {
        let facts = KernelFacts {
            online_cpus,
            ..KernelFacts::default()
        };
        let error_bytes = plan(&facts).rss_error_bytes;
        let fixed = taken_again(&program, online_cpus, 0);
        let grown = taken_again(&program, online_cpus, error_bytes);
        println!("{online_cpus} CPUs: {grown} B of {error_bytes} B, {fixed} B with 1 MiB");
        assert!(
            grown <= error_bytes + 2 * MIB,
            "{online_cpus} CPUs: {grown} B"
        );
        // With a bound that does not grow, each decrease of the counters counts as freed
        // memory, and the growth after it as the guest's.
        if online_cpus >= 64 {
            assert!(fixed > 4 * grown, "{fixed} B, {grown} B");
        }
    }
    fs::remove_dir_all(&dir).expect("it is ours");
}
