/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Guest RAM that is discarded or populated again: memory balloons and free page
 * reporting. A VMM calls madvise, or fallocate if the RAM is backed by a file:
 *
 *   balloon inflates   one page per call: DONTNEED, or PUNCH_HOLE and DONTNEED
 *   balloon deflates   one page per call: WILLNEED
 *   guest reports      2 MiB and more per call: the same calls as inflation
 *
 * A range backed by a file is counted at the fallocate, which frees it, and not at the
 * DONTNEED that accompanies it; MADV_REMOVE is a fallocate inside the kernel. Other
 * ranges are counted at the madvise.
 *
 * The programs run for every such call on the host, so they return at once if the call is
 * of another kind or its process has no guest RAM: one lookup.
 */
#include "memory.bpf.h"

/* Returns the current task. Its pointers are typed where the kernel provides
 * bpf_get_current_task_btf (since v5.11, like task storage); otherwise its fields are
 * read with bpf_probe_read_kernel. */
static __always_inline struct task_struct *get_task(void)
{
	return cfg.task_storage ? bpf_get_current_task_btf() : (void *)bpf_get_current_task();
}

struct self {
	struct task_struct *task;
	__u32 tgid;
	/* Whether it is known to be the thread group leader. */
	bool is_leader;
};
static __always_inline struct self get_self(void)
{
	struct self self = { .task = get_task() };
	__u64 ids;

	if (cfg.task_storage) {
		self.tgid = self.task->tgid;
	} else {
		ids = bpf_get_current_pid_tgid();
		self.tgid = ids >> 32;
		self.is_leader = (__u32)ids == self.tgid;
	}
	return self;
}

/* Whether this process is the VMM of `ram` and not one that reuses its pid. Where each
 * read is a helper call, the pointer to the thread group leader is not read if this
 * thread is the leader, which mostly handles the balloon. */
static __always_inline bool is_own(const struct self *self, const struct ram *ram)
{
	struct task_struct *leader = self->task;

	if (cfg.task_storage)
		return leader->group_leader->start_boottime == ram->start_ns;
	if (!self->is_leader)
		leader = BPF_CORE_READ(leader, group_leader);
	return BPF_CORE_READ(leader, start_boottime) == ram->start_ns;
}

/* Number of voluntary context switches of this thread. */
static __always_inline __u64 own_sleeps(struct task_struct *self)
{
	return cfg.task_storage ? self->nvcsw : BPF_CORE_READ(self, nvcsw);
}

static __always_inline struct mm_struct *own_mm(struct task_struct *self)
{
	return cfg.task_storage ? self->mm : BPF_CORE_READ(self, mm);
}

/* Resident memory of this process that can be guest RAM, bytes. */
static __always_inline __u64 own_ram_bytes(struct task_struct *self, const struct ram *ram)
{
	struct mm_struct *mm = own_mm(self);
	struct resident pages = {};

	if (!mm || !RSS_IS_KNOWN(mm))
		return 0;
	read_resident(mm, &pages);
	return ram_bytes_of(ram->backing, &pages, mm);
}

/*
 * How calls are timed. A large call is timed from its entry to its return. Single-page
 * calls come in long series, and a program at their entry would slow down each of them.
 * So one call in 64 is timed, from the return of the call before it, and its time counts
 * 64 times. It includes the work of the VMM and of the kernel for one page; a sample in
 * which the VMM waited for its guest is discarded. A hash of the page address selects the
 * calls: the first page of a huge page costs more than the others, and a fixed interval
 * could select only such pages, or none.
 */
#define LARGE_BYTES (64ULL << 10)
#define TIMED_SHIFT 6
/* Longer than any page takes: a longer sample includes other work of the thread, or time
 * in which it did not run. */
#define PAGE_MAX_NS (1ULL << 20)
static __always_inline bool is_next_timed(__u64 start)
{
	return (start / PAGE_SIZE * 0x9e3779b97f4a7c15ULL) >> (64 - TIMED_SHIFT) == 0;
}

/* Starts the timing of this thread's next small call. */
static __noinline void begin_page(struct discards *sums)
{
	sums->page_tid = (__u32)bpf_get_current_pid_tgid();
	sums->page_sleeps = own_sleeps(get_task());
	sums->page_began_ns = bpf_ktime_get_ns();
}

/* Ends the timing of a small call. If the thread slept or did other work in between, or
 * another thread made this call, the sample is discarded, and the next call is timed
 * instead. */
static __noinline void end_page(struct discards *sums, __u64 began_ns, __u32 discard)
{
	__u64 ns = bpf_ktime_get_ns() - began_ns;

	if (discard >= DISCARDS)
		return;
	if (ns > PAGE_MAX_NS || sums->page_tid != (__u32)bpf_get_current_pid_tgid() ||
	    sums->page_sleeps != own_sleeps(get_task())) {
		begin_page(sums);
		return;
	}
	sums->page_began_ns = 0;
	__sync_fetch_and_add(&sums->ns[discard], ns << TIMED_SHIFT);
}

/* Starts the timing of a large call. */
static __noinline void begin_call(const struct ram *ram, __u64 bytes)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct self self = get_self();
	struct discards *sums;

	/* Large calls are timed only for VMs that discard in large pieces, so that
	 * results do not depend on which other VMs run on the node. */
	if (ram->other_min_bytes != ~0ULL || !is_own(&self, ram))
		return;
	sums = discards_of(ram);
	if (!sums)
		return;
	if (sums->call_tid && sums->call_tid != tid)
		count_drop(DROP_DISCARDS_AT_ONCE);
	*(volatile __u32 *)&sums->call_tid = tid;
	if (bytes >= ram->report_min_bytes)
		sums->call_resident_bytes = own_ram_bytes(self.task, ram);
	*(volatile __u64 *)&sums->call_began_ns = bpf_ktime_get_ns();
}

/* Ends the timing of a large call. */
static __noinline void end_call(const struct ram *ram, struct discards *sums, __u32 discard,
				bool counts)
{
	struct mm_struct *mm;
	__u64 began_ns;

	/* Read before `call_tid`: a call that starts concurrently writes its thread
	 * before its time. */
	began_ns = *(volatile __u64 *)&sums->call_began_ns;
	/* The start of this call was not seen, or another call has started since. */
	if (*(volatile __u32 *)&sums->call_tid != (__u32)bpf_get_current_pid_tgid())
		return;
	if (discard < DISCARDS)
		__sync_fetch_and_add(&sums->ns[discard], bpf_ktime_get_ns() - began_ns);
	if (counts && discard == DISCARD_REPORT) {
		mm = own_mm(get_task());
		settle_resident(sums, sums->call_resident_bytes, mm ? rss_error_bytes(mm) : 0);
		/* Memory that other threads faulted in meanwhile is missing from both
		 * sums. */
		note_report(sums, own_ram_bytes(get_task(), ram));
	}
	sums->call_tid = 0;
}

/* Classifies a discard of `bytes` at `start`. */
static __always_inline __u32 discard_of(const struct ram *ram, const struct ram_range *range,
					__u64 start, __u64 bytes)
{
	__u64 end = start + bytes;

	if (end > range->end || (start == range->start && end == range->end) ||
	    bytes >= ram->other_min_bytes)
		return DISCARD_OTHER;
	return bytes >= ram->report_min_bytes ? DISCARD_REPORT : DISCARD_INFLATE;
}

/* Handles the return of a call. `counts` is false if another call for the same range is
 * counted as the discard. */
static __always_inline void count_call(const struct self *self, const struct ram *ram,
				       __u32 discard, __u64 start, __u64 bytes, bool counts)
{
	struct discards *sums;
	__u64 began_ns;

	if (!is_own(self, ram))
		return;
	sums = discards_of(ram);
	if (!sums)
		return;
	if (counts && discard < DISCARDS) {
		__sync_fetch_and_add(&sums->events[discard], 1);
		__sync_fetch_and_add(&sums->bytes[discard], bytes);
	}
	if (bytes >= LARGE_BYTES) {
		/* The large call must not count as time of a page. */
		sums->page_began_ns = 0;
		end_call(ram, sums, discard, counts);
		return;
	}
	if (discard >= DISCARDS)
		return;
	began_ns = *(volatile __u64 *)&sums->page_began_ns;
	if (began_ns)
		end_page(sums, began_ns, discard);
	if (is_next_timed(start))
		begin_page(sums);
}

/* Returns the RAM range at an address, NULL if there is none. */
static __always_inline struct ram_range *range_at(struct ram *ram, __u64 address)
{
	struct ram_range *range;

	for (__u32 at = 0; at < RAM_RANGES_MAX; at++) {
		if (at >= ram->ranges)
			return NULL;
		range = &ram->range[at];
		if (address >= range->start && address < range->end)
			return range;
	}
	return NULL;
}

/* Returns the RAM range at an offset of a file, NULL if there is none. */
static __always_inline struct ram_range *range_in(struct ram *ram, struct file *file, __u64 offset)
{
	__u64 inode = file->f_inode->i_ino;
	__u32 device = file->f_inode->i_sb->s_dev;
	struct ram_range *range;

	for (__u32 at = 0; at < RAM_RANGES_MAX; at++) {
		if (at >= ram->ranges)
			return NULL;
		range = &ram->range[at];
		if (range->inode == inode && range->device == device && offset >= range->offset &&
		    offset - range->offset < range->end - range->start)
			return range;
	}
	return NULL;
}

static __always_inline bool may_discard(const struct syscall_args *args)
{
	return (__u32)args->third == MADV_DONTNEED || (__u32)args->third == MADV_WILLNEED;
}

/* The entry programs, this one and on_fallocate, are attached only if a VM may discard
 * large pieces: see TaskPass::set_ram, crates/probe/src/source.rs. */
SEC("fentry/__x64_sys_madvise")
int on_madvise(__u64 *ctx)
{
	struct syscall_args args;
	struct ram *ram;

	if (!read_syscall_args(ctx, &args) || args.second < LARGE_BYTES || !may_discard(&args))
		return 0;
	ram = ram_of(get_self().tgid);
	if (ram && is_active() && range_at(ram, args.first))
		begin_call(ram, args.second);
	return 0;
}

/* Attached to the system call's function and not to do_madvise, which compilers inline
 * into it: on Debian's 5.10 no call reaches the function of that name. Only madvise calls
 * run this program, so others are not slowed down. */
SEC("fexit/__x64_sys_madvise")
int on_madvise_ret(__u64 *ctx)
{
	__u32 discard = DISCARDS;
	struct syscall_args args;
	struct ram_range *range;
	bool counts = true;
	struct self self;
	struct ram *ram;

	if (!read_syscall_args(ctx, &args) || !may_discard(&args))
		return 0;
	self = get_self();
	ram = ram_of(self.tgid);
	if (!ram || !is_active())
		return 0;
	range = range_at(ram, args.first);
	/* A failed call discarded nothing. */
	if (range && !ctx[1] && (__u32)args.third == MADV_WILLNEED) {
		discard = DISCARD_DEFLATE;
	} else if (range && !ctx[1]) {
		discard = discard_of(ram, range, args.first, args.second);
		counts = !range->inode;
	}
	count_call(&self, ram, discard, args.first, args.second, counts);
	return 0;
}

SEC("fentry/vfs_fallocate")
int BPF_PROG(on_fallocate, struct file *file, int mode, __s64 offset, __s64 bytes)
{
	struct ram *ram;

	if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) || (__u64)bytes < LARGE_BYTES)
		return 0;
	ram = ram_of(get_self().tgid);
	if (ram && is_active() && range_in(ram, file, offset))
		begin_call(ram, bytes);
	return 0;
}

SEC("fexit/vfs_fallocate")
int BPF_PROG(on_falloc_ret, struct file *file, int mode, __s64 offset, __s64 bytes, int result)
{
	__u32 discard = DISCARDS;
	struct ram_range *range;
	struct self self;
	struct ram *ram;

	if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
		return 0;
	self = get_self();
	ram = ram_of(self.tgid);
	if (!ram || !is_active())
		return 0;
	range = range_in(ram, file, offset);
	if (range && !result)
		discard = discard_of(ram, range, range->start + offset - range->offset, bytes);
	count_call(&self, ram, discard, offset, bytes, true);
	return 0;
}
