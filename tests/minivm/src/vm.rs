//! The KVM VM: its memory, its guest programs, its vCPU files.
//!
//! ```text
//! 0 ─ guest memory (--mem) ─   0xfffbd000 TSS   0xfffff000 firmware page ─ --guest-memfd ─
//! ```
//! The guest programs are in a separate page at the reset vector, where firmware is, so
//! that no madvise on guest memory discards them. A vCPU is created in the reset state:
//! real mode, CS base 0xffff0000.

use anyhow::{Context, bail, ensure};
use kvm_bindings::{
    CpuId, KVM_CAP_HALT_POLL, KVM_MAX_CPUID_ENTRIES, KVM_MEM_LOG_DIRTY_PAGES,
    KVM_MP_STATE_RUNNABLE, kvm_cpuid_entry2, kvm_enable_cap, kvm_mp_state, kvm_pit_config,
    kvm_regs, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};

use crate::args::Args;
use crate::cpuid;
use crate::guest_memfd::GuestMemfd;
use crate::memory::{Mapping, PAGE_BYTES};
use crate::stats::{self, Stats};

/// Three pages that VT-x requires for real mode, below 4 GiB and outside of memory.
const TSS_ADDRESS: usize = 0xfffb_d000;
/// Guest-physical address of the firmware page.
const FIRMWARE_ADDRESS: u64 = 0xffff_f000;
/// Guest memory ends well below the TSS.
const MAX_MEM_BYTES: u64 = 2 << 30;

/// A guest program; the value is its start, as IP in the reset code segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// `jmp $`
    Spin = 0xf000,
    /// `hlt; jmp` back to it, interrupts off
    Halt = 0xf010,
    /// `cpuid; jmp` back to it: each `cpuid` exits, on VT-x and SVM alike
    Exit = 0xf020,
}

/// A memslot of a VM; the value is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Guest memory.
    Ram = 0,
    /// The guest programs.
    Firmware = 1,
    /// Further memory, in a `guest_memfd`.
    Private = 2,
}

impl Slot {
    /// Parses the name of a memslot.
    pub(crate) fn parse(name: &str) -> anyhow::Result<Self> {
        Ok(match name {
            "ram" => Self::Ram,
            "firmware" => Self::Firmware,
            _ => bail!("unknown memslot {name:?}: use ram or firmware"),
        })
    }
}

/// A VM.
pub(crate) struct Vm {
    fd: VmFd,
    ram: Mapping,
    firmware: Mapping,
    guest_memfd: Option<GuestMemfd>,
    supported: Vec<kvm_cpuid_entry2>,
}

impl Vm {
    /// Creates a VM with memory, an in-kernel irqchip and no vCPU.
    pub(crate) fn create(args: &Args) -> anyhow::Result<Self> {
        ensure!(
            (PAGE_BYTES..=MAX_MEM_BYTES).contains(&args.mem) && args.mem.is_multiple_of(PAGE_BYTES),
            "--mem {}: use whole pages of 4 KiB, up to 2G",
            args.mem
        );
        let kvm = Kvm::new().map_err(|error| {
            anyhow::anyhow!(
                "cannot open /dev/kvm: {error}; load the module kvm_intel or kvm_amd, give this \
                 container the device, or run as root"
            )
        })?;
        let fd = kvm.create_vm().context("KVM_CREATE_VM")?;
        fd.set_tss_address(TSS_ADDRESS)
            .context("KVM_SET_TSS_ADDR")?;
        // With it, HLT blocks in the kernel; without, KVM_RUN returns KVM_EXIT_HLT.
        fd.create_irq_chip().context("KVM_CREATE_IRQCHIP")?;
        if args.pit {
            start_timer(&fd)?;
        }
        if let Some(us) = args.halt_poll_us {
            limit_halt_polling(&fd, us)?;
        }
        let ram = Mapping::new(args.mem, args.memfd)?;
        let firmware = Mapping::new(PAGE_BYTES, false)?;
        firmware.write(Program::Spin as u64 & (PAGE_BYTES - 1), &[0xeb, 0xfe])?;
        firmware.write(Program::Halt as u64 & (PAGE_BYTES - 1), &[0xf4, 0xeb, 0xfd])?;
        let exit = [0x0f, 0xa2, 0xeb, 0xfc];
        firmware.write(Program::Exit as u64 & (PAGE_BYTES - 1), &exit)?;
        let supported = match args.topology {
            Some(_) => kvm
                .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
                .context("KVM_GET_SUPPORTED_CPUID")?
                .as_slice()
                .to_vec(),
            None => Vec::new(),
        };
        let mut vm = Self {
            fd,
            ram,
            firmware,
            guest_memfd: None,
            supported,
        };
        vm.map(Slot::Ram, 0)?;
        vm.map(Slot::Firmware, 0)?;
        if let Some(bytes) = args.guest_memfd {
            vm.guest_memfd = Some(GuestMemfd::create(&vm.fd, bytes)?);
        }
        Ok(vm)
    }

    /// KVM's statistics of the VM; empty where the kernel has none.
    pub(crate) fn stats(&self) -> anyhow::Result<Stats> {
        stats::open(&self.fd)?.map_or_else(|| Ok(Stats::new()), |file| stats::read(&file))
    }

    /// Turns KVM's log of the guest's writes to a memslot on or off.
    pub(crate) fn log_writes(&self, slot: Slot, is_on: bool) -> anyhow::Result<()> {
        self.map(slot, if is_on { KVM_MEM_LOG_DIRTY_PAGES } else { 0 })
    }

    /// Guest memory.
    pub(crate) fn ram(&self) -> &Mapping {
        &self.ram
    }

    /// The further memory.
    pub(crate) fn guest_memfd(&self) -> anyhow::Result<&GuestMemfd> {
        let memory = self.guest_memfd.as_ref();
        memory.context("no guest_memfd: start with --guest-memfd")
    }

    /// Creates a vCPU, with its CPUID table if there is a topology. Its id is its APIC
    /// id.
    pub(crate) fn create_vcpu(&self, id: u32, args: &Args) -> anyhow::Result<VcpuFd> {
        let vcpu = self.fd.create_vcpu(id.into()).with_context(|| {
            format!("KVM_CREATE_VCPU of id {id}: ids must differ and stay below KVM's limit")
        })?;
        if let Some(shape) = args.topology {
            let table = cpuid::table(&self.supported, shape, args.vendor, id);
            let table =
                CpuId::from_entries(&table).map_err(|error| anyhow::anyhow!("{error:?}"))?;
            vcpu.set_cpuid2(&table).context("KVM_SET_CPUID2")?;
        }
        Ok(vcpu)
    }

    /// Creates a memslot, or changes its flags.
    fn map(&self, slot: Slot, flags: u32) -> anyhow::Result<()> {
        let (guest_address, memory) = match slot {
            Slot::Ram => (0, &self.ram),
            Slot::Firmware => (FIRMWARE_ADDRESS, &self.firmware),
            Slot::Private => bail!("KVM cannot log the writes to a guest_memfd"),
        };
        let region = kvm_userspace_memory_region {
            slot: slot as u32,
            flags,
            guest_phys_addr: guest_address,
            memory_size: memory.bytes(),
            userspace_addr: memory.address(),
        };
        // SAFETY: the mapping is never unmapped, and slots do not overlap.
        unsafe { self.fd.set_user_memory_region(region) }.context("KVM_SET_USER_MEMORY_REGION")
    }
}

/// Creates the timer chip and starts it, as a guest's BIOS does: a kernel thread,
/// `kvm-pit/PID`, runs at each interrupt.
fn start_timer(fd: &VmFd) -> anyhow::Result<()> {
    /// The rate generator, which restarts automatically.
    const PERIODIC: u8 = 2;
    /// 200 µs of its clock of 1.193182 MHz: KVM's minimum interval.
    const COUNT: u32 = 239;
    fd.create_pit2(kvm_pit_config::default())
        .context("KVM_CREATE_PIT2")?;
    let mut state = fd.get_pit2().context("KVM_GET_PIT2")?;
    let channel = &mut state.channels[0];
    (channel.mode, channel.count, channel.gate) = (PERIODIC, COUNT, 1);
    fd.set_pit2(&state).context("KVM_SET_PIT2")
}

/// Sets `max_halt_poll_ns` of the VM (`KVM_CAP_HALT_POLL`, since v5.7).
fn limit_halt_polling(fd: &VmFd, us: u32) -> anyhow::Result<()> {
    let cap = kvm_enable_cap {
        cap: KVM_CAP_HALT_POLL,
        args: [u64::from(us) * 1000, 0, 0, 0],
        ..Default::default()
    };
    fd.enable_cap(&cap).context("KVM_CAP_HALT_POLL")
}

/// Makes the vCPU start a program, independent of its present state.
pub(crate) fn begin(vcpu: &VcpuFd, program: Program) -> anyhow::Result<()> {
    let reserved_bit_1 = 2;
    let registers = kvm_regs {
        rip: program as u64,
        rflags: reserved_bit_1,
        ..Default::default()
    };
    vcpu.set_regs(&registers).context("KVM_SET_REGS")?;
    // All vCPUs except the first wait for a start-up interrupt, and a halted one for any
    // interrupt.
    let runnable = kvm_mp_state {
        mp_state: KVM_MP_STATE_RUNNABLE,
    };
    vcpu.set_mp_state(runnable).context("KVM_SET_MP_STATE")
}

/// Enters the guest once, until a kick.
pub(crate) fn run(vcpu: &mut VcpuFd) -> anyhow::Result<()> {
    match vcpu.run() {
        Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => Ok(()),
        Ok(kvm_ioctls::VcpuExit::Intr) => Ok(()),
        Err(error) => Err(error).context("KVM_RUN"),
        Ok(exit) => bail!("KVM_RUN: unexpected exit {exit:?}"),
    }
}
