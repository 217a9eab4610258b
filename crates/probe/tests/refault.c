/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Simulates a process on a host with many CPUs, each of which batches updates of its
 * resident pages as the kernel's percpu_counter does. Its guest has reported 4 GiB and
 * takes none of it again; its VMM allocates and frees its own memory. Prints the bytes
 * that bpf/refault.h counts as taken again: fewer are better.
 *
 *   refault CPUS ERROR_BYTES
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned char __u8;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;

#include "refault.h"

#define PAGE 4096ULL
#define CPUS_MAX 1024
#define ROUNDS 10000
/* Pages that a report frees: 2 MiB. */
#define REPORT_PAGES 512
#define REPORTS 2048
/* Pages that the VMM allocates and frees for itself. */
#define OWN_PAGES 2048

static long cpus, batch, aside[CPUS_MAX], count;
static unsigned long long seed = 88172645463325252ULL;

static unsigned long any(unsigned long below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

/* lib/percpu_counter.c: percpu_counter_add_batch. */
static void add(long cpu, long pages)
{
	aside[cpu] += pages;
	if (labs(aside[cpu]) >= batch) {
		count += aside[cpu];
		aside[cpu] = 0;
	}
}

/* Adds page by page on random CPUs, as the threads of a guest do. */
static void spread(long pages, long sign)
{
	while (pages-- > 0)
		add(any(cpus), sign);
}

static __u64 resident(void)
{
	return count > 0 ? count * PAGE : 0;
}

/* A pass settles decreases only (read_refault, bpf/memory.bpf.h). */
static void pass(struct discards *sums, __u64 error_bytes)
{
	if (resident() < sums->resident_bytes)
		settle_resident(sums, resident(), error_bytes);
}

int main(int argc, char **argv)
{
	__u64 error_bytes;
	struct discards sums;

	if (argc != 3)
		return 2;
	cpus = atol(argv[1]);
	error_bytes = strtoull(argv[2], NULL, 10);
	if (cpus < 1 || cpus > CPUS_MAX)
		return 2;
	batch = 2 * cpus > 32 ? 2 * cpus : 32;
	memset(&sums, 0, sizeof(sums));
	count = 1L << 24;
	sums.resident_bytes = resident();
	for (long report = 0; report < REPORTS; report++) {
		add(any(cpus), -REPORT_PAGES);
		note_report(&sums, resident());
	}
	for (long round = 0; round < ROUNDS; round++) {
		spread(OWN_PAGES, 1);
		pass(&sums, error_bytes);
		spread(OWN_PAGES, -1);
		pass(&sums, error_bytes);
		/* Only a report settles growth. */
		if (round % 10)
			continue;
		settle_resident(&sums, resident(), error_bytes);
		add(any(cpus), -1);
		note_report(&sums, resident());
	}
	printf("%llu\n", sums.refault_bytes);
	return 0;
}
