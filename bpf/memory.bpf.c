/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RAM that is taken from guests and given back: balloons and free page reports.
 * A VMM does it by madvise, or fallocate where a file is behind the RAM:
 *
 *   balloon inflates   a page each: DONTNEED, or PUNCH_HOLE and DONTNEED
 *   balloon deflates   a page each: WILLNEED
 *   guest reports      2 MiB and more: as it inflates
 *
 * Which range counts where: one with a file behind it at the fallocate, which
 * frees it, and not at the DONTNEED beside it; MADV_REMOVE is a fallocate inside
 * the kernel. Others at the madvise.
 *
 * These run for every such call of the host, so they leave at once where the
 * call is none of these or not of a process with a guest's RAM: one lookup.
 */
#include "memory.bpf.h"

/* The RAM of the VM whose VMM this is. */
static __always_inline struct ram *own_ram(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	return bpf_map_lookup_elem(&ram, &tgid);
}

/* This thread, where the kernel gives it with its type (since v5.11), and where
 * not. */
static __always_inline struct task_struct *typed_self(void)
{
	return bpf_get_current_task_btf();
}

static __always_inline struct task_struct *untyped_self(void)
{
	return (void *)bpf_get_current_task();
}

/* Whether this process is the VMM that `ram` is of, and not one that was given
 * its pid. */
static __always_inline bool is_own(const struct ram *ram)
{
	__u64 start_ns = cfg.task_storage ?
				 typed_self()->group_leader->start_boottime :
				 BPF_CORE_READ(untyped_self(), group_leader, start_boottime);

	return start_ns == ram->start_ns;
}

/* The mark of this thread, NULL if it has none. */
static __always_inline struct mark *own_mark(void)
{
	struct mark_key key = {};

	if (cfg.task_storage)
		return mark_of(typed_self());
	key.start_ns = BPF_CORE_READ(untyped_self(), start_boottime);
	key.tid = (__u32)bpf_get_current_pid_tgid();
	return bpf_map_lookup_elem(&marks_hash, &key);
}

static __always_inline struct mark *make_own_mark(const struct ram *ram)
{
	struct mark fresh = { .owner = { .id = ram->start_ns }, .vcpu_id = ~0U };
	struct mark_key key = {};

	fresh.owner.tgid = bpf_get_current_pid_tgid() >> 32;
	if (cfg.task_storage)
		return bpf_task_storage_get(&marks, typed_self(), &fresh,
					    BPF_LOCAL_STORAGE_GET_F_CREATE);
	key.start_ns = BPF_CORE_READ(untyped_self(), start_boottime);
	key.tid = (__u32)bpf_get_current_pid_tgid();
	bpf_map_update_elem(&marks_hash, &key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&marks_hash, &key);
}

static __always_inline __u64 own_resident_bytes(void)
{
	struct mm_struct *mm = BPF_CORE_READ(untyped_self(), mm);
	__s64 pages = 0;

	if (RSS_IS_ATOMIC(mm) || RSS_IS_PERCPU(mm))
		pages = resident_pages_probed(mm);
	if (bpf_core_field_exists(mm->hugetlb_usage))
		pages += READ_OR(0, mm->hugetlb_usage.counter);
	return bytes_of(pages);
}

/* What taking `bytes` at `start` of a range is. */
static __always_inline __u32 discard_of(const struct ram *ram, const struct ram_range *range,
					__u64 start, __u64 bytes)
{
	__u64 end = start + bytes;

	if (end > range->end || (start == range->start && end == range->end) ||
	    bytes >= ram->other_min_bytes)
		return DISCARD_OTHER;
	return bytes >= ram->report_min_bytes ? DISCARD_REPORT : DISCARD_INFLATE;
}

static __always_inline void begin(const struct ram *ram, __u32 discard, __u64 bytes, bool counts)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct discards *sums;
	struct mark *mark;

	if (!is_own(ram))
		return;
	mark = own_mark();
	if (!mark)
		mark = make_own_mark(ram);
	if (!mark) {
		count_drop(DROP_MARK_FULL);
		return;
	}
	mark->discard = discard;
	mark->discard_bytes = bytes;
	mark->discard_counts = counts;
	if (counts && discard == DISCARD_REPORT) {
		mark->discard_resident_bytes = own_resident_bytes();
		sums = bpf_map_lookup_elem(&discards, &tgid);
		if (sums && sums->start_ns == ram->start_ns)
			settle_resident(sums, mark->discard_resident_bytes);
	}
	mark->discard_began_ns = bpf_ktime_get_ns();
}

/* The end of a call that may have been a discard. */
static __always_inline void finish(bool done)
{
	struct discards *sums;
	struct mark *mark;
	__u64 ns, before, after;
	__u32 tgid, discard;

	/* With task storage a stranger's mark is looked up sooner than this. */
	if (!cfg.task_storage && !own_ram())
		return;
	mark = own_mark();
	if (!mark || !mark->discard_began_ns)
		return;
	ns = bpf_ktime_get_ns() - mark->discard_began_ns;
	mark->discard_began_ns = 0;
	discard = mark->discard;
	tgid = mark->owner.tgid;
	sums = bpf_map_lookup_elem(&discards, &tgid);
	if (!sums || sums->start_ns != mark->owner.id || discard >= DISCARDS || !done)
		return;
	__sync_fetch_and_add(&sums->ns[discard], ns);
	if (!mark->discard_counts)
		return;
	__sync_fetch_and_add(&sums->events[discard], 1);
	__sync_fetch_and_add(&sums->bytes[discard], mark->discard_bytes);
	if (discard != DISCARD_REPORT)
		return;
	/* What other threads took meanwhile is missing from both sums. */
	before = mark->discard_resident_bytes;
	after = own_resident_bytes();
	if (before > after) {
		sums->released_bytes += before - after;
		sums->resident_bytes = after;
	}
}

/* At the system call's function and not at do_madvise, which compilers put into
 * it: on Debian's 5.10 no call ever passes the function of that name. Only the
 * calls of madvise come here: nothing slows down the entry of others. Its
 * argument's type is not known everywhere (there 5.10 has a forward declaration
 * only). */
SEC("fentry/__x64_sys_madvise")
int BPF_PROG(on_madvise)
{
	struct syscall_args args;
	struct ram_range *range;
	struct ram *ram;
	int behavior;

	ram = own_ram();
	if (!ram || !read_syscall_args(&args))
		return 0;
	behavior = args.third;
	if (behavior != MADV_DONTNEED && behavior != MADV_WILLNEED)
		return 0;
	for (__u32 at = 0; at < RAM_RANGES_MAX; at++) {
		if (at >= ram->ranges)
			return 0;
		range = &ram->range[at];
		if (args.first < range->start || args.first >= range->end)
			continue;
		if (behavior == MADV_WILLNEED)
			begin(ram, DISCARD_DEFLATE, args.second, true);
		else
			begin(ram, discard_of(ram, range, args.first, args.second), args.second,
			      !range->inode);
		return 0;
	}
	return 0;
}

SEC("fexit/__x64_sys_madvise")
int BPF_PROG(on_madvise_ret, const void *regs, long result)
{
	finish(!result);
	return 0;
}

SEC("fentry/vfs_fallocate")
int BPF_PROG(on_fallocate, struct file *file, int mode, __s64 offset, __s64 bytes)
{
	struct ram_range *range;
	__u64 inode, at_file;
	struct ram *ram;
	__u32 device;

	if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
		return 0;
	ram = own_ram();
	if (!ram)
		return 0;
	inode = file->f_inode->i_ino;
	device = file->f_inode->i_sb->s_dev;
	for (__u32 at = 0; at < RAM_RANGES_MAX; at++) {
		if (at >= ram->ranges)
			return 0;
		range = &ram->range[at];
		if (range->inode != inode || range->device != device)
			continue;
		at_file = (__u64)offset - range->offset;
		if ((__u64)offset < range->offset || at_file >= range->end - range->start)
			continue;
		begin(ram, discard_of(ram, range, range->start + at_file, bytes), bytes, true);
		return 0;
	}
	return 0;
}

SEC("fexit/vfs_fallocate")
int BPF_PROG(on_falloc_ret, struct file *file, int mode, __s64 offset, __s64 bytes, int result)
{
	if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
		finish(!result);
	return 0;
}
