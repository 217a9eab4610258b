/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * All features in one object, so that they share maps without pinning. Only the programs
 * of the plan are loaded.
 */
#include "sample.bpf.c"
#include "files.bpf.c"
#include "walk.bpf.c"
#include "lifetime.bpf.c"
#include "rename.bpf.c"
#include "placement.bpf.c"
#include "throttle.bpf.c"
#include "memory.bpf.c"

/* The programs' helpers are for GPL-compatible programs only. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
