//! Loading with libbpf.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;

use libbpf_rs::{ErrorKind, MapCore as _, ObjectBuilder, PrintLevel};

use super::{Loaded, Wanted};

/// Loads what is wanted. libbpf keeps nothing of it: descriptors are the caller's own.
pub(super) fn load(wanted: &Wanted<'_>) -> io::Result<Loaded> {
    libbpf_rs::set_print(Some((PrintLevel::Debug, print)));
    let mut builder = ObjectBuilder::default();
    let mut open = builder
        .open_memory(wanted.object)
        .map_err(|error| said(&error))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let (Some((_, value)), true) = (wanted.constant, name.ends_with(".rodata")) {
            map.set_initial_value(value).map_err(|error| said(&error))?;
        }
        if wanted.unused_maps.contains(&name.as_str()) {
            map.set_autocreate(false).map_err(|error| said(&error))?;
        }
        if let Some((_, entries)) = wanted.max_entries.filter(|(of, _)| *of == name) {
            map.set_max_entries(entries).map_err(|error| said(&error))?;
        }
        if let Some(place) = wanted.pinned.get(&name) {
            map.reuse_pinned_map(place).map_err(|error| said(&error))?;
        }
    }
    let is_wanted = |name: &str| wanted.programs.contains_key(name);
    for mut program in open.progs_mut() {
        program.set_autoload(is_wanted(&program.name().to_string_lossy()));
    }
    let object = open.load().map_err(|error| said(&error))?;
    let mut loaded = Loaded {
        maps: BTreeMap::new(),
        programs: BTreeMap::new(),
    };
    for map in object.maps() {
        let name = map.name().to_string_lossy().into_owned();
        if !wanted.unused_maps.contains(&name.as_str()) {
            let copy = map.as_fd().try_clone_to_owned()?;
            loaded.maps.insert(name, copy);
        }
    }
    for program in object.progs() {
        let name = program.name().to_string_lossy().into_owned();
        if is_wanted(&name) {
            let copy = program.as_fd().try_clone_to_owned()?;
            loaded.programs.insert(name, copy);
        }
    }
    Ok(loaded)
}

fn said(error: &libbpf_rs::Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{error:#}"))
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature is libbpf-rs's"
)]
fn print(_: PrintLevel, text: String) {
    tracing::debug!(target: "libbpf", "{}", text.trim_end());
}
