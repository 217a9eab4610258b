//! Selection of VMs by name.

use virtlens::views::pick::{is_called, name_of, pick};
use virtlens_tests::fixture;

#[test]
fn vm_is_selected_by_pod_name_uid_and_pid() {
    let snapshot = fixture::snapshot();
    let kata = &snapshot.vms[0];
    for name in [
        "shop/web-0",
        "web-0",
        "sandbox-7c41e0",
        "2f1c7a52-9b1e-4c8e-a1f0-5d1f0f4e9b11",
        "4242",
    ] {
        assert!(is_called(kata, name), "{name}");
        assert!(!is_called(&snapshot.vms[2], name), "{name}");
        let picked = pick(&snapshot.vms, Some(name)).expect("it is there");
        assert_eq!(picked.len(), 1);
        assert_eq!(name_of(picked[0]), "shop/web-0");
    }
    assert!(!is_called(kata, "other/web-0"));
    assert_eq!(pick(&snapshot.vms, None).expect("all").len(), 3);
}

#[test]
fn unknown_vm_name_error_has_nearest_names() {
    let vms = fixture::snapshot().vms;
    for (wanted, hint) in [
        ("shop/web-1", "the nearest name is shop/web-0; "),
        ("WEB-O", "the nearest name is shop/web-0; "),
        ("vms-database", "the nearest name is vms_database; "),
        ("xyz", ""),
    ] {
        let error = pick(&vms, Some(wanted)).expect_err("no such VM");
        assert_eq!(
            error.to_string(),
            format!("VM {wanted} not found; {hint}run `virtlens snapshot` to list all VMs")
        );
    }
    assert!(
        !pick(&vms, Some("a\u{1b}[2J"))
            .expect_err("none")
            .to_string()
            .contains('\u{1b}')
    );
}
