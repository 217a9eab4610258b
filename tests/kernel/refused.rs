//! BPF objects of which the kernel rejects one program: only the feature of that program
//! is lost.

use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _};
use virtlens_probe::facts::KernelFacts;
use virtlens_probe::loader::Loader;
use virtlens_probe::plan::{Plan, plan};
use virtlens_probe::source::TaskPass;
use virtlens_probe::trace::{self, Tracer};
use virtlens_probe::{Error, OBJECT};
use virtlens_tests::need;

/// `BPF_JMP | BPF_EXIT`, `include/uapi/linux/bpf.h`.
const EXIT: u8 = 0x95;
const INSTRUCTION: usize = 8;

/// The object with one program that every verifier rejects: an exit with a value in a
/// field that this instruction reserves (`BPF_EXIT uses reserved fields`).
fn without(object: &[u8], program: &str) -> Vec<u8> {
    let elf = ElfFile64::<Endianness>::parse(object).expect("an object");
    let symbol = elf.symbol_by_name(program).expect(program);
    let section = symbol.section_index().expect("it has a section");
    let section = elf.section_by_index(section).expect("its section");
    let (begin, _) = section.file_range().expect("it is in the file");
    let from = usize::try_from(begin + symbol.address()).expect("a place");
    let until = from + usize::try_from(symbol.size()).expect("a size");
    let mut broken = object.to_vec();
    let mut instructions = broken[from..until].chunks_exact_mut(INSTRUCTION);
    let exit = instructions.find(|one| one[0] == EXIT);
    exit.expect("a program ends")[4] = 1;
    broken
}

fn whole() -> (KernelFacts, Plan) {
    let facts = KernelFacts::probe(Path::new("/"));
    let plan = plan(&facts);
    (facts, plan)
}

fn load(object: &[u8], loader: Loader) -> Result<Plan, Error> {
    let (_, plan) = whole();
    TaskPass::load_object(object, Path::new("/"), loader, plan, false, None)
        .map(|pass| pass.plan().clone())
}

#[track_caller]
fn assert_named(reason: &str, program: &str) {
    let names = [program, "BPF_EXIT uses reserved fields"];
    assert!(names.iter().all(|name| reason.contains(name)), "{reason}");
}

#[test]
fn refused_program_costs_its_feature_alone_with_each_loader() {
    if !need::all(
        "refused_program_costs_its_feature_alone_with_each_loader",
        [need::root(), need::bpf()],
    ) {
        return;
    }
    for loader in Loader::ALL {
        let before = load(OBJECT, *loader).expect("a pass");
        println!("{loader}: {:?}", before.features);
        for feature in before.features.iter().skip(1) {
            for program in before.programs_of(*feature) {
                let after = load(&without(OBJECT, program), *loader).expect(program);
                let known = before.left_out.len();
                let [(lost, reason)] = &after.left_out[known..] else {
                    panic!("{loader}, {program}: {:?}", after.left_out);
                };
                println!("{loader}: {}: {reason}", lost.name());
                assert_eq!(lost, feature);
                assert_named(reason, program);
                let kept = before.features.iter().filter(|one| *one != feature);
                assert!(kept.eq(&after.features), "{:?}", after.features);
                assert_eq!(after.walks, before.walks);
                assert_eq!(after.task_storage, before.task_storage);
            }
        }
    }
}

#[test]
fn refused_walk_costs_the_walk_alone() {
    if !need::all(
        "refused_walk_costs_the_walk_alone",
        [need::root(), need::bpf()],
    ) {
        return;
    }
    let loader = Loader::default();
    let before = load(OBJECT, loader).expect("a pass");
    let walks = need::that("task_walk", before.walks, "the kernel is older than v6.9");
    if !need::all("refused_walk_costs_the_walk_alone", [walks]) {
        return;
    }
    let after = load(&without(OBJECT, "walk_tasks"), loader).expect("a pass");
    assert!(!after.walks && after.task_storage == before.task_storage);
    assert_eq!(after.features, before.features);
}

#[test]
fn refused_task_pass_is_an_error_with_its_reason() {
    if !need::all(
        "refused_task_pass_is_an_error_with_its_reason",
        [need::root(), need::bpf()],
    ) {
        return;
    }
    let broken = without(&without(OBJECT, "sample_tasks"), "walk_tasks");
    for loader in Loader::ALL {
        let error = load(&broken, *loader).expect_err("no pass");
        assert_named(&error.to_string(), "sample_tasks");
    }
}

#[test]
fn refused_program_costs_its_part_of_a_trace_alone() {
    if !need::all(
        "refused_program_costs_its_part_of_a_trace_alone",
        [need::root(), need::bpf()],
    ) {
        return;
    }
    let lacks = |program: Option<&str>, loader| {
        let broken = program.map(|program| without(trace::OBJECT, program));
        let object = broken.as_deref().unwrap_or(trace::OBJECT);
        let tracer = Tracer::load_object(object, loader, &whole().0).expect("states");
        tracer.lacks().to_vec()
    };
    for loader in Loader::ALL {
        let before = lacks(None, *loader);
        let after = lacks(Some("trace_to_vmm"), *loader);
        let new: Vec<_> = after.iter().filter(|lack| !before.contains(lack)).collect();
        assert_eq!(new.len(), 1, "{after:?}");
        assert_eq!(new[0].what, "guest time of vCPUs");
        assert_named(&new[0].reason, "trace_to_vmm");
        assert_eq!(lacks(Some("trace_exit_of_3"), *loader), before);
        let throttle = lacks(Some("trace_throttle"), *loader);
        assert_eq!(throttle.len(), 1, "{throttle:?}");
        assert!(
            throttle[0].what.starts_with("throttling of"),
            "{throttle:?}"
        );
        let broken = without(trace::OBJECT, "trace_switch");
        let error = Tracer::load_object(&broken, *loader, &whole().0);
        let error = error.err().expect("nothing to trace");
        assert_named(&error.to_string(), "trace_switch");
    }
}
