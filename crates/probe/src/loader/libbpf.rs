//! Loading with libbpf.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;

use libbpf_rs::{ErrorKind, MapCore as _, ObjectBuilder, PrintLevel};

use super::{Loaded, Wanted, reason};

thread_local! {
    /// The last rejected program and the reason, which libbpf reports only in its log.
    static REFUSED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Loads the wanted parts. libbpf owns none of the returned descriptors.
pub(super) fn load(wanted: &Wanted<'_>) -> io::Result<Loaded> {
    libbpf_rs::set_print(Some((PrintLevel::Debug, print)));
    let mut builder = ObjectBuilder::default();
    let mut open = builder
        .open_memory(wanted.object)
        .map_err(|error| to_io_error(&error))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let (Some((_, value)), true) = (wanted.constant, name.ends_with(".rodata")) {
            map.set_initial_value(value)
                .map_err(|error| to_io_error(&error))?;
        }
        if wanted.unused_maps.contains(&name.as_str()) {
            map.set_autocreate(false)
                .map_err(|error| to_io_error(&error))?;
        }
        if let Some((_, entries)) = wanted.max_entries.filter(|(of, _)| *of == name) {
            map.set_max_entries(entries)
                .map_err(|error| to_io_error(&error))?;
        }
        if let Some(place) = wanted.pinned.get(&name) {
            map.reuse_pinned_map(place)
                .map_err(|error| to_io_error(&error))?;
        }
    }
    let is_wanted = |name: &str| wanted.programs.contains_key(name);
    for mut program in open.progs_mut() {
        program.set_autoload(is_wanted(&program.name().to_string_lossy()));
    }
    REFUSED.take();
    let object = open.load().map_err(|error| refused(&error))?;
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

/// The error of a load, with the program and the verifier's reason if libbpf named them.
fn refused(error: &libbpf_rs::Error) -> io::Error {
    let error = to_io_error(error);
    match REFUSED.take() {
        Some(refusal) => io::Error::new(error.kind(), refusal),
        None => error,
    }
}

fn to_io_error(error: &libbpf_rs::Error) -> io::Error {
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
    REFUSED.with_borrow_mut(|refused| note(refused, &text));
}

/// Extracts the reason of a rejected program from a log message (`bpf_object_load_prog`,
/// `tools/lib/bpf/libbpf.c`): the error comes first, then the verifier's log.
fn note(refused: &mut Option<String>, message: &str) {
    const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
    const END: &str = "-- END PROG LOAD LOG --";
    let program = message.strip_prefix("libbpf: prog '");
    let Some((program, text)) = program.and_then(|text| text.split_once("': ")) else {
        return;
    };
    if let Some(error) = text.strip_prefix("BPF program load failed: ") {
        *refused = Some(format!("{program}: {}", error.trim_end()));
    } else if let Some(log) = text.strip_prefix(BEGIN) {
        let log = log.trim_end().trim_end_matches(END);
        if let (Some(refused), Some(reason)) = (refused, reason(log)) {
            *refused = format!("{refused}: {reason}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::note;

    #[test]
    fn refusal_names_the_program_the_error_and_the_reason() {
        let mut refused = None;
        note(&mut refused, "libbpf: elf: skipping section(3) .text\n");
        assert_eq!(refused, None);
        note(
            &mut refused,
            "libbpf: prog 'on_free': BPF program load failed: -EINVAL\n",
        );
        note(
            &mut refused,
            "libbpf: prog 'on_free': -- BEGIN PROG LOAD LOG --\n0: (95) exit\n\
             BPF_EXIT uses reserved fields\nprocessed 1 insns (limit 1000000)\n\
             -- END PROG LOAD LOG --\n",
        );
        let expected = "on_free: -EINVAL: BPF_EXIT uses reserved fields";
        assert_eq!(refused.as_deref(), Some(expected));
    }
}
