/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the programs read kernel memory.
 *
 *   direct read       `task->pid`: where the verifier knows the type of the pointer
 *   CAST_READ              the same for any pointer to kernel memory, by bpf_rdonly_cast
 *   READ_OR, READ_0   bpf_probe_read_kernel, a helper call that costs ten times as much
 *   READ_WORD              CAST_READ where the kernel has bpf_rdonly_cast, otherwise READ_0
 *
 * A direct read of an address without memory returns 0 (PROBE_MEM, kernel/bpf/verifier.c).
 */
#ifndef VIRTLENS_READ_BPF_H
#define VIRTLENS_READ_BPF_H

#include "kernel.bpf.h"
#include "kvm.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* bpf_probe_read_kernel that returns `missing` on an error. */
#define READ_OR(missing, source)                                               \
	({                                                                     \
		typeof(source) __value;                                        \
		bpf_core_read(&__value, sizeof(__value), &(source)) ?          \
			(typeof(source))(missing) : __value;                   \
	})

/* The same with 0 on an error, which the kernel writes itself: no branch for the verifier
 * to follow. */
#define READ_0(source)                                                         \
	({                                                                     \
		typeof(source) __value;                                        \
		bpf_core_read(&__value, sizeof(__value), &(source));           \
		__value;                                                       \
	})

/* Since v6.2: a35b9af4ec2c ("bpf: Add a kfunc for generic type cast"). It allows a direct
 * read also where the verifier does not know the type, at a tenth of the cost of
 * bpf_probe_read_kernel. */
extern void *bpf_rdonly_cast(const void *address, __u32 type_id) __ksym __weak;

/* Reads the word at an address, 0 if no memory is mapped there. The cast is to a type
 * that every kernel has and that begins with a pointer. */
static __always_inline void *cast_read(const void *address)
{
	struct hlist_node *node;

	node = bpf_rdonly_cast(address, bpf_core_type_id_kernel(struct hlist_node));
	return *(struct hlist_node *volatile *)&node->next;
}

#define CAST_READ(address, type, field)                                             \
	cast_read((const void *)(address) + bpf_core_field_offset(struct type, field))

/* Converts a pointer to a number: the verifier treats a negated pointer as a scalar
 * (check_alu_op, kernel/bpf/verifier.c). */
static __always_inline __u64 address_of(const void *pointer)
{
	__u64 address = (__u64)pointer;

	asm volatile("%0 = -%0; %0 = -%0" : "+r"(address));
	return address;
}

/* Reads a word, or the lower half of one, as a number: with a direct read if possible,
 * otherwise with a helper call. 0 if no memory is mapped there. */
#define READ_WORD(source)                                                           \
	(bpf_rdonly_cast ? (typeof(source))address_of(cast_read(&(source))) : READ_0(source))

/* Reads a pointer to a structure, with a direct read. For each pointer that is read through
 * a pointer that the verifier trusts, it searches all names of the kernel's types, which
 * takes half a millisecond (btf_nested_type_is_trusted, kernel/bpf/verifier.c, v6.18).
 * It never trusts the result of a cast. */
#define FOLLOW(source)                                                         \
	(bpf_rdonly_cast ?                                                     \
		 (typeof(source))bpf_rdonly_cast(                              \
			 cast_read(&(source)),                                 \
			 bpf_core_type_id_kernel(typeof(*(source)))) :         \
		 (source))

/* A function that the verifier checks once, as a global function, and not on each path that
 * leads to a call: for functions with a loop, whose checking costs most. Before v5.12 such
 * functions take only numbers, so addresses are passed as numbers (address_of), and memory
 * is read with READ_WORD. */
#define ONCE __noinline

/* The word at an address that is a number for the verifier, 0 if no memory is mapped
 * there. */
static __always_inline __u64 word_at(__u64 address)
{
	return READ_WORD(*(__u64 *)address);
}

/* Equal on all kernels; defined here because both objects use it. */
static __always_inline __u64 cgroup_id(struct cgroup *cgroup)
{
	struct kernfs_node *node = cgroup ? FOLLOW(cgroup->kn) : NULL;

	return node ? node->id : 0;
}

#endif
