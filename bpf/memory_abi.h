/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The memory part of the interface: records of a pass, the location of RAM, and counters
 * of discards. crates/abi/src/memory.rs mirrors it by the rules of abi.h.
 */
#ifndef VIRTLENS_MEMORY_ABI_H
#define VIRTLENS_MEMORY_ABI_H

#include "record_abi.h"

/* QEMU's pc machine has about ten; a guest with a thousand DIMMs is only partly shown. */
#define MEMSLOTS_MAX 128
/* Ranges of host memory that back a guest's RAM: below and above the PCI hole, a few
 * DIMMs, and the parts that BIOS regions split them into. */
#define RAM_RANGES_MAX 16
/* VMs whose RAM is tracked: about ten times the pod limit of a kubelet. */
#define RAM_MAX 4096
/* VMMs per bucket: those with equal tgid modulo RAM_MAX. */
#define RAM_WAYS 4

/* Memory of a VM's process, emitted in each pass. */
struct memory_record {
	struct record_head head;
	struct owner owner;
	/* Mapped anonymous, shared and file pages; UNKNOWN if the layout of this kernel's
	 * counters is not supported. */
	__u64 resident_bytes;
	/* Private pages in swap, not those of shared memory; UNKNOWN likewise. */
	__u64 swap_bytes;
	/* The peak of `resident_bytes` as recorded by the kernel. */
	__u64 peak_bytes;
	/* hugetlbfs pages; not part of `resident_bytes`. */
	__u64 hugetlb_bytes;
	/* Memory that the guest reported free and has since taken again; UNKNOWN until
	 * the agent has set the location of its RAM. */
	__u64 refault_bytes;
};

/* A KVM memslot: host memory that is mapped into the guest. */
struct memslot {
	__u64 start;
	__u64 bytes;
	/* The page cache of its guest_memfd, as an address, and the bytes in it: all pages
	 * of the file, also those of other slots. 0 without a guest_memfd. */
	__u64 guest_memfd;
	__u64 guest_memfd_bytes;
	/* KVM_MEM_READONLY and others, include/uapi/linux/kvm.h. */
	__u32 flags;
	__u32 pad;
};

/* The memslots of a VM; `struct memslot`s follow. Emitted when they have changed, and in each
 * pass if one has a guest_memfd, because its bytes change without them. */
struct memslots_record {
	struct record_head head;
	struct owner owner;
	/* KVM's generation of the set. */
	__u64 generation;
};

/* A range of host memory that backs a guest's RAM. */
struct ram_range {
	__u64 start;
	__u64 end;
	/* The backing file; inode 0: anonymous memory. */
	__u64 inode;
	__u64 offset;
	/* The kernel's encoding: 12 bits major, 20 bits minor (MKDEV). */
	__u32 device;
	__u32 pad;
};

/* Backing of a VM's RAM: it decides which resident memory can be RAM. */
enum ram_backing {
	/* A file on disk, or unknown: all resident memory. */
	RAM_OF_ANY = 0,
	/* No file: anonymous memory, which includes the VMM's own. */
	RAM_ANONYMOUS = 1,
	/* A memfd, tmpfs or hugetlbfs: shared memory and huge pages. */
	RAM_SHARED = 2,
};

/* Value of array `ram_buckets`, index: tgid modulo RAM_MAX. Maps a VMM to its entry of
 * `ram`; tgid 0: free. */
struct ram_bucket {
	__u32 tgid[RAM_WAYS];
	__u32 ram[RAM_WAYS];
};

/* Value of array `ram`: the location of a VM's RAM and the size thresholds that classify
 * its discards. */
struct ram {
	__u64 start_ns;
	/* Discards of at least this size are neither inflations nor reports. */
	__u64 other_min_bytes;
	/* Below that, discards of at least this size are reports; smaller ones are
	 * inflations. */
	__u64 report_min_bytes;
	/* Index of the VM's entry in `discards`. */
	__u32 discards;
	/* enum ram_backing. */
	__u32 backing;
	__u32 ranges;
	__u32 pad;
	struct ram_range range[RAM_RANGES_MAX];
};

/* Kind of a discard: index into the counters of `struct discards`. */
enum discard {
	/* Balloon inflation: the guest gave a page to the host. */
	DISCARD_INFLATE = 0,
	/* Balloon deflation: the guest takes a page back. */
	DISCARD_DEFLATE = 1,
	/* Free page reporting: the guest reported it as free. */
	DISCARD_REPORT = 2,
	/* Memory unplug, migration or reset. */
	DISCARD_OTHER = 3,
	DISCARDS = 4,
};

/* Value of array `discards`, one per VM. Counted since the VM was first seen. */
struct discards {
	__u64 events[DISCARDS];
	__u64 bytes[DISCARDS];
	__u64 ns[DISCARDS];
	/* Reported memory that the guest has taken again, up to the last report. */
	__u64 refault_bytes;
	/* Memory released by reports and not yet taken again. */
	__u64 released_bytes;
	/* Decrease of resident RAM between reports that the balloon caused: growth is
	 * subtracted from it first. */
	__u64 other_bytes;
	/* Resident RAM after the last report, or a lower value seen by a later pass. */
	__u64 resident_bytes;
	/* Bytes discarded by inflation or for other reasons up to that moment. */
	__u64 taken_bytes;
	/* The large call in progress: its start, the resident RAM before it, and in
	 * `call_tid` its thread, 0 if there is none. */
	__u64 call_began_ns;
	__u64 call_resident_bytes;
	/* End of the small call from which the next call is timed, 0 if none is; the
	 * number of voluntary context switches of its thread at that moment, and in
	 * `page_tid` the thread. */
	__u64 page_began_ns;
	__u64 page_sleeps;
	__u32 call_tid;
	__u32 page_tid;
};

#endif
