//! Paths of cgroups, from names that are emitted once.

use super::Stream;
use crate::decode::Decoder;

#[test]
fn paths_are_put_together_and_names_remembered() {
    let mut decoder = Decoder::default();
    let mut first = Stream::default();
    first
        .cgroup(30, 20, Some("pod"))
        .cgroup(20, 1, Some("kubepods"))
        .cgroup(1, 0, Some(""));
    let (facts, nameless) = decoder.pass(first.0.bytes(), 0).expect("it is whole");
    let paths: Vec<_> = facts.cgroups.iter().map(|one| &*one.path).collect();
    assert_eq!(
        (paths, nameless),
        (vec!["/kubepods/pod", "/kubepods", "/"], 0)
    );
    assert_eq!(
        facts.cgroups[0].bandwidth.expect("it is there").quota_ns,
        None
    );

    let mut later = Stream::default();
    later
        .cgroup(30, 20, None)
        .cgroup(20, 1, None)
        .cgroup(1, 0, None)
        .cgroup(40, 1, None);
    let (facts, nameless) = decoder.pass(later.0.bytes(), 0).expect("it is whole");
    assert_eq!(
        (&*facts.cgroups[0].path, facts.cgroups.len()),
        ("/kubepods/pod", 3)
    );
    assert_eq!(
        nameless, 1,
        "40 was never named: the session must be renewed"
    );
}

#[test]
fn renamed_cgroup_changes_paths_below_it() {
    let mut decoder = Decoder::default();
    for name in ["old", "new"] {
        let mut stream = Stream::default();
        stream
            .cgroup(30, 20, Some("pod"))
            .cgroup(20, 1, Some(name))
            .cgroup(1, 0, Some(""));
        let (facts, _) = decoder.pass(stream.0.bytes(), 0).expect("it is whole");
        assert_eq!(&*facts.cgroups[0].path, format!("/{name}/pod"));
    }
}
