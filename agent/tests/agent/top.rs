//! The live screens with synthetic readings, and the effects of keys.

use std::sync::Arc;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use virtlens::views::top::state::{Action, Top, View};
use virtlens::views::top::theme::Theme;
use virtlens_model::snapshot::{Check, Finding, Snapshot, Vm};
use virtlens_model::vocab::{KvmValues, Role, VhostDevice};
use virtlens_tests::fixture;
use virtlens_tests::golden::assert_golden;

use crate::golden;

const MS: u64 = 1_000_000;
const SECOND: Duration = Duration::from_secs(1);
pub(crate) const PLAIN: Theme = Theme {
    color: false,
    ascii: false,
};

/// The fixture, `second` seconds later: its first VM is at its limit, with rising usage.
pub(crate) fn reading(second: u64) -> Arc<Snapshot> {
    let mut snapshot = fixture::snapshot();
    snapshot.clock_ns = second * 1000 * MS;
    let used = |parts: u64| (1..=second).map(|at| parts * at.min(5) * MS).sum::<u64>();
    let kata = &mut snapshot.vms[0];
    for (role, parts) in kata.roles.iter_mut().zip([140, 80, 20, 1, 0]) {
        role.cpu_ns += used(parts);
        role.wait_ns = role.wait_ns.map(|ns| ns + used(30));
        role.throttle_hits = role.throttle_hits.map(|hits| hits + 2 * second);
    }
    for vcpu in &mut kata.vcpus {
        vcpu.cpu_ns += used(70);
        vcpu.guest_ns = vcpu.guest_ns.map(|ns| ns + used(50));
        let mut kvm = KvmValues::from(vcpu.kvm);
        if let Some(poll) = &mut kvm.halt_poll_ns {
            poll.fail += used(6);
        }
        if let Some(exits) = &mut kvm.exits {
            exits.0[0] += 6_200 * second;
        }
        vcpu.kvm = kvm.into();
        vcpu.wait_ns = vcpu
            .wait_ns
            .map(|ns| ns + used(8 + 10 * u64::from(vcpu.id)));
        vcpu.timeslices = vcpu.timeslices.map(|count| count + 25 * second);
    }
    for (at, worker) in (0..).zip(&mut kata.workers) {
        worker.cpu_ns += used(80 >> (2 * at));
        worker.tid = Some(4260 + at);
        worker.device = (worker.role == Role::Vhost).then_some(VhostDevice::Vsock);
    }
    for limit in kata.limits.iter_mut().chain(&mut kata.quota) {
        limit.periods += 10 * second;
        limit.throttled_periods += used(2) / MS;
        for (ns, parts) in limit.used_ns.values_mut().zip([140, 80, 20]) {
            *ns += used(parts);
        }
        limit.throttle = limit.throttle.map(|mut throttle| {
            throttle.wall_ns += used(90);
            throttle
        });
    }
    let memory = &mut kata.memory;
    memory.refault_bytes = memory.refault_bytes.map(|bytes| bytes + (second << 20));
    memory.resident_bytes = memory.resident_bytes.map(|bytes| bytes + (second << 24));
    let evidence = "the pod used 1.20 of 1.25 cores (96 %): vcpu 0.70, vhost 0.40 and virtiofsd \
                    0.10; throttled for 2.3 s of 5.0 s, in 50 of 50 periods";
    kata.findings = Some(
        [
            Finding::new(Check::QuotaCapped, evidence.to_owned(), 1.8),
            Finding::new(
                Check::VcpusExceedQuota,
                "2 vCPUs under a limit of 1.25 cores: 1.6 vCPUs per core".to_owned(),
                1.1,
            ),
        ]
        .into(),
    );
    snapshot.vms[1].findings = Some([].into());
    Arc::new(snapshot)
}

fn top() -> Top {
    let mut top = Top::new(SECOND, View::Fleet);
    for second in 0..8 {
        top.add(reading(second));
    }
    top
}

pub(crate) fn screen(top: &mut Top, theme: Theme, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal
        .draw(|frame| virtlens::views::top::draw(top, theme, frame))
        .expect("it draws");
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(usize::from(width));
    rows.map(|row| {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    })
    .collect()
}

fn press(top: &mut Top, keys: &[KeyCode]) -> Option<Action> {
    let press = |key: &KeyCode| top.press(KeyEvent::new(*key, KeyModifiers::NONE));
    keys.iter().map(press).last().flatten()
}

fn typed(top: &mut Top, text: &str) {
    for letter in text.chars() {
        press(top, &[KeyCode::Char(letter)]);
    }
}

/// The names in the list, from top to bottom.
fn names(top: &Top) -> Vec<String> {
    top.rows().into_iter().map(|row| row.name.clone()).collect()
}

#[test]
fn top_screens_equal_golden() {
    for (width, height) in [(80, 24), (120, 40)] {
        let mut top = top();
        let name = |what: &str| golden(&format!("top-{what}-{width}.txt"));
        assert_golden(name("fleet"), &screen(&mut top, PLAIN, width, height));
        press(&mut top, &[KeyCode::Enter]);
        assert_golden(name("vm"), &screen(&mut top, PLAIN, width, height));
        press(&mut top, &[KeyCode::Char('?')]);
        assert_golden(name("help"), &screen(&mut top, PLAIN, width, height));
    }
}

#[test]
fn ascii_screens_show_same_content() {
    let ascii = Theme {
        ascii: true,
        ..PLAIN
    };
    let mut top = top();
    assert!(screen(&mut top, ascii, 80, 24).is_ascii());
    press(&mut top, &[KeyCode::Enter]);
    let vm = screen(&mut top, ascii, 80, 40);
    assert!(vm.is_ascii() && vm.contains('='), "{vm}");
}

#[test]
fn screens_draw_in_any_terminal_size() {
    let mut top = top();
    for view in [View::Fleet, View::Vm("sandbox-7c41e0".into())] {
        top.view = view;
        for (width, height) in [(1, 1), (10, 3), (40, 5), (60, 10), (300, 100)] {
            let drawn = screen(&mut top, PLAIN, width, height);
            assert_eq!(drawn.lines().count(), usize::from(height));
        }
    }
    // The name column is dropped last.
    top.view = View::Fleet;
    let narrow = screen(&mut top, PLAIN, 40, 8);
    assert!(
        narrow.contains("shop/web-0") && narrow.contains("CORES"),
        "{narrow}"
    );
}

#[test]
fn vm_list_is_sorted_and_filtered_by_keys() {
    let mut top = top();
    assert_eq!(names(&top)[0], "shop/web-0");
    press(&mut top, &[KeyCode::Char('S')]);
    assert_eq!(names(&top)[2], "shop/web-0");
    press(&mut top, &[KeyCode::Char('S'), KeyCode::Char('<')]);
    assert_eq!(names(&top)[1], "shop/web-0", "by name, after a quote");
    typed(&mut top, "/WEB");
    assert_eq!(names(&top), ["shop/web-0"]);
    assert!(screen(&mut top, PLAIN, 80, 24).contains("/WEB_"));
    press(&mut top, &[KeyCode::Enter]);
    assert!(!top.is_filtering);
    press(&mut top, &[KeyCode::Esc]);
    assert_eq!(names(&top).len(), 3);
    typed(&mut top, "/zzz");
    assert!(screen(&mut top, PLAIN, 80, 24).contains("No VM matches the filter"));
}

#[test]
fn cursor_stays_on_its_vm_when_order_changes() {
    let mut top = top();
    press(&mut top, &[KeyCode::Down]);
    let chosen = top.cursor.clone().expect("it moved");
    press(&mut top, &[KeyCode::Char('S')]);
    let rows = top.rows();
    assert_eq!(rows[top.row_of_cursor(&rows)].id(), chosen);
    press(&mut top, &[KeyCode::Char('G')]);
    press(&mut top, &[KeyCode::Char('j')]);
    press(&mut top, &[KeyCode::Enter]);
    assert!(matches!(&top.view, View::Vm(name) if *name != chosen));
    press(&mut top, &[KeyCode::Esc]);
    assert_eq!(top.view, View::Fleet);
}

#[test]
fn paused_screen_does_not_change_with_new_readings() {
    let mut top = top();
    press(&mut top, &[KeyCode::Enter, KeyCode::Char(' ')]);
    press(&mut top, &[KeyCode::Left, KeyCode::Left]);
    let shown = top.shown().expect("a reading").clock_ns;
    assert_eq!(shown, 5000 * MS);
    top.add(reading(8));
    assert_eq!(top.shown().expect("a reading").clock_ns, shown);
    assert!(screen(&mut top, PLAIN, 80, 24).contains("paused, 3 back"));
    // A failed reading repeats the newest one.
    top.add(reading(8));
    assert_eq!(top.shown().expect("a reading").clock_ns, shown);
    press(&mut top, &[KeyCode::Right]);
    assert_eq!(top.shown().expect("a reading").clock_ns, 6000 * MS);
    press(&mut top, &[KeyCode::Char('p')]);
    assert_eq!(top.shown().expect("a reading").clock_ns, 8000 * MS);
    for _ in 0..20 {
        press(&mut top, &[KeyCode::Left]);
    }
    assert_eq!(top.back(), 7, "the first reading has none before it");
}

#[test]
fn screen_of_ended_vm_reports_its_end() {
    let mut top = top();
    press(&mut top, &[KeyCode::Enter]);
    let mut gone = Snapshot::clone(&reading(8));
    gone.vms.remove(0);
    top.add(Arc::new(gone));
    let screen = screen(&mut top, PLAIN, 80, 24);
    assert!(
        screen.contains("sandbox-7c41e0 is not in this reading"),
        "{screen}"
    );
    assert_eq!(press(&mut top, &[KeyCode::Char('q')]), Some(Action::Quit));
}

#[test]
fn new_vm_has_no_rates() {
    let mut top = Top::new(SECOND, View::Vm("sandbox-7c41e0".into()));
    let text = |top: &mut Top| screen(top, PLAIN, 80, 24);
    assert!(text(&mut top).contains("is not in this reading"));
    top.add(reading(0));
    assert!(text(&mut top).contains("New VM:"));
    top.view = View::Fleet;
    assert!(text(&mut top).contains("shop/web-0"));
}

#[test]
fn interval_keys_step_within_bounds() {
    let mut top = top();
    let slower: Vec<u64> = (0..4)
        .map(|_| {
            press(&mut top, &[KeyCode::Char('+')]);
            top.interval.as_secs()
        })
        .collect();
    assert_eq!(slower, [2, 5, 10, 10]);
    for _ in 0..10 {
        press(&mut top, &[KeyCode::Char('-')]);
    }
    assert_eq!(top.interval, Duration::from_millis(100));
}

#[test]
fn history_of_many_vms_keeps_fewer_readings() {
    let mut top = Top::new(SECOND, View::Fleet);
    for second in 0..500 {
        let mut reading = Snapshot::clone(&reading(0));
        reading.clock_ns = second * 1000 * MS;
        let vm = reading.vms[0].clone();
        reading.vms = (0..300).map(|pid| Vm { pid, ..vm.clone() }).collect();
        top.add(Arc::new(reading));
    }
    assert_eq!(top.history().len(), 19, "20 readings of 300 VMs");
}
