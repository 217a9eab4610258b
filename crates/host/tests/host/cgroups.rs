use virtlens_host::{CgroupVersion, Cgroups, Error, parse_process_cgroup};
use virtlens_model::facts::Bandwidth;

use crate::tree::{THREAD, Thread, Tree};

const HALF_A_CPU: Bandwidth = Bandwidth {
    quota_ns: Some(50_000_000),
    period_ns: 100_000_000,
    burst_ns: Some(2_000_000),
    periods: 10,
    throttled_periods: 3,
    throttled_ns: 7000,
};

#[test]
fn cgroup_version_is_that_of_cpu_controller() {
    assert_eq!(Tree::v1().cgroups().version(), CgroupVersion::V1);
    assert_eq!(Tree::v2().cgroups().version(), CgroupVersion::V2);
    assert_eq!(Tree::hybrid().cgroups().version(), CgroupVersion::V1);
    // v1 for every controller except cpu.
    let mounts = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        36 31 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
        41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let tree = Tree::with_mounts(CgroupVersion::V2, mounts);
    assert_eq!(tree.cgroups().version(), CgroupVersion::V2);
}

#[test]
fn missing_cgroups_error_names_mount() {
    let named = "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";
    for mounts in ["", "27 1 254:0 / / rw - ext4 /dev/vda rw\n", named] {
        let tree = Tree::with_mounts(CgroupVersion::V2, mounts);
        let error = Cgroups::find(&tree.root()).expect_err("nothing mounted");
        assert!(matches!(error, Error::NotMounted { .. }));
        assert!(error.to_string().contains("mount cgroup2"), "{error}");
    }
}

#[test]
fn bandwidth_and_usage_of_v1_and_v2_are_alike() {
    for tree in [Tree::v1(), Tree::v2(), Tree::hybrid()] {
        tree.cgroup("/kubepods/pod1");
        let cgroups = tree.cgroups();
        assert_eq!(
            cgroups.bandwidth("/kubepods/pod1").expect("files"),
            Some(HALF_A_CPU)
        );
        assert_eq!(cgroups.bandwidth("/").expect("the root"), None);
        assert_eq!(cgroups.usage_ns("/kubepods/pod1").expect("files"), 9000);
        assert_eq!(cgroups.usage_ns("/").expect("files"), 9000);
    }
}

#[test]
fn cgroup_without_burst_file_or_limit_is_read() {
    let v1 = Tree::v1();
    v1.cgroup("/a");
    v1.remove(&(v1.cgroup_dir("/a") + "/cpu.cfs_burst_us"));
    v1.write(&(v1.cgroup_dir("/a") + "/cpu.cfs_quota_us"), "-1\n");
    let unlimited = Bandwidth {
        quota_ns: None,
        burst_ns: None,
        ..HALF_A_CPU
    };
    assert_eq!(
        v1.cgroups().bandwidth("/a").expect("files"),
        Some(unlimited)
    );

    // The parent does not delegate the cpu controller.
    let v2 = Tree::v2();
    v2.cgroup("/a");
    v2.remove(&(v2.cgroup_dir("/a") + "/cpu.max"));
    v2.write(&(v2.cgroup_dir("/a") + "/cpu.stat"), "usage_usec 9\n");
    assert_eq!(v2.cgroups().bandwidth("/a").expect("a cgroup"), None);
    assert_eq!(v2.cgroups().usage_ns("/a").expect("files"), 9000);
}

#[test]
fn missing_and_invalid_files_are_distinct_errors() {
    for tree in [Tree::v1(), Tree::v2()] {
        tree.cgroup("/a");
        tree.write(&(tree.cgroup_dir("/a") + "/cpu.stat"), "nr_periods many\n");
        let cgroups = tree.cgroups();
        let odd = cgroups.bandwidth("/a").expect_err("no number");
        assert!(matches!(odd, Error::Unparsable { .. }), "{odd}");
        assert!(odd.to_string().contains("cpu.stat"), "{odd}");
        assert!(cgroups.bandwidth("/b").expect_err("no cgroup").is_gone());
        assert!(cgroups.members("/b", 9).expect_err("no cgroup").is_gone());
        assert_eq!(cgroups.id_of("/b"), None);
        assert_eq!(cgroups.id_of("/a/../a"), None);
        assert_eq!(cgroups.id_of("/a/cpu.stat"), None);
    }
}

#[test]
fn usage_is_read_from_separate_cpuacct_mount() {
    let cpu = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu\n";
    let tree = Tree::with_mounts(CgroupVersion::V1, cpu);
    let error = tree.cgroups().usage_ns("/").expect_err("no cpuacct");
    assert!(error.to_string().contains("cpuacct controller"), "{error}");
    let acct = "33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n";
    let tree = Tree::with_mounts(CgroupVersion::V1, &format!("{cpu}{acct}"));
    tree.write("sys/fs/cgroup/cpuacct/a/cpuacct.usage", "77\n");
    assert_eq!(tree.cgroups().usage_ns("/a").expect("its own mount"), 77);
}

#[test]
fn cgroup_ids_resolve_to_paths() {
    for tree in [Tree::v1(), Tree::v2()] {
        tree.cgroup("/a/b/c");
        tree.cgroup("/d");
        let cgroups = tree.cgroups();
        for path in ["/", "/a", "/a/b/c", "/d"] {
            assert_eq!(cgroups.path_of(tree.id(path)).as_deref(), Some(path));
        }
        let gone = tree.id("/d");
        tree.remove(&tree.cgroup_dir("/d"));
        assert_eq!(cgroups.path_of(gone), None);
    }
}

#[test]
fn process_is_located_in_its_cpu_cgroup() {
    let kata = "/kubepods-burstable-pod1.slice:cri-containerd:abc";
    for tree in [Tree::v1(), Tree::v2(), Tree::hybrid()] {
        tree.cgroup(kata);
        tree.thread(Thread {
            tgid: 7,
            tid: 7,
            cgroup: kata,
            ..THREAD
        });
        assert_eq!(tree.cgroups().process_path(7).expect("a process"), kata);
        assert!(tree.cgroups().process_path(8).expect_err("none").is_gone());
    }
}

#[test]
fn a_removed_cgroup_keeps_its_path() {
    let v2 = parse_process_cgroup(b"1:name=x:/y\n0::/a b (deleted)\n", CgroupVersion::V2);
    assert_eq!(v2.as_deref(), Some("/a b"));
    assert_eq!(parse_process_cgroup(b"0::/a\n", CgroupVersion::V1), None);
    assert_eq!(
        parse_process_cgroup(b"4:cpuset:/a\n", CgroupVersion::V1),
        None
    );
    assert_eq!(parse_process_cgroup(b"\xff", CgroupVersion::V2), None);
}

/// A reader two levels down, in its own cgroup namespace, with the host's hierarchy
/// mounted.
#[test]
fn paths_seen_from_a_namespace_are_made_absolute() {
    let mounts = "30 23 0:28 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let tree = Tree::with_mounts(CgroupVersion::V2, mounts);
    tree.cgroup("/kubepods/agent");
    tree.write(
        &(tree.cgroup_dir("/kubepods/agent") + "/cgroup.procs"),
        "41\n42\n",
    );
    tree.remove("proc/self");
    tree.link("proc/self", b"42");
    tree.write("proc/42/mountinfo", mounts);
    tree.write("proc/42/cgroup", "0::/\n");
    tree.cgroup("/kubepods/pod1");
    let cgroups = tree.cgroups();
    for (named, path) in [
        ("/../../system.slice", "/system.slice"),
        ("/../pod1", "/kubepods/pod1"),
        ("/", "/kubepods/agent"),
        ("/own", "/kubepods/agent/own"),
        ("/../..", "/"),
        ("/..", "/kubepods"),
        ("/..hidden", "/kubepods/agent/..hidden"),
    ] {
        tree.write("proc/9/cgroup", format!("0::{named}\n"));
        assert_eq!(cgroups.process_path(9).expect(named), path);
    }
    tree.write("proc/9/cgroup", "0::/../../../x\n");
    let error = cgroups.process_path(9).expect_err("above the mount");
    assert!(matches!(error, Error::OutsideMount { .. }), "{error}");
}

#[test]
fn widest_of_two_cgroup_mounts_is_used() {
    let own = "30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let part = "31 23 0:28 /a /part rw - cgroup2 cgroup2 rw\n";
    let host = "32 23 0:28 /../.. /host/sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let whole = |mounts: &[&str]| {
        let tree = Tree::with_mounts(CgroupVersion::V2, &mounts.concat());
        for (dir, name) in [
            ("sys/fs/cgroup", "own"),
            ("part", "part"),
            ("host/sys/fs/cgroup", "host"),
        ] {
            tree.mkdir(&format!("{dir}/{name}"));
        }
        let names = ["/own", "/a/part", "/host"];
        let cgroups = tree.cgroups();
        names.map(|name| cgroups.id_of(name).is_some())
    };
    assert_eq!(whole(&[part, own]), [true, false, false]);
    assert_eq!(whole(&[own, part, host]), [false, false, true]);
}

/// A wrong path would be worse than none.
#[test]
fn unknown_cgroup_namespace_is_an_error() {
    let mounts = "30 23 0:28 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let tree = Tree::with_mounts(CgroupVersion::V2, mounts);
    tree.cgroup("/deep/er");
    tree.write(&(tree.cgroup_dir("/deep/er") + "/cgroup.procs"), "42\n");
    tree.remove("proc/self");
    tree.link("proc/self", b"42");
    tree.write("proc/42/mountinfo", mounts);
    tree.write("proc/42/cgroup", "0::/\n");
    let cgroups = tree.cgroups();
    assert!(cgroups.process_path(42).is_err());
    tree.write("proc/9/cgroup", "0::/../x\n");
    assert_eq!(cgroups.process_path(9).expect("outside the mount"), "/x");
}

/// The same reader, with only its own part of the hierarchy mounted.
#[test]
fn cgroups_outside_of_the_mount_are_refused() {
    let tree = Tree::v2();
    tree.write("proc/9/cgroup", "0::/../pod1\n");
    let error = tree.cgroups().process_path(9).expect_err("above the mount");
    assert!(
        error.to_string().contains("host's cgroup namespace"),
        "{error}"
    );
}

#[test]
fn partial_cgroup_mount_keeps_full_paths() {
    let mounts = "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu\n";
    let tree = Tree::with_mounts(CgroupVersion::V1, mounts);
    tree.cgroup("/inner");
    let cgroups = tree.cgroups();
    let inner = cgroups
        .id_of("/docker/abc/inner")
        .expect("outside the mount");
    assert_eq!(cgroups.path_of(inner).as_deref(), Some("/docker/abc/inner"));
    assert_eq!(
        cgroups.bandwidth("/docker/abc/inner").expect("files"),
        Some(HALF_A_CPU)
    );
    for outside in ["/", "/docker", "/docker/abcd", "/inner"] {
        assert_eq!(cgroups.id_of(outside), None, "{outside}");
    }
}

#[test]
fn members_are_all_threads_of_subtree() {
    for tree in [Tree::v1(), Tree::v2()] {
        for (cgroup, tids) in [
            ("/a", "1\n2\n"),
            ("/a/b", "0\n3\n"),
            ("/a/b/c", "2\n4\n"),
            ("/d", "5\n"),
        ] {
            tree.cgroup(cgroup);
            tree.write(&tree.thread_list(cgroup), tids);
        }
        let members = tree.cgroups().members("/a", 100).expect("a cgroup");
        assert_eq!(members.tids, [1, 2, 3, 4]);
        // Tid 0 is a thread outside this pid namespace.
        assert_eq!(members.losses.denied, 1);
        let few = tree.cgroups().members("/a", 2).expect("a cgroup");
        assert_eq!(few.tids.len(), 2);
        assert!(few.losses.over_limit > 0);
    }
}

#[test]
fn cgroup_with_non_utf8_name_is_counted() {
    use std::os::unix::ffi::OsStrExt;
    let tree = Tree::v2();
    tree.cgroup("/a");
    let odd = tree
        .path(&tree.cgroup_dir("/a"))
        .join(std::ffi::OsStr::from_bytes(b"\xff"));
    std::fs::create_dir(odd).expect("a directory");
    let members = tree.cgroups().members("/a", 9).expect("a cgroup");
    assert_eq!((members.tids.len(), members.losses.unparsed), (0, 1));
}

#[test]
fn process_has_cpuset_of_nearest_cgroup() {
    let pod = "/kubepods/pod1";
    for (tree, mount, file) in [
        (Tree::v1(), "sys/fs/cgroup/cpuset", "cpuset.effective_cpus"),
        (Tree::v2(), "sys/fs/cgroup", "cpuset.cpus.effective"),
    ] {
        tree.write(&format!("{mount}{pod}/{file}"), "2-3,8\n");
        tree.mkdir(&format!("{mount}{pod}/container"));
        tree.write("proc/7/cpuset", format!("{pod}/container\n"));
        let cpuset = tree.cgroups().cpuset(&[7]).expect("the pod has one");
        assert_eq!(cpuset.to_string(), "2-3,8");
        assert_eq!(tree.cgroups().cpuset(&[8]), None, "no such process");
        tree.write(&format!("{mount}{pod}/container/{file}"), "8\n");
        let cpuset = tree.cgroups().cpuset(&[7]).expect("the container has one");
        assert_eq!(cpuset.to_string(), "8");
    }
}

/// libvirt: a pinned cgroup for each vCPU, and one for the emulator.
#[test]
fn cpuset_of_vcpus_in_separate_cgroups_is_the_union() {
    let tree = Tree::v2();
    let vm = "/machine.slice/vm.scope/libvirt";
    for (tid, name, cpus) in [(7, "vcpu0", "0"), (8, "vcpu1", "2"), (9, "vcpu2", "4-5")] {
        tree.write(&format!("proc/{tid}/cpuset"), format!("{vm}/{name}\n"));
        let file = format!("sys/fs/cgroup{vm}/{name}/cpuset.cpus.effective");
        tree.write(&file, format!("{cpus}\n"));
    }
    let cpuset = |tids: &[u32]| tree.cgroups().cpuset(tids).map(|set| set.to_string());
    assert_eq!(cpuset(&[7, 8, 9]).as_deref(), Some("0,2,4-5"));
    assert_eq!(cpuset(&[7, 1000]).as_deref(), Some("0"), "one is gone");
    assert_eq!(cpuset(&[1000, 9]).as_deref(), Some("4-5"));
    assert_eq!(cpuset(&[]), None);
}
