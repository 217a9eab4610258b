//! Offsets of the fields that lead from a vhost device to the threads of its workers.
//!
//! The types are in the module vhost, which the first VM with such a device may load long
//! after the agent started.

use std::path::Path;

use virtlens_abi::map::{NO_FIELD, VhostFields};

use crate::btf::{Btf, Kind, Type};

/// Reads the module's type information. `None` if the module is not loaded, or has no
/// type information (before v5.11).
pub(crate) fn of_module(root: &Path) -> Option<VhostFields> {
    let folder = root.join("sys/kernel/btf");
    // Read before the kernel's type information, which is large: mostly this file is
    // missing.
    let module = std::fs::read(folder.join("vhost")).ok()?;
    let kernel = std::fs::read(folder.join("vmlinux")).ok()?;
    let kernel = Btf::parse(&kernel)?;
    in_module(&kernel, &Btf::parse_module(&module, &kernel)?)
}

/// From the kernel's own types: vhost is built in.
pub(super) fn in_kernel(kernel: &Btf<'_>) -> Option<VhostFields> {
    fields(kernel, kernel, 0)
}

/// From the module's types, whose ids continue after the kernel's.
pub(super) fn in_module(kernel: &Btf<'_>, module: &Btf<'_>) -> Option<VhostFields> {
    fields(kernel, module, u32::try_from(kernel.types().count()).ok()?)
}

fn fields(kernel: &Btf<'_>, vhost: &Btf<'_>, types_before: u32) -> Option<VhostFields> {
    let device = vhost.find(Kind::Struct, "vhost_dev")?;
    let mut fields = VhostFields {
        is_known: 1,
        mm: offset(device, "mm")?,
        vqs: NO_FIELD,
        nvqs: NO_FIELD,
        worker: NO_FIELD,
        task: NO_FIELD,
        vtsk: NO_FIELD,
        vtsk_task: NO_FIELD,
    };
    let worker = vhost.find(Kind::Struct, "vhost_worker");
    let queue = vhost.find(Kind::Struct, "vhost_virtqueue");
    // Since v6.5 each virtqueue has a worker: 737bdb643c4f.
    let of_queue = queue.and_then(|queue| offset(queue, "worker"));
    let of_device = device.members().find(|field| field.name == "worker");
    // Offset of the structure that contains the worker's fields.
    let mut embedded_at = 0;
    match (of_queue, of_device, worker) {
        (Some(at), _, Some(_)) => {
            fields.vqs = offset(device, "vqs")?;
            fields.nvqs = offset(device, "nvqs")?;
            fields.worker = at;
        }
        // Before v6.4: the field is the worker's task_struct.
        (None, Some(at), None) => {
            fields.task = at.offset_bits / 8;
            return Some(fields);
        }
        // In v6.4: the worker is embedded in the device.
        (None, Some(at), Some(worker))
            if at.type_id.checked_sub(types_before) == Some(worker.id) =>
        {
            embedded_at = at.offset_bits / 8;
        }
        (None, Some(at), Some(_)) => fields.worker = at.offset_bits / 8,
        _ => return None,
    }
    let worker = worker?;
    let within = |name| offset(worker, name).and_then(|at| at.checked_add(embedded_at));
    // Debian's 6.12.117 and later: a VMM may request kernel threads as before v6.4.
    let task = within("kthread_task").or_else(|| within("task"));
    fields.task = task.unwrap_or(NO_FIELD);
    if let Some(vtsk) = within("vtsk") {
        fields.vtsk = vtsk;
        // Always in the kernel's types, also if vhost is a module (kernel/vhost_task.c).
        fields.vtsk_task = offset(kernel.find(Kind::Struct, "vhost_task")?, "task")?;
    }
    (fields.task != NO_FIELD || fields.vtsk != NO_FIELD).then_some(fields)
}

fn offset(of: Type<'_>, name: &str) -> Option<u32> {
    let mut members = of.members();
    let found = members.find(|field| field.name == name)?;
    Some(found.offset_bits / 8)
}

#[cfg(test)]
mod tests {
    use virtlens_abi::map::{NO_FIELD, VhostFields};

    use super::{in_kernel, in_module, of_module};
    use crate::btf::{Btf, Kind};
    use crate::facts::tests::type_information;

    /// A structure: its name, and its fields with their offsets in bytes and type ids.
    type Struct<'a> = (&'a str, &'a [(&'a str, u32, u32)]);

    /// Type information of `structs`, whose names start at offset `before`.
    fn types(before: usize, structs: &[Struct<'_>]) -> Vec<u8> {
        let mut names = if before == 0 { vec![0] } else { Vec::new() };
        let mut words = Vec::new();
        let mut name = |text: &str| {
            let at = u32::try_from(before + names.len()).expect("few");
            names.extend(text.bytes().chain([0]));
            at
        };
        for (its, members) in structs {
            let count = u32::try_from(members.len()).expect("few");
            words.extend([name(its), (Kind::Struct as u32) << 24 | count, 0]);
            for (member, offset, type_id) in *members {
                words.extend([name(member), *type_id, offset * 8]);
            }
        }
        type_information(&words, names)
    }

    /// A type id that no structure here has.
    const OTHER: u32 = 0;

    const TASK: Struct<'_> = ("vhost_task", &[("task", 64, OTHER)]);

    /// The result with vhost as a module, and built in.
    fn both(vhost: &[Struct<'_>]) -> [Option<VhostFields>; 2] {
        let kernel = types(0, &[TASK]);
        let kernel_btf = Btf::parse(&kernel).expect("types");
        assert_eq!(in_kernel(&kernel_btf), None);
        let module = types("\0vhost_task\0task\0".len(), vhost);
        let module = Btf::parse_module(&module, &kernel_btf).expect("types");
        // There vhost's types come first, too.
        let whole = [&[TASK], vhost].concat();
        let whole = types(0, &whole);
        [
            in_module(&kernel_btf, &module),
            in_kernel(&Btf::parse(&whole).expect("types")),
        ]
    }

    fn known() -> VhostFields {
        VhostFields {
            is_known: 1,
            mm: 0,
            vqs: NO_FIELD,
            nvqs: NO_FIELD,
            worker: NO_FIELD,
            task: NO_FIELD,
            vtsk: NO_FIELD,
            vtsk_task: NO_FIELD,
        }
    }

    #[test]
    fn device_with_a_kernel_thread_has_its_task() {
        let members = [("mm", 0, OTHER), ("vqs", 40, OTHER), ("worker", 72, OTHER)];
        let fields = VhostFields {
            task: 72,
            ..known()
        };
        let queue = ("vhost_virtqueue", &[("dev", 0, OTHER)][..]);
        assert_eq!(both(&[("vhost_dev", &members), queue]), [Some(fields); 2]);
    }

    #[test]
    fn worker_inside_of_the_device_is_found_by_its_type() {
        // The worker is the second of these types, after one of the kernel's.
        let members = [("mm", 0, OTHER), ("worker", 56, 3)];
        let worker = ("vhost_worker", &[("vtsk", 8, OTHER)][..]);
        let fields = VhostFields {
            vtsk: 64,
            vtsk_task: 64,
            ..known()
        };
        assert_eq!(both(&[("vhost_dev", &members), worker]), [Some(fields); 2]);
    }

    #[test]
    fn worker_behind_a_pointer_of_the_device_is_followed() {
        let members = [("mm", 0, OTHER), ("worker", 56, OTHER)];
        let worker = ("vhost_worker", &[("task", 0, OTHER)][..]);
        let fields = VhostFields {
            worker: 56,
            task: 0,
            ..known()
        };
        assert_eq!(both(&[("vhost_dev", &members), worker]), [Some(fields); 2]);
    }

    #[test]
    fn workers_of_virtqueues_have_a_task_of_either_kind() {
        let members = [("mm", 0, OTHER), ("vqs", 40, OTHER), ("nvqs", 48, OTHER)];
        let queue = ("vhost_virtqueue", &[("worker", 8, OTHER)][..]);
        let worker = [("kthread_task", 0, OTHER), ("vtsk", 8, OTHER)];
        let fields = VhostFields {
            vqs: 40,
            nvqs: 48,
            worker: 8,
            task: 0,
            vtsk: 8,
            vtsk_task: 64,
            ..known()
        };
        let of = |worker| both(&[("vhost_dev", &members), queue, ("vhost_worker", worker)]);
        assert_eq!(of(&worker), [Some(fields); 2]);
        let without = VhostFields {
            task: NO_FIELD,
            ..fields
        };
        assert_eq!(of(&worker[1..]), [Some(without); 2]);
    }

    #[test]
    fn module_is_asked_once_it_is_loaded() {
        let root = tempfile::tempdir().expect("there is room for a folder");
        let folder = root.path().join("sys/kernel/btf");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("vmlinux"), types(0, &[TASK])).expect("a file");
        assert_eq!(of_module(root.path()), None);
        let members = [("mm", 0, OTHER), ("worker", 72, OTHER)];
        let before = "\0vhost_task\0task\0".len();
        let module = types(before, &[("vhost_dev", &members)]);
        std::fs::write(folder.join("vhost"), module).expect("a file");
        let task = of_module(root.path()).map(|fields| fields.task);
        assert_eq!(task, Some(72));
    }

    #[test]
    fn unknown_shape_has_no_fields() {
        let device = ("vhost_dev", &[("mm", 0, OTHER), ("vqs", 40, OTHER)][..]);
        let queue = ("vhost_virtqueue", &[("worker", 8, OTHER)][..]);
        let worker = ("vhost_worker", &[("vtsk", 8, OTHER)][..]);
        let anonymous = ("vhost_worker", &[("thread", 8, OTHER)][..]);
        let cases: [&[Struct<'_>]; 4] = [
            &[device],
            &[device, queue],
            // The number of virtqueues is unknown.
            &[device, queue, worker],
            &[device, anonymous],
        ];
        for case in cases {
            assert_eq!(both(case), [None; 2], "{case:?}");
        }
    }
}
