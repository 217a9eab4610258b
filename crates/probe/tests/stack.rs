//! Stack depth of each program: the stack that its functions use along the deepest call
//! path. Read from the objects, so it holds for every kernel: a verifier can only remove
//! code.

use std::collections::BTreeMap;

use object::read::elf::ElfFile64;
use object::{
    Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex,
    SectionKind, SymbolKind,
};
use virtlens_probe::{OBJECT, trace};

/// Bytes that the x86 JIT saves per frame: the return address, and at most six registers
/// (`emit_prologue`, `arch/x86/net/bpf_jit_comp.c`, v5.10 to v7.3).
const SAVED_BYTES: usize = 7 * 8;

/// Maximum stack of a program that is attached to a hook, bytes. A thread has 16 KiB, and
/// the code that calls these programs has already used part of it.
const HOOK_BYTES: usize = 512;
/// Maximum stack of a pass, which a system call of the agent starts, bytes.
const PASS_BYTES: usize = 768;

fn bound(section: &str) -> usize {
    let is_pass = section.starts_with("iter/") || section == "syscall";
    if is_pass { PASS_BYTES } else { HOOK_BYTES }
}

/// The location of a function.
type Place = (usize, u64);

#[derive(Debug, Default)]
struct Function {
    name: String,
    kept_bytes: usize,
    calls: Vec<Place>,
}

type Functions = BTreeMap<Place, Function>;

/// One instruction (`struct bpf_insn`, include/uapi/linux/bpf.h).
struct Instruction {
    code: u8,
    to: u8,
    from: u8,
    offset: i16,
    number: i32,
}

impl Instruction {
    fn read(bytes: &[u8]) -> Self {
        Self {
            code: bytes[0],
            to: bytes[1] & 15,
            from: bytes[1] >> 4,
            offset: i16::from_le_bytes([bytes[2], bytes[3]]),
            number: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// Distance below the frame pointer that it reads or writes, bytes.
    fn reach(&self) -> usize {
        const FRAME: u8 = 10;
        // BPF_LDX; BPF_ST, BPF_STX
        let base = match self.code & 7 {
            1 => self.from,
            2 | 3 => self.to,
            _ => return 0,
        };
        let below = -i32::from(self.offset);
        usize::try_from(below).map_or(0, |below| if base == FRAME { below } else { 0 })
    }

    /// `to = r10`.
    fn is_address_of_frame(&self) -> bool {
        self.code == 0xbf && self.from == 10
    }

    /// `to += number`.
    fn is_addition(&self) -> bool {
        self.code == 0x07
    }

    /// A call of another function (`BPF_PSEUDO_CALL`).
    fn is_call(&self) -> bool {
        self.code == 0x85 && self.from == 1
    }
}

fn functions(object: &[u8]) -> Functions {
    let elf = ElfFile64::<Endianness>::parse(object).expect("an object");
    let mut functions = Functions::new();
    for symbol in elf.symbols().filter(|one| one.kind() == SymbolKind::Text) {
        let Some(index) = symbol.section_index() else {
            continue;
        };
        let section = elf.section_by_index(index).expect("its section");
        let code = section.data().expect("code");
        let begin = usize::try_from(symbol.address()).expect("a place");
        let size = usize::try_from(symbol.size()).expect("a size");
        let relocations: BTreeMap<u64, _> = section.relocations().collect();
        let mut function = Function {
            name: symbol.name().expect("a name").to_owned(),
            ..Function::default()
        };
        let mut of_frame = None;
        for at in (begin..begin + size).step_by(8) {
            let one = Instruction::read(&code[at..at + 8]);
            let below = match of_frame.take() {
                Some(register) if one.is_addition() && one.to == register => {
                    usize::try_from(-one.number).unwrap_or(0)
                }
                _ => one.reach(),
            };
            function.kept_bytes = function.kept_bytes.max(below);
            of_frame = one.is_address_of_frame().then_some(one.to);
            if one.is_call() {
                let from = relocations
                    .get(&(at as u64))
                    .map(object::Relocation::target);
                function
                    .calls
                    .extend(called(&elf, (index.0, at), one.number, from));
            }
        }
        functions.insert((index.0, symbol.address()), function);
    }
    functions
}

/// Returns the called function: by its symbol, by its offset in a section, or by a
/// relative offset. `None` for kernel functions.
fn called(
    elf: &ElfFile64<'_, Endianness>,
    from: (usize, usize),
    number: i32,
    target: Option<RelocationTarget>,
) -> Option<Place> {
    let ahead = i64::from(number) + 1;
    let Some(RelocationTarget::Symbol(symbol)) = target else {
        let place = i64::try_from(from.1).expect("small") + 8 * ahead;
        return Some((from.0, u64::try_from(place).expect("a place")));
    };
    let symbol = elf.symbol_by_index(symbol).expect("a symbol");
    let place = i64::try_from(symbol.address()).expect("small") + 8 * ahead;
    Some((
        symbol.section_index()?.0,
        u64::try_from(place).expect("a place"),
    ))
}

/// Returns the stack used from this function on, and the deepest call path.
fn deepest(functions: &Functions, at: Place) -> (usize, Vec<String>) {
    let function = &functions[&at];
    let below = function.calls.iter().map(|call| deepest(functions, *call));
    let (bytes, mut way) = below.max().unwrap_or_default();
    way.insert(0, format!("{} {}", function.name, function.kept_bytes));
    // Frames are multiples of 8 bytes.
    (
        bytes + function.kept_bytes.next_multiple_of(8) + SAVED_BYTES,
        way,
    )
}

#[test]
fn each_program_is_below_the_bound_of_the_kernel_stack() {
    let mut seen = 0;
    for object in [OBJECT, trace::OBJECT] {
        let elf = ElfFile64::<Endianness>::parse(object).expect("an object");
        let functions = functions(object);
        for (place, function) in &functions {
            let section = elf
                .section_by_index(SectionIndex(place.0))
                .expect("its section");
            assert_eq!(section.kind(), SectionKind::Text);
            let section = section.name().expect("a name");
            if section == ".text" {
                continue;
            }
            let (bytes, way) = deepest(&functions, *place);
            println!("| `{}` | {bytes} | {} |", function.name, way.join(", "));
            assert!(
                bytes <= bound(section),
                "{}: {bytes} B by {way:?}",
                function.name
            );
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} programs");
}
