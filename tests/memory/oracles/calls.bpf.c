/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory calls of a process, from every system call, to check the agent, which does not
 * trace system calls. Only successful calls are counted, with the values they requested.
 */
#include "compat.bpf.h"

/*
 * Set by the test, so that one program serves all tests: attaching or detaching a program
 * patches the kernel, which an emulated machine does not always survive.
 */
struct target {
	__u64 ram_start;
	__u64 ram_end;
	__u64 tgid;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct target);
} targets SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct pt_regs___all {
	unsigned long r10;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
};
#pragma clang attribute pop

/* arch/x86/entry/syscalls/syscall_64.tbl */
#define NR_MADVISE 28
#define NR_FALLOCATE 285

struct call {
	__u32 number;
	/* Advice of madvise, mode of fallocate. */
	__u32 what;
	__u64 bytes;
	/* 1 for madvise of an address in RAM. */
	__u32 in_ram;
	__u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct call);
	__type(value, __u64);
} calls SEC(".maps");

SEC("raw_tp/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs___all *regs, long result)
{
	__u64 one = 1, *count, start;
	struct target *target;
	struct call call = {};
	__u32 zero = 0;

	target = bpf_map_lookup_elem(&targets, &zero);
	if (!target || bpf_get_current_pid_tgid() >> 32 != target->tgid || result)
		return 0;
	call.number = BPF_CORE_READ(regs, orig_ax);
	if (call.number == NR_MADVISE) {
		start = BPF_CORE_READ(regs, di);
		call.what = BPF_CORE_READ(regs, dx);
		call.bytes = BPF_CORE_READ(regs, si);
		call.in_ram = start >= target->ram_start && start < target->ram_end;
	} else if (call.number == NR_FALLOCATE) {
		call.what = BPF_CORE_READ(regs, si);
		call.bytes = BPF_CORE_READ(regs, r10);
	} else {
		return 0;
	}
	count = bpf_map_lookup_elem(&calls, &call);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&calls, &call, &one, BPF_NOEXIST);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
