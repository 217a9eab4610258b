/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Computes how much resident RAM free page reports released and how much of it the guest
 * took again, from resident RAM before and after. Plain C, so that a host test can run it
 * too (crates/probe/tests/refault.rs).
 */
#ifndef VIRTLENS_REFAULT_H
#define VIRTLENS_REFAULT_H

#include "memory_abi.h"

/* Minimum tolerance for a decrease of unknown cause, bytes. Beyond the tolerance the VMM
 * has freed memory itself. */
#define UNKNOWN_FALL (1ULL << 20)

/* Accounts for a decrease of resident RAM that no report caused: later growth is first
 * subtracted from it, as memory that the balloon took and not reported memory. A decrease
 * of unknown cause is added only up to the error of the resident counters, `error_bytes`:
 * up to there the kernel may only have batched some pages. */
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

/* Returns how much of the reported memory the guest has taken again: the growth of
 * resident RAM, minus what the balloon took, at most what reports released. */
static inline __attribute__((always_inline)) __u64 taken_again(const struct discards *sums,
							       __u64 resident)
{
	__u64 grown = resident > sums->resident_bytes ? resident - sums->resident_bytes : 0;

	grown = grown > sums->other_bytes ? grown - sums->other_bytes : 0;
	return grown < sums->released_bytes ? grown : sums->released_bytes;
}

/* Updates the sums to `resident`, the resident RAM before a report or in a pass. VMMs
 * report from one thread at a time, so only a concurrent pass can cause a loss: at most
 * the larger of UNKNOWN_FALL and `error_bytes`. */
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

/* Accounts for a completed report, after which resident RAM is `after`. */
static inline __attribute__((always_inline)) void note_report(struct discards *sums, __u64 after)
{
	if (after >= sums->resident_bytes)
		return;
	sums->released_bytes += sums->resident_bytes - after;
	sums->resident_bytes = after;
}

#endif
