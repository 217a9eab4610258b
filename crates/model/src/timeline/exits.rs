//! Names of exit reasons: `arch/x86/include/uapi/asm/vmx.h` and `svm.h` (v5.10 to v7.3),
//! as `perf kvm` shows them.

use std::borrow::Cow;

/// Reason of a VM exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExitReason {
    /// Whether the code is AMD's (SVM); otherwise Intel's (VMX).
    pub is_svm: bool,
    /// Code of the reason.
    pub code: u32,
}

impl ExitReason {
    /// Name of the reason, or its code if it has no name here.
    pub fn name(self) -> Cow<'static, str> {
        // Intel has flags above the low 16 bits (SDM volume 3C, 26.9.1).
        let code = if self.is_svm {
            self.code
        } else {
            self.code & 0xffff
        };
        let (names, vendor) = if self.is_svm {
            (SVM, "svm")
        } else {
            (VMX, "vmx")
        };
        let at = names.binary_search_by_key(&code, |(code, _)| *code);
        match at.ok().and_then(|at| names.get(at)) {
            Some((_, name)) => Cow::Borrowed(name),
            None if self.is_svm => svm_range(code),
            None => Cow::Owned(format!("{vendor} {code:#x}")),
        }
    }

    /// Whether the exit is a halt.
    pub fn is_halt(self) -> bool {
        let halt = if self.is_svm { 0x78 } else { 12 };
        self.code == halt
    }
}

/// Reasons that exist once per register or exception.
fn svm_range(code: u32) -> Cow<'static, str> {
    Cow::Owned(match code {
        0x00..=0x0f => format!("READ_CR{code}"),
        0x10..=0x1f => format!("WRITE_CR{}", code - 0x10),
        0x20..=0x2f => format!("READ_DR{}", code - 0x20),
        0x30..=0x3f => format!("WRITE_DR{}", code - 0x30),
        0x40..=0x5f => format!("EXCP_{}", code - 0x40),
        _ => format!("svm {code:#x}"),
    })
}

/// By code.
const VMX: &[(u32, &str)] = &[
    (0, "EXCEPTION_NMI"),
    (1, "EXTERNAL_INTERRUPT"),
    (2, "TRIPLE_FAULT"),
    (3, "INIT_SIGNAL"),
    (4, "SIPI_SIGNAL"),
    (7, "INTERRUPT_WINDOW"),
    (8, "NMI_WINDOW"),
    (9, "TASK_SWITCH"),
    (10, "CPUID"),
    (12, "HLT"),
    (13, "INVD"),
    (14, "INVLPG"),
    (15, "RDPMC"),
    (16, "RDTSC"),
    (18, "VMCALL"),
    (19, "VMCLEAR"),
    (20, "VMLAUNCH"),
    (21, "VMPTRLD"),
    (22, "VMPTRST"),
    (23, "VMREAD"),
    (24, "VMRESUME"),
    (25, "VMWRITE"),
    (26, "VMOFF"),
    (27, "VMON"),
    (28, "CR_ACCESS"),
    (29, "DR_ACCESS"),
    (30, "IO_INSTRUCTION"),
    (31, "MSR_READ"),
    (32, "MSR_WRITE"),
    (33, "INVALID_STATE"),
    (34, "MSR_LOAD_FAIL"),
    (36, "MWAIT_INSTRUCTION"),
    (37, "MONITOR_TRAP_FLAG"),
    (39, "MONITOR_INSTRUCTION"),
    (40, "PAUSE_INSTRUCTION"),
    (41, "MCE_DURING_VMENTRY"),
    (43, "TPR_BELOW_THRESHOLD"),
    (44, "APIC_ACCESS"),
    (45, "EOI_INDUCED"),
    (46, "GDTR_IDTR"),
    (47, "LDTR_TR"),
    (48, "EPT_VIOLATION"),
    (49, "EPT_MISCONFIG"),
    (50, "INVEPT"),
    (51, "RDTSCP"),
    (52, "PREEMPTION_TIMER"),
    (53, "INVVPID"),
    (54, "WBINVD"),
    (55, "XSETBV"),
    (56, "APIC_WRITE"),
    (57, "RDRAND"),
    (58, "INVPCID"),
    (59, "VMFUNC"),
    (60, "ENCLS"),
    (61, "RDSEED"),
    (62, "PML_FULL"),
    (63, "XSAVES"),
    (64, "XRSTORS"),
    (67, "UMWAIT"),
    (68, "TPAUSE"),
    (74, "BUS_LOCK"),
    (75, "NOTIFY"),
];

/// By code, without those of [`svm_range`].
const SVM: &[(u32, &str)] = &[
    (0x60, "INTR"),
    (0x61, "NMI"),
    (0x62, "SMI"),
    (0x63, "INIT"),
    (0x64, "VINTR"),
    (0x65, "CR0_SEL_WRITE"),
    (0x66, "IDTR_READ"),
    (0x67, "GDTR_READ"),
    (0x68, "LDTR_READ"),
    (0x69, "TR_READ"),
    (0x6a, "IDTR_WRITE"),
    (0x6b, "GDTR_WRITE"),
    (0x6c, "LDTR_WRITE"),
    (0x6d, "TR_WRITE"),
    (0x6e, "RDTSC"),
    (0x6f, "RDPMC"),
    (0x70, "PUSHF"),
    (0x71, "POPF"),
    (0x72, "CPUID"),
    (0x73, "RSM"),
    (0x74, "IRET"),
    (0x75, "SWINT"),
    (0x76, "INVD"),
    (0x77, "PAUSE"),
    (0x78, "HLT"),
    (0x79, "INVLPG"),
    (0x7a, "INVLPGA"),
    (0x7b, "IOIO"),
    (0x7c, "MSR"),
    (0x7d, "TASK_SWITCH"),
    (0x7e, "FERR_FREEZE"),
    (0x7f, "SHUTDOWN"),
    (0x80, "VMRUN"),
    (0x81, "VMMCALL"),
    (0x82, "VMLOAD"),
    (0x83, "VMSAVE"),
    (0x84, "STGI"),
    (0x85, "CLGI"),
    (0x86, "SKINIT"),
    (0x87, "RDTSCP"),
    (0x88, "ICEBP"),
    (0x89, "WBINVD"),
    (0x8a, "MONITOR"),
    (0x8b, "MWAIT"),
    (0x8c, "MWAIT_COND"),
    (0x8d, "XSETBV"),
    (0x8e, "RDPRU"),
    (0x8f, "EFER_WRITE_TRAP"),
    (0xa2, "INVPCID"),
    (0x400, "NPF"),
    (0x401, "AVIC_INCOMPLETE_IPI"),
    (0x402, "AVIC_UNACCELERATED_ACCESS"),
    (0x403, "VMGEXIT"),
];

#[cfg(test)]
mod tests {
    use super::{ExitReason, SVM, VMX};

    #[test]
    fn exit_reasons_have_kernel_names() {
        let name = |is_svm, code| ExitReason { is_svm, code }.name().into_owned();
        assert_eq!(name(false, 12), "HLT");
        // The top bit marks a failed entry.
        assert_eq!(name(false, 0x8000_0021), "INVALID_STATE");
        assert_eq!(name(true, 0x78), "HLT");
        assert_eq!(name(true, 0x10), "WRITE_CR0");
        assert_eq!(name(true, 0x4e), "EXCP_14");
        assert_eq!(name(true, 0x999), "svm 0x999");
        assert_eq!(name(false, 200), "vmx 0xc8");
    }

    #[test]
    fn exit_reason_tables_are_sorted() {
        for table in [VMX, SVM] {
            assert!(table.is_sorted_by(|a, b| a.0 < b.0));
        }
    }
}
