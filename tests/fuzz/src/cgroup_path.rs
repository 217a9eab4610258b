//! Cgroup paths, in which tenants choose some of the names.

use virtlens_model::identify::cgroup::{levels, locate, machine_name, overhead_paths, unit_name};

/// `data` is a path.
pub fn cgroup_path(data: &[u8]) {
    let Ok(path) = std::str::from_utf8(data) else {
        return;
    };
    let by_hand = path.rsplit_once("kata_").map(|(_, id)| id);
    check(path, by_hand);
    check(path, None);
}

fn check(path: &str, sandbox_id: Option<&str>) {
    let location = locate(path, sandbox_id);
    if let Some(root) = &location.root {
        assert!(path.starts_with(root.as_str()), "{root:?} is above");
        assert!(!location.overhead, "an overhead cgroup holds no VM");
    }
    if let Some(uid) = &location.uid {
        assert!(matches!(uid.len(), 32 | 36), "{uid:?}");
        assert!(path.contains(&**uid) || path.contains(&uid.replace('-', "_")));
    }
    if let Some(id) = &location.sandbox_id {
        assert!(path.contains(id.as_str()), "{id:?} is in the path");
        for overhead in overhead_paths(id) {
            let found = locate(&overhead, None);
            assert!(found.overhead, "{overhead:?}");
            assert_eq!(found.sandbox_id.as_ref(), Some(id));
        }
    }
    let mut above = 0;
    for (end, _) in levels(path, sandbox_id) {
        assert!(above < end, "levels come outermost first");
        assert!(matches!(path.as_bytes().get(end), None | Some(b'/')));
        assert!(path.is_char_boundary(end));
        above = end;
    }
    if let Some(name) = unit_name(path) {
        assert!(!name.is_empty() && !name.chars().any(char::is_control));
    }
    if let Some(name) = machine_name(path) {
        assert!(!name.is_empty());
    }
}
