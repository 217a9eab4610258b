/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What of the contract is about memory: records of a pass, and where RAM lies and what
 * was done with it. Mirrored by hand in crates/abi/src/memory.rs, by the rules of abi.h.
 */
#ifndef VIRTLENS_MEMORY_ABI_H
#define VIRTLENS_MEMORY_ABI_H

#include "abi.h"

/* QEMU's pc has some ten; a guest of a thousand DIMMs is not shown whole. */
#define MEMSLOTS_MAX 128
/* Pieces of host memory that are a guest's RAM: below and above the hole for
 * devices, a few DIMMs, and what the holes of a BIOS split them into. */
#define RAM_RANGES_MAX 16
/* VMs whose RAM is followed: some ten times the pods that a kubelet admits. */
#define RAM_MAX 4096
/* VMMs whose tgids are alike modulo RAM_MAX. */
#define RAM_WAYS 4

/* What a VM's process holds of memory, in each pass. */
struct memory_record {
	struct record_head head;
	struct owner owner;
	/* Anonymous, shared and file pages that are mapped; UNKNOWN where this
	 * kernel keeps them in a way that is not known here. */
	__u64 resident_bytes;
	/* The highest `resident_bytes` so far, as the kernel has it. */
	__u64 peak_bytes;
	/* Of hugetlbfs; not part of `resident_bytes`. */
	__u64 hugetlb_bytes;
	/* What of the memory that its guest reported it has taken again; UNKNOWN
	 * before the agent has told where its RAM lies. */
	__u64 refault_bytes;
};

/* A memslot: host memory that the guest sees somewhere. */
struct memslot {
	__u64 start;
	__u64 bytes;
	/* KVM_MEM_READONLY and others, include/uapi/linux/kvm.h. */
	__u32 flags;
	__u32 pad;
};

/* The memslots of a VM, when they have changed; they follow. */
struct memslots_record {
	struct record_head head;
	struct owner owner;
};

/* A piece of host memory that is a guest's RAM. */
struct ram_range {
	__u64 start;
	__u64 end;
	/* The file behind it; inode 0: anonymous. */
	__u64 inode;
	__u64 offset;
	/* As the kernel encodes it: 12 bits, 20 bits (MKDEV). */
	__u32 device;
	__u32 pad;
};

/* What is behind a VM's RAM: which resident memory may be RAM. */
enum ram_backing {
	/* A file on a disk, or not known: all. */
	RAM_OF_ANY = 0,
	/* None: anonymous memory, with the VMM's own. */
	RAM_ANONYMOUS = 1,
	/* A memfd, tmpfs or hugetlbfs: shared memory and huge pages. */
	RAM_SHARED = 2,
};

/* Value of array `ram_buckets`, index: tgid modulo RAM_MAX. Which entry of `ram` a
 * VMM has; tgid 0: none. */
struct ram_bucket {
	__u32 tgid[RAM_WAYS];
	__u32 ram[RAM_WAYS];
};

/* Value of array `ram`. Where the RAM of a VM lies and how discards of it are told
 * apart. */
struct ram {
	__u64 start_ns;
	/* A discard of at least this is neither inflate nor report. */
	__u64 other_min_bytes;
	/* Else one of at least this is a report, a smaller one inflates. */
	__u64 report_min_bytes;
	/* Index of the VM's entry in `discards`. */
	__u32 discards;
	/* enum ram_backing. */
	__u32 backing;
	__u32 ranges;
	__u32 pad;
	struct ram_range range[RAM_RANGES_MAX];
};

/* What was done with a piece of RAM: index into the counters of discards. */
enum discard {
	/* The balloon took it from the guest. */
	DISCARD_INFLATE = 0,
	/* The balloon gave it back to the guest. */
	DISCARD_DEFLATE = 1,
	/* The guest told that it is free. */
	DISCARD_REPORT = 2,
	/* Unplugged, migrated away, reset. */
	DISCARD_OTHER = 3,
	DISCARDS = 4,
};

/* Value of array `discards`, one a VM. Counted since the VM was first seen. */
struct discards {
	__u64 events[DISCARDS];
	__u64 bytes[DISCARDS];
	__u64 ns[DISCARDS];
	/* What of the reported memory the guest has taken again, up to the last
	 * report. */
	__u64 refault_bytes;
	/* Reported, released by it, and not yet taken again. */
	__u64 released_bytes;
	/* What RAM fell by between reports because the balloon took it: growth fills
	 * this first. */
	__u64 other_bytes;
	/* Resident RAM behind the last report, or lower in a pass since. */
	__u64 resident_bytes;
	/* What had been taken otherwise than by reports by then. */
	__u64 taken_bytes;
	/* The large call that is under way: when it began, resident RAM before it,
	 * and the thread, 0 if there is none. */
	__u64 call_began_ns;
	__u64 call_resident_bytes;
	/* The end of a small call from which the next is timed, 0 if none is; how
	 * often its thread had slept by then, and the thread. */
	__u64 page_began_ns;
	__u64 page_sleeps;
	__u32 call_tid;
	__u32 page_tid;
};

#endif
