/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What of resident RAM was released by reports, and what the guest took again: judged by
 * what is resident before and after. Plain C, so that a test of the host runs it too
 * (crates/probe/tests/refault.rs).
 */
#ifndef VIRTLENS_REFAULT_H
#define VIRTLENS_REFAULT_H

#include "memory_abi.h"

/* How much a VMM frees of its own at least before it is seen as that. */
#define UNKNOWN_FALL (1ULL << 20)

/* Resident RAM has fallen, and by no report: what grows next is what the balloon took
 * and not what was reported. A fall for no known reason is made up for as far as what is
 * resident may be off, `error_bytes`: it is then the kernel that had kept some aside. */
static inline __attribute__((always_inline)) void note_fall(struct discards *sums, __u64 bytes,
							     __u64 error_bytes)
{
	__u64 taken = sums->bytes[DISCARD_INFLATE] + sums->bytes[DISCARD_OTHER];
	__u64 room = taken - sums->taken_bytes;

	if (error_bytes < UNKNOWN_FALL)
		error_bytes = UNKNOWN_FALL;
	if (sums->other_bytes < error_bytes)
		room += error_bytes - sums->other_bytes;
	sums->other_bytes += bytes < room ? bytes : room;
}

/* What the guest has taken again of what reports released: what has grown, up to
 * that, after what the balloon took was made up for. */
static inline __attribute__((always_inline)) __u64 taken_again(const struct discards *sums,
							       __u64 resident)
{
	__u64 grown = resident > sums->resident_bytes ? resident - sums->resident_bytes : 0;

	grown = grown > sums->other_bytes ? grown - sums->other_bytes : 0;
	return grown < sums->released_bytes ? grown : sums->released_bytes;
}

/* Resident RAM is `resident` now, before a report or in a pass. VMMs report from
 * one thread at a time, so that nothing is lost but by a pass that comes in
 * between, and then at most the larger of UNKNOWN_FALL and `error_bytes`. */
static inline __attribute__((always_inline)) void
settle_resident(struct discards *sums, __u64 resident, __u64 error_bytes)
{
	__u64 grown = 0, part = taken_again(sums, resident);

	sums->released_bytes -= part;
	sums->refault_bytes += part;
	if (resident > sums->resident_bytes)
		grown = resident - sums->resident_bytes;
	else
		note_fall(sums, sums->resident_bytes - resident, error_bytes);
	sums->other_bytes -= grown < sums->other_bytes ? grown : sums->other_bytes;
	sums->resident_bytes = resident;
	sums->taken_bytes = sums->bytes[DISCARD_INFLATE] + sums->bytes[DISCARD_OTHER];
}

/* A report is over, and resident RAM is `after`. */
static inline __attribute__((always_inline)) void note_report(struct discards *sums, __u64 after)
{
	if (after >= sums->resident_bytes)
		return;
	sums->released_bytes += sums->resident_bytes - after;
	sums->resident_bytes = after;
}

#endif
