//! Finds out why a CPU of an emulated machine runs no thread, by QEMU's monitor.
//!
//! Code of a kernel that holds a CPU either disables interrupts or takes them. If an interrupt
//! is pending for seconds and the CPU could take it, the emulator has lost it. This happens
//! while a nested guest runs on the CPU. KVM enters a guest with interrupts enabled
//! (`svm_vcpu_run`), and an interrupt ends the guest, whether or not the guest itself has
//! disabled its own.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use virtlens_vmtest::qmp::Qmp;

/// Number of looks at a lost CPU.
const LOOKS: u32 = 5;

/// Path of the monitor's socket, which is removed at the end.
#[derive(Debug)]
pub(crate) struct Monitor {
    socket: PathBuf,
}

impl Monitor {
    /// A socket in the temporary directory: the path of a socket has 107 bytes at most.
    pub(crate) fn new(machine: &str) -> Self {
        let name = format!("vmtest-{machine}-{}.monitor", std::process::id());
        Self {
            socket: std::env::temp_dir().join(name),
        }
    }

    /// QEMU's arguments.
    pub(crate) fn args(&self) -> [String; 2] {
        let socket = format!("unix:{},server=on,wait=off", self.socket.display());
        ["-qmp".to_owned(), socket]
    }

    /// Looks at this CPU some times at this interval, and returns its state and the last text
    /// of the monitor.
    pub(crate) fn look_at(&self, cpu: u32, every: Duration) -> anyhow::Result<(Stay, String)> {
        let mut qmp = Qmp::connect(&self.socket)?;
        let mut looks = Vec::new();
        let mut shown = String::new();
        for number in 0..LOOKS {
            if number > 0 {
                std::thread::sleep(every);
            }
            let registers = qmp.human("info registers -a")?;
            let apic = qmp.human(&format!("info lapic {cpu}"))?;
            let look = Look::of(&registers, &apic, cpu);
            looks.push(look.with_context(|| format!("QEMU's monitor shows no CPU {cpu}"))?);
            shown = registers + &apic;
        }
        Ok((Stay(looks), shown))
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // QEMU removes it if it was not killed.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// A kind of code that a CPU runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Real mode, which the machine's kernel leaves when it boots: a nested guest.
    RealMode,
    /// User space, of the machine or of a nested guest.
    User,
    /// A kernel, of the machine or of a nested guest.
    Kernel,
    /// It waits for an interrupt.
    Halted,
}

/// State of a CPU at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    place: Place,
    /// Whether its flags allow interrupts.
    is_enabled: bool,
    /// Whether its local APIC has an interrupt of a higher class than the one that is handled.
    is_pending: bool,
}

/// State of a CPU that runs no thread, at several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stay(Vec<Look>);

impl Stay {
    /// Whether only a defect of the emulator explains it.
    pub(crate) fn is_emulators(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|look| look.is_emulators())
    }
}

impl fmt::Display for Stay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.0.first().map(|look| look.place);
        let is_same = self.0.iter().all(|look| Some(look.place) == place);
        out.write_str(match place.filter(|_| is_same) {
            Some(Place::RealMode) => "it stays in a guest in real mode",
            Some(Place::User) => "it stays in user space, of the machine or of a guest",
            Some(Place::Kernel) => "it stays in a kernel, of the machine or of a guest",
            Some(Place::Halted) => "it stays halted",
            None => "it moves",
        })?;
        if self.is_emulators() {
            out.write_str(", and does not take the interrupt that is pending")?;
        }
        Ok(())
    }
}

impl Look {
    /// Reads the state of a CPU in the output of `info registers -a`: `CPU#1`, then among
    /// others `RFL=00000297` (`EFL` outside of 64-bit mode), `CPL=3`, `HLT=0` and
    /// `CR0=80050033`; and in that of `info lapic 1`: `IRR<tab> 236 253`, or `(none)`, and
    /// `PPR 0x10`.
    fn of(registers: &str, apic: &str, cpu: u32) -> Option<Self> {
        let of_cpu = |block: &&str| {
            let number = block.split_whitespace().next();
            number.is_some_and(|number| number == cpu.to_string())
        };
        let block = registers.split("CPU#").skip(1).find(of_cpu)?;
        let value = |text: &str, name: &str| {
            let (_, behind) = text.split_once(name)?;
            u64::from_str_radix(behind.split_whitespace().next()?, 16).ok()
        };
        let value_of = |name| value(block, name);
        let (flags, cpl, cr0) = (value_of("FL=")?, value_of("CPL=")?, value_of("CR0=")?);
        let place = if value_of("HLT=")? == 1 {
            Place::Halted
        } else if cr0 & PROTECTED == 0 {
            Place::RealMode
        } else if cpl == 3 {
            Place::User
        } else {
            Place::Kernel
        };
        let handled = value(apic, "PPR 0x")? >> CLASS_SHIFT;
        let (_, pending) = apic.split_once("IRR")?;
        let mut pending = pending.lines().next()?.split_whitespace();
        let is_higher = |vector: u64| vector >> CLASS_SHIFT > handled;
        Some(Self {
            place,
            is_enabled: flags & INTERRUPTS_ENABLED != 0,
            is_pending: pending.any(|vector| vector.parse().is_ok_and(is_higher)),
        })
    }

    fn is_emulators(self) -> bool {
        let is_guest = self.place == Place::RealMode;
        self.is_pending && (self.is_enabled || is_guest)
    }
}

/// CR0.PE: not in real mode.
const PROTECTED: u64 = 1;

/// RFLAGS.IF.
const INTERRUPTS_ENABLED: u64 = 1 << 9;

/// The class of a vector or priority, which decides whether an interrupt is taken, is its upper
/// four bits.
const CLASS_SHIFT: u32 = 4;

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::iter::once;
    use std::os::unix::net::UnixListener;

    use serde_json::{Value, json};

    use super::*;

    /// The lines of `info registers -a` (QEMU 11.1) that are read, for each CPU: flags, CPL,
    /// HLT and CR0.
    fn registers(cpus: &[Registers]) -> String {
        let of_cpu = |(cpu, (flags, cpl, halted, cr0)): (usize, &Registers)| {
            format!(
                "\r\nCPU#{cpu}\r\nRAX=0000000000000000 RBX=0000000000000001\r\n\
                 RIP=00000000000000f4 RFL={flags} [-------] CPL={cpl} II=0 A20=1 SMM=0 \
                 HLT={halted}\r\nES =0000 00000000 0000ffff 00009300\r\n\
                 CR0={cr0} CR2=0000000000000000 CR3=0000000000000000 CR4=00000000\r\n"
            )
        };
        cpus.iter().enumerate().map(of_cpu).collect()
    }

    fn apic(pending: &str) -> String {
        format!(
            "LVTT\t 0x000200ec active-hi edge periodic Fixed (vec 236)\r\nISR\t (none)\r\n\
             IRR\t {pending}\r\n\r\nAPR 0x00 TPR 0x10 DFR 0x0f LDR 0x01 PPR 0x10\r\n"
        )
    }

    type Registers = (&'static str, u32, u32, &'static str);
    const KERNEL: Registers = ("00000002", 0, 0, "80050033");
    const ENABLED_KERNEL: Registers = ("00000202", 0, 0, "80050033");
    const HALTED: Registers = ("00000206", 0, 1, "80050033");
    const USER: Registers = ("00000297", 3, 0, "80050033");
    const REAL_MODE: Registers = ("00000002", 0, 0, "00000010");

    fn look(registers: &str, apic: &str, cpu: u32) -> Look {
        Look::of(registers, apic, cpu).expect("registers")
    }

    #[test]
    fn place_follows_from_halt_mode_and_privilege() {
        let text = registers(&[KERNEL, REAL_MODE, USER, HALTED]);
        let places = [0, 1, 2, 3].map(|cpu| look(&text, &apic("236 "), cpu).place);
        let expected = [Place::Kernel, Place::RealMode, Place::User, Place::Halted];
        assert_eq!(places, expected);
        assert_eq!(Look::of(&text, &apic("236 "), 4), None);
        assert_eq!(Look::of("CPU#0\r\nRIP=0", &apic("236 "), 0), None);
    }

    #[test]
    fn interrupt_of_class_being_handled_is_not_pending() {
        let text = registers(&[USER]);
        let is_pending = |apic: &str| look(&text, apic, 0).is_pending;
        assert!(is_pending(&apic("236 253 ")));
        assert!(is_pending(&apic("32 ")));
        assert!(!is_pending(&apic("31 ")));
        assert!(!is_pending(&apic("(none)")));
    }

    #[test]
    fn only_interrupt_that_could_be_taken_is_a_defect_of_the_emulator() {
        let is_emulators = |of: Registers, pending: &str| {
            look(&registers(&[of]), &apic(pending), 0).is_emulators()
        };
        for of in [ENABLED_KERNEL, USER, HALTED, REAL_MODE] {
            assert!(is_emulators(of, "236 "), "{of:?}");
            assert!(!is_emulators(of, "(none)"), "{of:?}");
        }
        assert!(!is_emulators(KERNEL, "236 "), "it has disabled interrupts");
    }

    /// Answers one connection: the greeting, then these texts, registers and APIC in turn.
    fn serve(monitor: &Monitor, answers: Vec<String>) -> std::thread::JoinHandle<()> {
        let listener = UnixListener::bind(&monitor.socket).expect("a socket");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut requests = BufReader::new(stream.try_clone().expect("a copy")).lines();
            writeln!(stream, "{}", json!({"QMP": {}})).expect("a greeting");
            let commands = ["info registers -a", "info lapic 1"];
            let expected = once("qmp_capabilities").chain(commands.into_iter().cycle());
            let answers = once(json!({})).chain(answers.into_iter().map(Value::from));
            for (expected, answer) in expected.zip(answers) {
                let request = requests.next().expect("a request").expect("a line");
                assert!(request.contains(expected), "{request}");
                writeln!(stream, "{}", json!({"return": answer})).expect("an answer");
            }
        })
    }

    #[test]
    fn cpu_that_takes_interrupts_once_is_not_excused() {
        let (registers, pending) = (registers(&[KERNEL, REAL_MODE]), apic("236 "));
        let look = [registers, pending];
        let mut answers: Vec<String> = look.iter().cycle().take(10).cloned().collect();
        let monitor = Monitor::new("stays");
        let server = serve(&monitor, answers.clone());
        let (stay, text) = monitor.look_at(1, Duration::ZERO).expect("answers");
        server.join().expect("it answered");
        assert!(stay.is_emulators());
        let said = "it stays in a guest in real mode, and does not take the interrupt that is \
                    pending";
        assert_eq!(stay.to_string(), said);
        assert!(text.contains("CPU#1") && text.contains("IRR"), "{text}");

        answers[5] = apic("(none)");
        let monitor = Monitor::new("takes");
        let server = serve(&monitor, answers);
        assert!(
            !monitor
                .look_at(1, Duration::ZERO)
                .expect("answers")
                .0
                .is_emulators()
        );
        server.join().expect("it answered");
    }
}
