use super::{Feature, plan, trace_obstacle};
use crate::facts::KernelFacts;

fn good() -> KernelFacts {
    KernelFacts {
        may_load: true,
        bpf_filtered: false,
        btf: true,
        lockdown: "none".to_owned(),
        preempt_notifiers: true,
        kvm_types: true,
        kvm_types_in_module: false,
        may_read_modules: true,
        kvm_built_in: true,
        task_iter: true,
        task_storage: true,
        host_pids: true,
        possible_cpus: 2,
        cpu_numbers: 2,
        online_cpus: 2,
        fentry: true,
        read_ahead: true,
        task_walk: true,
        pit_worker: Some(600),
        vhost: None,
        throttle_functions: true,
        ring_sleeps: false,
    }
}

#[test]
fn kernel_with_all_types_loads_all_programs() {
    let plan = plan(&good());
    assert_eq!(plan.features, Feature::ALL);
    assert!(plan.left_out.is_empty() && plan.task_storage && plan.walks);
    let programs: Vec<_> = plan.programs().collect();
    assert!(programs.contains(&"walk_tasks") && !programs.contains(&"sample_tasks"));
    assert_eq!(plan.mask_words, 1);
}

#[test]
fn unwanted_feature_is_neither_planned_nor_reported() {
    let without_fentry = KernelFacts {
        fentry: false,
        ..good()
    };
    let wanted = [Feature::TaskPass, Feature::Rename, Feature::Memory];
    let plan = plan(&without_fentry).limited_to(&wanted);
    assert_eq!(plan.features, [Feature::TaskPass, Feature::Rename]);
    let left_out: Vec<_> = plan.left_out.iter().map(|(one, _)| *one).collect();
    assert_eq!(left_out, [Feature::Memory]);
}

#[test]
fn kernel_without_task_storage_keeps_thread_states_in_hash() {
    let plan = plan(&KernelFacts {
        task_storage: false,
        ..good()
    });
    assert_eq!(plan.features, Feature::ALL);
    assert!(!plan.task_storage);
}

#[test]
fn iterator_walks_tasks_where_no_program_can() {
    let plan = plan(&KernelFacts {
        task_walk: false,
        ..good()
    });
    assert_eq!(plan.features, Feature::ALL);
    let programs: Vec<_> = plan.programs().collect();
    assert!(!programs.contains(&"walk_tasks") && programs.contains(&"sample_tasks"));
}

#[test]
fn masks_grow_with_the_host_and_end_at_the_bound() {
    for (cpus, words) in [(0, 0), (64, 1), (65, 2), (2048, 32), (2049, 0)] {
        assert_eq!(
            plan(&KernelFacts {
                cpu_numbers: cpus,
                ..good()
            })
            .mask_words,
            words
        );
    }
}

#[test]
fn residency_grows_with_the_host_and_ends_at_the_bound() {
    for (cpus, entries) in [
        (0, 4096),
        (2, 8192),
        (32, 131_072),
        (128, 131_072),
        (256, 262_144),
        (512, 524_288),
        (usize::MAX, 524_288),
    ] {
        let facts = KernelFacts {
            possible_cpus: cpus,
            ..good()
        };
        assert_eq!(plan(&facts).residency_entries, entries);
    }
}

#[test]
fn rss_error_grows_with_the_square_of_many_cpus() {
    const MIB: u64 = 1 << 20;
    let expected = [
        (2, MIB / 4),
        (16, 2 * MIB),
        (64, 32 * MIB),
        (256, 512 * MIB),
    ];
    for (online_cpus, bytes) in expected {
        let facts = KernelFacts {
            online_cpus,
            ..good()
        };
        assert_eq!(plan(&facts).rss_error_bytes, bytes, "{online_cpus} CPUs");
    }
}

#[test]
fn each_obstacle_is_named_with_its_remedy() {
    let cases = [
        (
            KernelFacts {
                may_load: false,
                ..good()
            },
            "CAP_BPF",
        ),
        (
            KernelFacts {
                bpf_filtered: true,
                ..good()
            },
            "seccomp",
        ),
        (
            KernelFacts {
                btf: false,
                ..good()
            },
            "CONFIG_DEBUG_INFO_BTF",
        ),
        (
            KernelFacts {
                lockdown: "confidentiality".to_owned(),
                ..good()
            },
            "lockdown",
        ),
        (
            KernelFacts {
                host_pids: false,
                ..good()
            },
            "hostPID",
        ),
        (
            KernelFacts {
                task_iter: false,
                ..good()
            },
            "5.8",
        ),
        (
            KernelFacts {
                kvm_types: false,
                ..good()
            },
            "KVM",
        ),
        (
            KernelFacts {
                kvm_types: false,
                kvm_types_in_module: true,
                ..good()
            },
            "libbpf",
        ),
    ];
    for (facts, word) in cases {
        let plan = plan(&facts);
        assert!(plan.features.is_empty(), "{word}");
        assert!(
            plan.left_out
                .iter()
                .all(|(_, reason)| reason.contains(word)),
            "{word}"
        );
        assert_eq!(plan.left_out.len(), Feature::ALL.len());
    }
}

#[test]
fn without_fentry_only_what_needs_it_is_left_out() {
    let left_out = |facts: KernelFacts, word: &str| -> Vec<Feature> {
        let plan = plan(&facts);
        let reasons = plan.left_out.iter().map(|(_, reason)| reason);
        assert!(reasons.into_iter().all(|reason| reason.contains(word)));
        plan.left_out.iter().map(|(feature, _)| *feature).collect()
    };
    let without_fentry = KernelFacts {
        fentry: false,
        ..good()
    };
    assert_eq!(
        left_out(without_fentry, "fentry"),
        [Feature::Throttle, Feature::Memory]
    );
    let without_limits = KernelFacts {
        throttle_functions: false,
        ..good()
    };
    assert_eq!(
        left_out(without_limits, "CONFIG_CFS_BANDWIDTH"),
        [Feature::Throttle]
    );
}

#[test]
fn sleeping_ring_buffer_refuses_a_trace_and_nothing_else() {
    let facts = KernelFacts {
        ring_sleeps: true,
        ..good()
    };
    let reason = trace_obstacle(&facts).expect("no trace");
    assert!(reason.contains("CVE-2024-50138"), "{reason}");
    assert_eq!(plan(&facts).features, Feature::ALL);
    assert_eq!(trace_obstacle(&good()), None);
}

#[test]
fn integrity_lockdown_hinders_nothing() {
    let facts = KernelFacts {
        lockdown: "integrity".to_owned(),
        ..good()
    };
    assert_eq!(plan(&facts).features, Feature::ALL);
}
