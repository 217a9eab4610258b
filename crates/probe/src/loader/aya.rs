//! Loading with aya.

mod aya_compat;

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::Map;
use aya::programs::{Program, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};

use super::{Loaded, Wanted, reason};
use crate::sys;

/// Loads the wanted parts. aya owns none of the returned descriptors.
pub(super) fn load(wanted: &Wanted<'_>) -> io::Result<Loaded> {
    let loaded = load_all(wanted);
    // aya has read the kernel's types into about 30 MiB of small allocations.
    sys::give_back_heap();
    loaded
}

fn load_all(wanted: &Wanted<'_>) -> io::Result<Loaded> {
    let object = aya_compat::convert(wanted.object, wanted.unused_maps)?;
    let types = Btf::from_sys_fs().map_err(to_io_error)?;
    let mut loader = EbpfLoader::new();
    loader.btf(Some(&types)).allow_unsupported_maps();
    if let Some((name, value)) = wanted.constant {
        loader.override_global(name, value, true);
    }
    // aya creates each map of an object, also the unused ones.
    for name in wanted.unused_maps {
        loader.map_max_entries(name, 1);
    }
    if let Some((name, entries)) = wanted.max_entries {
        loader.map_max_entries(name, entries);
    }
    for (name, place) in wanted.pinned {
        loader.map_pin_path(name, place.as_path());
    }
    let mut ebpf = loader.load(&object).map_err(to_io_error)?;
    let mut loaded = Loaded {
        maps: BTreeMap::new(),
        programs: BTreeMap::new(),
    };
    for (name, program) in wanted.programs {
        let program = load_one(&mut ebpf, name, &program.target, &types)?;
        loaded.programs.insert((*name).to_owned(), program);
    }
    for (name, map) in ebpf.maps() {
        if !wanted.unused_maps.contains(&name) {
            loaded.maps.insert(name.to_owned(), descriptor(map)?);
        }
    }
    Ok(loaded)
}

fn load_one(ebpf: &mut Ebpf, name: &str, target: &str, types: &Btf) -> io::Result<OwnedFd> {
    let program = ebpf.program_mut(name).ok_or(io::ErrorKind::NotFound)?;
    let done = match program {
        Program::BtfTracePoint(one) => one.load(target, types),
        Program::FEntry(one) => one.load(target, types),
        Program::FExit(one) => one.load(target, types),
        Program::Iter(one) => one.load(target, types),
        Program::RawTracePoint(one) => one.load(),
        other => {
            return Err(io::Error::other(format!(
                "{name}: unsupported map type {:?}",
                other.prog_type()
            )));
        }
    };
    done.map_err(|error| refused(name, error))?;
    let loaded = program.fd().map_err(to_io_error)?;
    loaded.as_fd().try_clone_to_owned()
}

/// aya has a Rust type for each kind of map that it can read; this crate treats them
/// alike.
fn descriptor(map: &Map) -> io::Result<OwnedFd> {
    let data = match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuHashMap(data)
        | Map::RingBuf(data)
        | Map::Unsupported(data) => data,
        other => return Err(io::Error::other(format!("unsupported map: {other:?}"))),
    };
    data.fd().as_fd().try_clone_to_owned()
}

fn refused(name: &str, error: ProgramError) -> io::Error {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    else {
        return to_io_error(error);
    };
    let log = verifier_log.to_string();
    tracing::debug!(target: "aya", "{name}: {log}");
    let reason = reason(&log).map_or_else(String::new, |reason| format!(": {reason}"));
    io::Error::new(io_error.kind(), format!("{name}: {io_error}{reason}"))
}

/// Converts aya's error to text, with the kind of the kernel's error if that is its
/// cause.
fn to_io_error(error: impl Error + 'static) -> io::Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    let mut kind = io::ErrorKind::Other;
    while let Some(error) = cause {
        kind = error.downcast_ref().map_or(kind, io::Error::kind);
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    io::Error::new(kind, text)
}
