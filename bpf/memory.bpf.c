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
 * They run for every such call of the host, so they leave at once where the call
 * is none of these or not of a process with a guest's RAM: one lookup.
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

/* What of this process's memory may be RAM. */
static __always_inline __u64 own_ram_bytes(const struct discards *sums)
{
	struct mm_struct *mm = cfg.task_storage ? typed_self()->mm :
						  BPF_CORE_READ(untyped_self(), mm);

	return mm ? ram_bytes_of(sums->backing, mm) : 0;
}

/* What was discarded of the RAM. */
static __always_inline struct discards *own_discards(const struct ram *ram)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct discards *sums = bpf_map_lookup_elem(&discards, &tgid);

	return sums && sums->start_ns == ram->start_ns ? sums : NULL;
}

/* Whether a call for a range is timed. Each large one is; of the single pages of a
 * balloon one in 16 is and counts 16 times. A hash of where it starts tells which,
 * so that both ends of a call know. Not its alignment: the first page that is
 * taken of a huge page costs more than the others. */
#define TIMED_BYTES (64ULL << 10)
#define TIMED_SHIFT 4
static __always_inline bool is_timed(__u64 start, __u64 bytes)
{
	return bytes >= TIMED_BYTES ||
	       (start / PAGE_SIZE * 0x9e3779b97f4a7c15ULL) >> (64 - TIMED_SHIFT) == 0;
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

/* The beginning of a call that is timed. */
static __noinline void begin(__u64 bytes)
{
	struct ram *ram = own_ram();
	struct discards *sums;
	struct mark *mark;

	if (!ram || !is_own(ram))
		return;
	sums = own_discards(ram);
	if (!sums)
		return;
	mark = own_mark();
	if (!mark)
		mark = make_own_mark(ram);
	if (!mark) {
		count_drop(DROP_MARK_FULL);
		return;
	}
	if (bytes >= ram->report_min_bytes) {
		sums->reporting = 1;
		mark->discard_resident_bytes = own_ram_bytes(sums);
	}
	mark->discard_began_ns = bpf_ktime_get_ns();
}

/* Its end. */
static __noinline void finish(struct discards *sums, __u32 discard, __u64 bytes, bool counts)
{
	struct mark *mark = own_mark();
	__u64 ns, before, after;

	if (!mark || !mark->discard_began_ns)
		return;
	ns = bpf_ktime_get_ns() - mark->discard_began_ns;
	mark->discard_began_ns = 0;
	if (bytes < TIMED_BYTES)
		ns <<= TIMED_SHIFT;
	if (discard < DISCARDS)
		__sync_fetch_and_add(&sums->ns[discard], ns);
	if (counts && discard == DISCARD_REPORT) {
		before = mark->discard_resident_bytes;
		settle_resident(sums, before);
		/* What other threads took meanwhile is missing from both sums. */
		after = own_ram_bytes(sums);
		if (before > after) {
			sums->released_bytes += before - after;
			sums->resident_bytes = after;
		}
	}
	sums->reporting = 0;
}

/* A call is done. Where it is a discard it may count, or another call for the
 * same range does. */
static __always_inline void count_call(const struct ram *ram, __u32 discard, __u64 start,
				       __u64 bytes, bool counts)
{
	struct discards *sums;

	if (!is_own(ram))
		return;
	sums = own_discards(ram);
	if (!sums)
		return;
	if (counts && discard < DISCARDS) {
		__sync_fetch_and_add(&sums->events[discard], 1);
		__sync_fetch_and_add(&sums->bytes[discard], bytes);
	}
	if (is_timed(start, bytes))
		finish(sums, discard, bytes, counts);
}

static __always_inline bool may_discard(const struct syscall_args *args)
{
	return (__u32)args->third == MADV_DONTNEED || (__u32)args->third == MADV_WILLNEED;
}

/* At the system call's function and not at do_madvise, which compilers put into
 * it: on Debian's 5.10 no call ever passes the function of that name. Only the
 * calls of madvise come here: nothing slows down the entry of others. */
SEC("fentry/__x64_sys_madvise")
int on_madvise(__u64 *ctx)
{
	struct syscall_args args;

	if (read_syscall_args(ctx, &args) && may_discard(&args) &&
	    is_timed(args.first, args.second))
		begin(args.second);
	return 0;
}

SEC("fexit/__x64_sys_madvise")
int on_madvise_ret(__u64 *ctx)
{
	__u32 discard = DISCARDS;
	struct syscall_args args;
	struct ram_range *range;
	bool counts = true;
	struct ram *ram;

	if (!read_syscall_args(ctx, &args) || !may_discard(&args))
		return 0;
	ram = own_ram();
	if (!ram)
		return 0;
	for (__u32 at = 0; at < RAM_RANGES_MAX && !ctx[1]; at++) {
		if (at >= ram->ranges)
			break;
		range = &ram->range[at];
		if (args.first < range->start || args.first >= range->end)
			continue;
		discard = DISCARD_DEFLATE;
		if ((__u32)args.third == MADV_DONTNEED) {
			discard = discard_of(ram, range, args.first, args.second);
			counts = !range->inode;
		}
		break;
	}
	count_call(ram, discard, args.first, args.second, counts);
	return 0;
}

SEC("fentry/vfs_fallocate")
int BPF_PROG(on_fallocate, struct file *file, int mode, __s64 offset, __s64 bytes)
{
	if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) && is_timed(offset, bytes))
		begin(bytes);
	return 0;
}

SEC("fexit/vfs_fallocate")
int BPF_PROG(on_falloc_ret, struct file *file, int mode, __s64 offset, __s64 bytes, int result)
{
	__u32 discard = DISCARDS;
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
	for (__u32 at = 0; at < RAM_RANGES_MAX && !result; at++) {
		if (at >= ram->ranges)
			break;
		range = &ram->range[at];
		if (range->inode != inode || range->device != device)
			continue;
		at_file = (__u64)offset - range->offset;
		if ((__u64)offset < range->offset || at_file >= range->end - range->start)
			continue;
		discard = discard_of(ram, range, range->start + at_file, bytes);
		break;
	}
	count_call(ram, discard, offset, bytes, true);
	return 0;
}
