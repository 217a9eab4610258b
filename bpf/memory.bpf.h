/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The memory of a VM, and the location of its RAM in its VMM's address space.
 */
#ifndef VIRTLENS_MEMORY_BPF_H
#define VIRTLENS_MEMORY_BPF_H

#include "stream.bpf.h"
#include "thread_state.bpf.h"
#include "refault.h"

/* Location of the RAM of VMs, set by the agent. Arrays, which are cheaper than a hash:
 * each page of a balloon looks up its VM's RAM, and each madvise of any process tests
 * whether the process is a VMM. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RAM_MAX);
	__type(key, __u32);
	__type(value, struct ram_bucket);
} ram_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RAM_MAX);
	__type(key, __u32);
	__type(value, struct ram);
} ram SEC(".maps");

/* Discard counters of that RAM. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RAM_MAX);
	__type(key, __u32);
	__type(value, struct discards);
} discards SEC(".maps");

/* Buffer for the records of a VM's memory. */
struct memory_buffer {
	struct memory_record memory;
	struct memslots_record record;
	struct memslot slots[MEMSLOTS_MAX];
	/* The position of copy_memslots. Kept here and not on the stack, so that the
	 * verifier does not track their values: it would check each number separately. */
	__u32 count;
	__u32 bucket;
	__u64 node;
	/* A copied slot has a guest_memfd. */
	__u64 has_guest_memfd;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct memory_buffer);
} memory_buffer SEC(".maps");
_Static_assert(sizeof(struct memory_buffer) <= RECORD_MAX, "the largest record fits");

/* Up to 128 buckets and 128 slots, plus one slot more to detect an overflow. */
#define MEMSLOT_STEPS 257
/* Set while the memslots are being changed (include/linux/kvm_host.h:
 * KVM_MEMSLOT_GEN_UPDATE_IN_PROGRESS). */
#define MEMSLOTS_CHANGE (1ULL << 63)

static __always_inline __u64 bytes_of(__s64 pages)
{
	return pages > 0 ? (__u64)pages * PAGE_SIZE : 0;
}

/* Before v6.2 each thread batches up to this many pages (mm/memory.c:
 * TASK_RSS_EVENTS_THRESH). */
#define RSS_PAGES_OF_THREAD 64

/* Maximum error of the resident memory of `mm`, bytes. Since v6.2 each CPU batches up to
 * 32 pages, or twice the number of CPUs if that is more (lib/percpu_counter.c:
 * compute_batch_value): 32 MiB on 64 CPUs. */
static __always_inline __u64 rss_error_bytes(struct mm_struct *mm)
{
	if (RSS_IS_PERCPU(mm))
		return cfg.rss_error_bytes;
	return bytes_of(READ_WORD(mm->mm_users.counter) * RSS_PAGES_OF_THREAD);
}

/* Returns the RAM of the VM whose VMM is the process `tgid`, NULL if unknown. */
static __always_inline struct ram *ram_of(__u32 tgid)
{
	__u32 index = tgid % RAM_MAX;
	struct ram_bucket *bucket = bpf_map_lookup_elem(&ram_buckets, &index);

	if (!bucket)
		return NULL;
	for (int way = 0; way < RAM_WAYS; way++) {
		if (bucket->tgid[way] == tgid) {
			index = bucket->ram[way];
			return bpf_map_lookup_elem(&ram, &index);
		}
	}
	return NULL;
}

/* Returns the discard counters of a VM's RAM. */
static __always_inline struct discards *discards_of(const struct ram *ram)
{
	__u32 index = ram->discards;

	return bpf_map_lookup_elem(&discards, &index);
}

static __always_inline __s64 huge_pages(struct mm_struct *mm)
{
	return bpf_core_field_exists(mm->hugetlb_usage) ? READ_WORD(mm->hugetlb_usage.counter) : 0;
}

/* Resident memory that can be guest RAM, bytes. */
static __always_inline __u64 ram_bytes_of(__u32 backing, const struct resident *pages,
					  struct mm_struct *mm)
{
	if (backing == RAM_ANONYMOUS)
		return bytes_of(pages->anon);
	if (backing == RAM_SHARED)
		return bytes_of(pages->shared + huge_pages(mm));
	return bytes_of(pages->file + pages->anon + pages->shared + huge_pages(mm));
}

/* Reads the resident pages of `mm`, and returns how much reported memory the guest has
 * taken again so far. A pass also detects memory that the VMM freed itself since the last
 * report: growth from that lower value is the guest's. */
static __always_inline __u64 read_refault(const struct thread_state *state, struct mm_struct *mm,
					  struct resident *pages)
{
	struct ram *known = ram_of(state->owner.tgid);
	struct discards *sums = NULL;
	struct discards before;
	__u64 bytes;

	if (known && known->start_ns == state->owner.id)
		sums = discards_of(known);
	if (!known || !sums) {
		read_resident(mm, pages);
		return UNKNOWN;
	}
	before = *sums;
	barrier();
	read_resident(mm, pages);
	/* The sums and the resident pages are consistent only if no large discard
	 * happened in between. */
	if (before.call_tid || *(volatile __u32 *)&sums->call_tid ||
	    *(volatile __u64 *)&sums->events[DISCARD_REPORT] != before.events[DISCARD_REPORT])
		return before.refault_bytes;
	bytes = ram_bytes_of(known->backing, pages, mm);
	if (bytes < before.resident_bytes)
		settle_resident(sums, bytes, rss_error_bytes(mm));
	return before.refault_bytes + taken_again(&before, bytes);
}

/* Emits the memory of the VM's process. Called for one vCPU of each VM. */
static __noinline void emit_memory(struct output *out, struct task_struct *task,
				   const struct thread_state *state)
{
	struct mm_struct *mm = FOLLOW(task->mm);
	struct memory_buffer *buffer;
	struct memory_record *record;
	struct resident pages = {};
	__u32 zero = 0;

	buffer = bpf_map_lookup_elem(&memory_buffer, &zero);
	if (!buffer || !mm)
		return;
	record = &buffer->memory;
	record->head.kind = RECORD_MEMORY;
	record->head.size = sizeof(*record);
	record->owner = state->owner;
	record->resident_bytes = record->swap_bytes = record->peak_bytes = UNKNOWN;
	record->hugetlb_bytes = bytes_of(huge_pages(mm));
	record->refault_bytes = UNKNOWN;
	if (RSS_IS_KNOWN(mm)) {
		record->refault_bytes = read_refault(state, mm, &pages);
		record->resident_bytes = bytes_of(pages.file + pages.anon + pages.shared);
		record->swap_bytes = bytes_of(pages.swapped);
		/* The kernel updates hiwater_rss only when memory is released. */
		record->peak_bytes = mm->hiwater_rss * PAGE_SIZE;
		if (record->peak_bytes < record->resident_bytes)
			record->peak_bytes = record->resident_bytes;
	}
	emit(out, record, sizeof(*record));
}

/* Copies a memslot; false if the buffer is full. A slot that could not be read is copied
 * as 0, and the agent skips it. */
static __always_inline bool copy_memslot(struct memory_buffer *buffer,
					 struct kvm_memory_slot *slot)
{
	__u32 at = *(volatile __u32 *)&buffer->count;
	struct address_space *pages;
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
	copy->guest_memfd = copy->guest_memfd_bytes = 0;
	if (copy->flags & KVM_MEM_GUEST_MEMFD) {
		buffer->has_guest_memfd = true;
		pages = guest_memfd_of(slot);
		copy->guest_memfd = (__u64)pages;
		if (pages)
			copy->guest_memfd_bytes = READ_0(pages->nrpages) * PAGE_SIZE;
	}
	buffer->count = at + 1;
	return true;
}

/* A step of copy_memslots: copies the next slot of an array, or of a hash, or goes on to the
 * next bucket. False after the last one. Separate functions, so that the compiler moves no
 * access that exists on one kind of kernel only out of its branch. Before v6.8 the verifier
 * also checks global functions that are not called. */
ONCE bool copy_next_of_array(__u64 address)
{
	struct kvm_memslots *slots = (void *)address;
	struct memory_buffer *buffer;
	__u32 zero = 0;

	if (!MEMSLOTS_ARE_ARRAY(slots))
		return false;
	buffer = bpf_map_lookup_elem(&memory_buffer, &zero);
	return buffer && buffer->count < memslots_in_array(slots) &&
	       copy_memslot(buffer, memslot_in_array(slots, buffer->count));
}

ONCE bool copy_next_of_hash(__u64 address)
{
	struct kvm_memslots *slots = (void *)address;
	struct memory_buffer *buffer;
	struct hlist_node *node;
	__u32 zero = 0, bucket;

	if (MEMSLOTS_ARE_ARRAY(slots))
		return false;
	buffer = bpf_map_lookup_elem(&memory_buffer, &zero);
	if (!buffer)
		return false;
	node = (void *)buffer->node;
	if (!node) {
		bucket = buffer->bucket;
		if (bucket >= 128)
			return false;
		buffer->bucket = bucket + 1;
		node = READ_0(slots->id_hash[bucket].first);
	} else {
		if (!copy_memslot(buffer, memslot_of_node(node, READ_0(slots->node_idx))))
			return false;
		node = READ_0(node->next);
	}
	buffer->node = (__u64)node;
	return true;
}

/* Copies the memslots at `address` to the buffer; returns their number. */
ONCE __u32 copy_memslots(__u64 address)
{
	struct memory_buffer *buffer;
	bool has_more = true;
	__u32 zero = 0;

	buffer = bpf_map_lookup_elem(&memory_buffer, &zero);
	if (!buffer)
		return 0;
	buffer->count = 0;
	buffer->bucket = 0;
	buffer->node = 0;
	buffer->has_guest_memfd = false;
	for (int step = 0; step < MEMSLOT_STEPS && has_more; step++) {
		if (MEMSLOTS_ARE_ARRAY((struct kvm_memslots *)address))
			has_more = copy_next_of_array(address);
		else
			has_more = copy_next_of_hash(address);
	}
	return buffer->count;
}

/* Emits a VM's memslots if they have changed or have a guest_memfd. KVM frees the old set
 * on a change (virt/kvm/kvm_main.c), so the copy is emitted only if pointer and generation
 * are unchanged after copying. */
static __noinline void emit_memslots(struct output *out, struct thread_state *state,
				     const struct control *control)
{
	struct kvm_vcpu *vcpu = (struct kvm_vcpu *)state->vcpu;
	struct kvm *kvm = READ_WORD(vcpu->kvm);
	struct kvm_memslots *slots = READ_WORD(kvm->memslots[0]);
	__u64 generation = READ_WORD(slots->generation);
	struct memory_buffer *buffer;
	__u32 zero = 0, size, count;

	/* The record of this pass is emitted again for the same task, because the kernel
	 * may have dropped it. */
	if (!slots || generation & MEMSLOTS_CHANGE ||
	    (state->slots_generation == generation && state->slots_session == control->session &&
	     state->slots_pass != control->pass))
		return;
	count = copy_memslots((__u64)slots);
	if (READ_WORD(kvm->memslots[0]) != slots ||
	    READ_WORD(slots->generation) != generation)
		return;
	buffer = bpf_map_lookup_elem(&memory_buffer, &zero);
	size = count * sizeof(struct memslot) + sizeof(buffer->record);
	/* The verifiers of 5.10 and 6.1 track the bounds of a register, not of its copy
	 * on the stack. */
	barrier_var(size);
	if (!buffer || size > sizeof(buffer->record) + sizeof(buffer->slots))
		return;
	buffer->record.head.kind = RECORD_MEMSLOTS;
	buffer->record.head.size = size;
	buffer->record.owner = state->owner;
	buffer->record.generation = generation;
	emit(out, &buffer->record, size);
	state->slots_generation = generation;
	/* No session is 0: the next pass emits them again. */
	state->slots_session = buffer->has_guest_memfd ? 0 : control->session;
	state->slots_pass = control->pass;
}

#endif
