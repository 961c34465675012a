/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * The scripted provider's control interface: what a test program and the two stand-in libraries
 * (verbs.c, rdmacm.c) share. The stand-ins record every call, answer from a script and touch no
 * hardware. Nothing here allocates, so that failing allocators hit the library under test only.
 */

#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* How a function of the provider reports a failure. */
enum script_convention {
	SCRIPT_NULL_ERRNO,	/* NULL, errno set */
	SCRIPT_MINUS_ONE_ERRNO,	/* -1, errno set */
	SCRIPT_ERRNO_VALUE,	/* the errno value itself, errno left alone */
};

/* What the script says about one call. */
struct script_verdict {
	int fail;	/* fail the conventional way, with errno value `value` */
	int raw;	/* return `value` verbatim and do nothing else */
	int value;
};

/* What the scripted device is and can do; a script sets these with "key=value". */
struct script_device {
	int odp;		/* on-demand paging: 1 general, 2 RC write, 4 RC read */
	int atomic_write;	/* the device says it has the 8-byte atomic write */
	int flush_global;	/* ... flush to global visibility */
	int flush_persistent;	/* ... flush to persistence */
	int iwarp;		/* transport is iWARP instead of InfiniBand */
	int old_userland;	/* QP layout and limits of an rdma-core without flush */
	int no_extended_qp;	/* ibv_qp_to_qp_ex() answers NULL */
	int no_extended_ops;	/* the context has no extended operations at all */
	int no_verbs;		/* address resolution binds the id to no device */
	int empty_errno;	/* errno of a read from an empty event channel */
	int cq_empty;		/* unrecorded polls find nothing */
};

extern struct script_device script_device;

/* The trace: where lines go, how to add one. No buffer: recording is off and calls are almost free. */
void script_trace_to(char *buffer, size_t capacity, volatile size_t *used);
void script_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
int script_recording(void);
/* Questions to the device that were answered change nothing: told only when asked for. */
void script_tell_look_ups(int tell);
int script_look_ups_told(void);
/* Forgets all that was handed out, as if nothing had happened yet. */
void script_forget(void);

/*
 * A script is a list of words: "FUNCTION#K=eERRNO" fails the K-th call of FUNCTION the
 * conventional way, "FUNCTION#K=rVALUE" makes it return VALUE, "FUNCTION#*=e5" every call,
 * "KEY=VALUE" describes the device. Returns 0, or -1 for a word it does not know.
 */
int script_load(const char *text);

/* Counts the call and says what the script wants. */
struct script_verdict script_judge(const char *function);
/* The same where the call has a number of its own, such as that of the object it is about. */
struct script_verdict script_judge_nth(const char *function, int nth);
/*
 * How many calls of the provider were made to fail since the last reset, and with which value the
 * first of them.
 */
int script_failures(int reset, int *first);

/* Stable names of what the provider handed out: "cq#2"; "NULL"; "!dead" follows a released one. */
void *script_new(const char *kind, size_t size);
void script_dead(const void *object);
/* Names something the provider owns for good, of which there is one. */
void script_name_static(const void *object, const char *kind);
const char *script_name(const void *object);
int script_index(const void *object);
void *script_find(const char *kind, int index);
/* Name a buffer of the program, so that addresses inside it are told as name+offset. */
void script_name_memory(const char *name, const void *start, size_t size);
const char *script_address(const void *address);
/* One line for every object that was handed out and never released. */
void script_say_live(void);

const char *script_errno(int value);

struct ibv_context *script_context(void);

/* What the next completion channel reads give: the index of a CQ, 0 for a CQ nobody knows. */
void script_push_cq_event(int cq_index);
/* What the next ibv_poll_cq() returns; without it: as many as asked. */
void script_push_poll(int result);
/*
 * Queue an event of the connection manager. `id_index` 0 means a fresh id, as a connect request
 * brings. With len > 0 and data NULL (or the reverse) exactly that is handed to the library.
 */
void script_push_cm_event(int type, int id_index, const void *data, uint8_t len);
/* Used by the connection manager's stand-in to take them. */
struct script_cm_event {
	int type;
	int id_index;
	const void *data;
	uint8_t len;
};
int script_take_cm_event(struct script_cm_event *event);
int script_take_cq_event(int *cq_index);
int script_take_poll(int *result);

/* A QP for the connection manager, and the fields that were asked for it. */
struct ibv_qp *script_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
		const char *kind);
void script_qp_fields(char *out, size_t size, const struct ibv_qp_init_attr_ex *attr);

#endif /* SCRIPT_H */
