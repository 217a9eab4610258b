//! Rust mirror of `bpf/abi.h` and the other headers `bpf/*_abi.h`, the only interface
//! between the BPF programs and the agent: the same names in the same order. The headers
//! document the fields.
//!
//! [`record`] mirrors `bpf/record_abi.h`, [`map`] `bpf/map_abi.h`, [`memory`]
//! `bpf/memory_abi.h` and [`trace`] `bpf/trace_abi.h`.
//!
//! `STRUCTS` and `ENUMERATORS` of each module list the layout of its mirror; a test compares
//! them with the type information of the compiled headers.

#![forbid(unsafe_code)]

/// Value of a field that this kernel does not provide.
pub const UNKNOWN: u64 = u64::MAX;
/// Size of a thread's name with its NUL, bytes.
pub const COMM_LEN: usize = 16;
/// The longest affinity mask, in 64-bit words.
pub const MASK_WORDS_MAX: usize = 32;

/// A field of a struct: its name, offset and size in bytes.
pub type Field = (&'static str, usize, usize);

/// The layout of one struct in this mirror.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The struct's name in the header.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields, in order.
    pub fields: &'static [Field],
}

/// Declares the structs once: as Rust types, and as [`Layout`]s.
macro_rules! mirror {
    ($($(#[$doc:meta])* $c:ident => $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[allow(missing_docs, reason = "the fields are documented in the header")]
            #[repr(C)]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            #[derive(zerocopy::FromBytes, zerocopy::IntoBytes)]
            #[derive(zerocopy::KnownLayout, zerocopy::Immutable)]
            pub struct $name { $(pub $field: $type,)* }
        )*

        /// Every struct of the interface.
        pub const STRUCTS: &[$crate::Layout] = &[$($crate::Layout {
            name: stringify!($c),
            size: size_of::<$name>(),
            fields: &[$((
                stringify!($field),
                std::mem::offset_of!($name, $field),
                size_of::<$type>(),
            ),)*],
        },)*];
    };
}

/// Declares the enumerators once: as constants, and as `ENUMERATORS`.
macro_rules! enumerators {
    ($($(#[$doc:meta])* $name:ident = $value:expr,)*) => {
        $($(#[$doc])* pub const $name: u32 = $value;)*

        /// Every enumerator of the interface: its name and value.
        pub const ENUMERATORS: &[(&str, u32)] = &[$((stringify!($name), $name),)*];
    };
}

pub mod map;
pub mod memory;
pub mod record;
pub mod trace;

mirror! {
    /// `struct config`: set once before the programs are loaded.
    config => Config {
        cgroup_v1: u32,
        mask_words: u32,
        task_storage: u32,
        walks: u32,
        states_complete: u32,
        pit_worker: u32,
        rss_error_bytes: u64,
        programs: u64,
    }
    /// `struct walk`: position of a pass in the task list.
    walk => Walk {
        tid: u32,
        former_threads: u32,
        start_ns: u64,
        seen: u64,
    }
    /// `struct control`: set before each pass.
    control => Control {
        session: u64,
        pass: u64,
        epoch: u32,
        watched: u32,
        after_files: u32,
        shown_pass: u32,
        shown_ns: u64,
        begun_ns: u64,
        all_threads: u32,
        halts: u32,
    }
    /// `struct owner`: the owner of a thread.
    owner => Owner {
        id: u64,
        tgid: u32,
        pad: u32,
    }
}
