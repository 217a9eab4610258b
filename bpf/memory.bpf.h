/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a VM holds of memory, and where its RAM lies in its VMM's process.
 */
#ifndef VIRTLENS_MEMORY_BPF_H
#define VIRTLENS_MEMORY_BPF_H

#include "maps.bpf.h"

/* 128 buckets, as many slots and one too many. */
#define MEMSLOT_STEPS 257
/* Set while memslots are being changed (include/linux/kvm_host.h:
 * KVM_MEMSLOT_GEN_UPDATE_IN_PROGRESS). */
#define MEMSLOTS_CHANGE (1ULL << 63)

static __always_inline __u64 bytes_of(__s64 pages)
{
	return pages > 0 ? (__u64)pages * PAGE_SIZE : 0;
}

/* How much resident memory may fall for no reason that is known here, and be
 * made up for: the kernel keeps some of it aside, now more and now less. What a
 * VMM frees of its own is mostly more than this. */
#define UNKNOWN_FALL (1ULL << 20)

/* Resident memory has fallen, and by no report: what grows next is what the
 * balloon took and not what was reported. */
static __always_inline void note_fall(struct discards *sums, __u64 bytes)
{
	__u64 taken = sums->bytes[DISCARD_INFLATE] + sums->bytes[DISCARD_OTHER];
	__u64 room = taken - sums->taken_bytes;

	if (sums->other_bytes < UNKNOWN_FALL)
		room += UNKNOWN_FALL - sums->other_bytes;
	sums->other_bytes += bytes < room ? bytes : room;
}

/* Resident memory is `resident` now, before a report or in a pass: what has grown
 * is what the guest has taken again, up to what reports released. VMMs report
 * from one thread at a time, so that nothing is lost but by a pass that comes in
 * between, and then at most UNKNOWN_FALL. */
static __always_inline void settle_resident(struct discards *sums, __u64 resident)
{
	__u64 grown = 0, part;

	if (resident > sums->resident_bytes)
		grown = resident - sums->resident_bytes;
	else
		note_fall(sums, sums->resident_bytes - resident);
	sums->resident_bytes = resident;
	sums->taken_bytes = sums->bytes[DISCARD_INFLATE] + sums->bytes[DISCARD_OTHER];
	part = grown < sums->other_bytes ? grown : sums->other_bytes;
	sums->other_bytes -= part;
	grown -= part;
	part = grown < sums->released_bytes ? grown : sums->released_bytes;
	sums->released_bytes -= part;
	sums->refault_bytes += part;
}

/* A pass sees what a VMM has freed of its own since the last report: what grows
 * from there on is the guest's. */
static __always_inline void settle_fall(const struct mark *mark, __u64 resident)
{
	__u32 tgid = mark->owner.tgid;
	struct discards *sums = bpf_map_lookup_elem(&discards, &tgid);

	if (sums && sums->start_ns == mark->owner.id && resident < sums->resident_bytes)
		settle_resident(sums, resident);
}

/* What its process holds. Asked of one vCPU for all. */
static __noinline void tell_memory(struct seq_file *seq, struct task_struct *task,
				   const struct mark *mark)
{
	struct mm_struct *mm = task->mm;
	struct memory_buffer *buffer;
	struct memory_record *record;
	__u32 zero = 0;

	buffer = bpf_map_lookup_elem(&memory_buffer, &zero);
	if (!buffer || !mm)
		return;
	record = &buffer->memory;
	record->head.kind = RECORD_MEMORY;
	record->head.size = sizeof(*record);
	record->owner = mark->owner;
	record->resident_bytes = record->peak_bytes = UNKNOWN;
	if (RSS_IS_ATOMIC(mm) || RSS_IS_PERCPU(mm)) {
		record->resident_bytes = bytes_of(resident_pages(mm));
		/* The kernel notes it only where memory is given back. */
		record->peak_bytes = mm->hiwater_rss * PAGE_SIZE;
		if (record->peak_bytes < record->resident_bytes)
			record->peak_bytes = record->resident_bytes;
	}
	record->hugetlb_bytes = 0;
	if (bpf_core_field_exists(mm->hugetlb_usage))
		record->hugetlb_bytes = bytes_of(READ_OR(0, mm->hugetlb_usage.counter));
	bpf_seq_write(seq, record, sizeof(*record));
	if (record->resident_bytes != UNKNOWN)
		settle_fall(mark, record->resident_bytes + record->hugetlb_bytes);
}

/* A probe read whose failure is 0, as the kernel leaves it: no branch for the
 * verifier to follow. */
#define READ_0(source)                                                         \
	({                                                                     \
		typeof(source) __value;                                        \
		bpf_core_read(&__value, sizeof(__value), &(source));           \
		__value;                                                       \
	})

/* Copies a memslot; false if there is no room. The agent leaves out one that
 * could not be read. */
static __always_inline bool copy_memslot(struct memory_buffer *buffer,
					 struct kvm_memory_slot *slot)
{
	__u32 at = *(volatile __u32 *)&buffer->count;
	struct memslot *copy;

	if (at >= MEMSLOTS_MAX) {
		count_drop(DROP_MEMSLOTS);
		return false;
	}
	copy = &buffer->slots[at];
	copy->start = READ_0(slot->userspace_addr);
	copy->bytes = READ_0(slot->npages) * PAGE_SIZE;
	copy->flags = READ_0(slot->flags);
	copy->pad = 0;
	buffer->count = at + 1;
	return true;
}

/* These two are functions, so that nothing that only one kind of kernel has is
 * moved out of its loop. */
static __noinline void copy_array(struct memory_buffer *buffer, struct kvm_memslots *slots)
{
	__u32 count = memslots_in_array(slots);

	for (__u32 index = 0; index <= MEMSLOTS_MAX; index++) {
		if (index >= count || !copy_memslot(buffer, memslot_in_array(slots, index)))
			return;
	}
}

static __noinline void copy_hash(struct memory_buffer *buffer, struct kvm_memslots *slots)
{
	__u32 bucket, node_idx = READ_0(slots->node_idx);
	struct hlist_node *node = NULL;

	buffer->bucket = 0;
	for (int step = 0; step < MEMSLOT_STEPS; step++) {
		if (!node) {
			bucket = *(volatile __u32 *)&buffer->bucket;
			if (bucket >= 128)
				return;
			node = READ_0(slots->id_hash[bucket].first);
			buffer->bucket = bucket + 1;
		} else {
			if (!copy_memslot(buffer, memslot_of_node(node, node_idx)))
				return;
			node = READ_0(node->next);
		}
	}
}

/* Tells of a VM's memslots where they have changed. KVM frees them when they
 * change (virt/kvm/kvm_main.c), so they are believed only if they still are the
 * same ones when they have been copied. */
static __noinline void tell_memslots(struct seq_file *seq, struct mark *mark,
				     const struct control *control)
{
	struct kvm_vcpu *vcpu = (struct kvm_vcpu *)mark->vcpu;
	struct kvm *kvm = READ_0(vcpu->kvm);
	struct kvm_memslots *slots = READ_0(kvm->memslots[0]);
	__u64 generation = READ_OR(MEMSLOTS_CHANGE, slots->generation);
	struct memory_buffer *buffer;
	__u32 zero = 0, size;

	/* What this pass told is told again where the kernel dropped it. */
	if (generation & MEMSLOTS_CHANGE ||
	    (mark->slots_generation == generation && mark->slots_session == control->session &&
	     mark->slots_pass != control->pass))
		return;
	buffer = bpf_map_lookup_elem(&memory_buffer, &zero);
	if (!buffer)
		return;
	buffer->count = 0;
	if (MEMSLOTS_ARE_ARRAY(slots))
		copy_array(buffer, slots);
	else
		copy_hash(buffer, slots);
	if (READ_0(kvm->memslots[0]) != slots ||
	    READ_OR(MEMSLOTS_CHANGE, slots->generation) != generation)
		return;
	size = buffer->count * sizeof(struct memslot) + sizeof(buffer->record);
	/* 5.10 and 6.1 know the bounds of a register, not of its copy on the stack. */
	barrier_var(size);
	if (size > sizeof(buffer->record) + sizeof(buffer->slots))
		return;
	buffer->record.head.kind = RECORD_MEMSLOTS;
	buffer->record.head.size = size;
	buffer->record.owner = mark->owner;
	bpf_seq_write(seq, &buffer->record, size);
	mark->slots_generation = generation;
	mark->slots_session = control->session;
	mark->slots_pass = control->pass;
}

#endif
