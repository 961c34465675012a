/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * The scripted provider's memory: the trace, the script, the names of what was handed out and the
 * queued events. No verbs here: those are in verbs.c and rdmacm.c.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "script.h"

struct script_device script_device = {.empty_errno = ENODATA};

/* the trace */

static char *trace;
static size_t trace_capacity;
static volatile size_t *trace_used;
static int look_ups_told;

void
script_trace_to(char *buffer, size_t capacity, volatile size_t *used)
{
	trace = buffer;
	trace_capacity = capacity;
	trace_used = used;
	if (used)
		*used = 0;
}

int
script_recording(void)
{
	return trace != NULL;
}

void
script_tell_look_ups(int tell)
{
	look_ups_told = tell;
}

int
script_look_ups_told(void)
{
	return look_ups_told;
}

void
script_say(const char *format, ...)
{
	if (trace == NULL)
		return;

	int saved = errno;
	size_t start = *trace_used;
	size_t room = trace_capacity - start;
	if (room < 2)
		return;

	va_list args;
	va_start(args, format);
	int wrote = vsnprintf(trace + start, room - 1, format, args);
	va_end(args);
	if (wrote < 0)
		wrote = 0;
	if ((size_t)wrote > room - 2)
		wrote = (int)(room - 2);
	trace[start + (size_t)wrote] = '\n';
	size_t length = (size_t)wrote + 1;

	*trace_used = start + length;
	errno = saved;
}

/* the script */

#define MAX_RULES 64
#define MAX_FUNCTIONS 96

static struct rule {
	char function[48];
	int nth; /* 0: every call */
	struct script_verdict verdict;
} rules[MAX_RULES];
static int n_rules;

static struct counter {
	const char *function;
	int calls;
} counters[MAX_FUNCTIONS];
static int n_counters;
static int failures, first_failure;

static int
load_word(const char *word)
{
	static const struct {
		const char *key;
		size_t offset;
	} keys[] = {
		{"odp", offsetof(struct script_device, odp)},
		{"atomic_write", offsetof(struct script_device, atomic_write)},
		{"flush_global", offsetof(struct script_device, flush_global)},
		{"flush_persistent", offsetof(struct script_device, flush_persistent)},
		{"iwarp", offsetof(struct script_device, iwarp)},
		{"old_userland", offsetof(struct script_device, old_userland)},
		{"no_extended_qp", offsetof(struct script_device, no_extended_qp)},
		{"no_extended_ops", offsetof(struct script_device, no_extended_ops)},
		{"no_verbs", offsetof(struct script_device, no_verbs)},
		{"empty_errno", offsetof(struct script_device, empty_errno)},
	};

	const char *equals = strchr(word, '=');
	if (equals == NULL)
		return -1;
	const char *hash = memchr(word, '#', (size_t)(equals - word));
	if (hash == NULL) {
		for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
			if (strlen(keys[i].key) == (size_t)(equals - word) &&
					strncmp(keys[i].key, word, (size_t)(equals - word)) == 0) {
				*(int *)((char *)&script_device + keys[i].offset) = atoi(equals + 1);
				return 0;
			}
		}
		return -1;
	}

	if (n_rules == MAX_RULES || (size_t)(hash - word) >= sizeof(rules[0].function))
		return -1;
	struct rule *rule = &rules[n_rules];
	memcpy(rule->function, word, (size_t)(hash - word));
	rule->function[hash - word] = '\0';
	rule->nth = hash[1] == '*' ? 0 : atoi(hash + 1);
	rule->verdict.fail = equals[1] == 'e';
	rule->verdict.raw = equals[1] == 'r';
	rule->verdict.value = atoi(equals + 2);
	if (!rule->verdict.fail && !rule->verdict.raw)
		return -1;
	n_rules++;
	return 0;
}

int
script_load(const char *text)
{
	char word[96];

	while (*text) {
		size_t length = strcspn(text, " ");
		if (length > 0) {
			if (length >= sizeof(word))
				return -1;
			memcpy(word, text, length);
			word[length] = '\0';
			if (load_word(word))
				return -1;
		}
		text += length;
		while (*text == ' ')
			text++;
	}
	return 0;
}

struct script_verdict
script_judge_nth(const char *function, int nth)
{
	struct script_verdict none = {0, 0, 0};
	if (trace == NULL)
		return none;

	for (int r = 0; r < n_rules; r++) {
		if ((rules[r].nth == 0 || rules[r].nth == nth) &&
				strcmp(rules[r].function, function) == 0) {
			if (failures++ == 0)
				first_failure = rules[r].verdict.value;
			return rules[r].verdict;
		}
	}
	return none;
}

struct script_verdict
script_judge(const char *function)
{
	struct script_verdict none = {0, 0, 0};
	if (trace == NULL)
		return none;

	int i = 0;
	while (i < n_counters && strcmp(counters[i].function, function) != 0)
		i++;
	if (i == n_counters) {
		if (n_counters == MAX_FUNCTIONS)
			abort();
		counters[n_counters++].function = function;
	}
	return script_judge_nth(function, ++counters[i].calls);
}

int
script_failures(int reset, int *first)
{
	int now = failures;
	if (first)
		*first = first_failure;
	if (reset)
		failures = 0;
	return now;
}

/* what was handed out */

#define MAX_OBJECTS 1024
#define ARENA_SIZE (1 << 20)

static struct object {
	const void *address;
	const char *kind;
	int index;
	int dead;
} objects[MAX_OBJECTS];
static int n_objects;

static char arena[ARENA_SIZE] __attribute__((aligned(64)));
static size_t arena_used;

static struct memory {
	const char *name;
	uintptr_t start;
	size_t size;
} memories[32];
static int n_memories;

/* Names are told several a line: a ring of buffers, so that each lives until its line is out. */
static char *
scratch(void)
{
	static char ring[16][64];
	static int next;
	next = (next + 1) % 16;
	return ring[next];
}

void *
script_new(const char *kind, size_t size)
{
	size_t rounded = (size + 63) & ~(size_t)63;
	if (n_objects == MAX_OBJECTS || arena_used + rounded > ARENA_SIZE)
		abort();
	void *address = arena + arena_used;
	arena_used += rounded;
	memset(address, 0, size);

	int index = 1;
	for (int i = 0; i < n_objects; i++)
		if (strcmp(objects[i].kind, kind) == 0)
			index++;
	objects[n_objects++] = (struct object){address, kind, index, 0};
	return address;
}

void
script_name_static(const void *address, const char *kind)
{
	if (n_objects < MAX_OBJECTS)
		objects[n_objects++] = (struct object){address, kind, 0, 0};
}

void
script_forget(void)
{
	int kept = 0;
	for (int i = 0; i < n_objects; i++)
		if (objects[i].index == 0)
			objects[kept++] = objects[i];
	n_objects = kept;
	arena_used = 0;
}

static struct object *
lookup(const void *address)
{
	for (int i = n_objects - 1; i >= 0; i--)
		if (objects[i].address == address)
			return &objects[i];
	return NULL;
}

void
script_dead(const void *address)
{
	struct object *object = lookup(address);
	if (object)
		object->dead = 1;
}

const char *
script_name(const void *address)
{
	if (address == NULL)
		return "NULL";
	struct object *object = lookup(address);
	if (object == NULL)
		return "?";
	if (object->index == 0)
		return object->kind;
	char *out = scratch();
	snprintf(out, 64, "%s#%d%s", object->kind, object->index, object->dead ? "!dead" : "");
	return out;
}

int
script_index(const void *address)
{
	struct object *object = lookup(address);
	return object ? object->index : 0;
}

void *
script_find(const char *kind, int index)
{
	for (int i = 0; i < n_objects; i++)
		if (objects[i].index == index && strcmp(objects[i].kind, kind) == 0)
			return (void *)(uintptr_t)objects[i].address;
	return NULL;
}

void
script_name_memory(const char *name, const void *start, size_t size)
{
	if (n_memories < 32)
		memories[n_memories++] = (struct memory){name, (uintptr_t)start, size};
}

const char *
script_address(const void *address)
{
	uintptr_t value = (uintptr_t)address;
	if (value == 0)
		return "NULL";
	for (int i = n_memories - 1; i >= 0; i--) {
		if (value >= memories[i].start && value - memories[i].start < memories[i].size) {
			char *out = scratch();
			snprintf(out, 64, "%s+%zu", memories[i].name,
					(size_t)(value - memories[i].start));
			return out;
		}
	}
	return "private";
}

void
script_say_live(void)
{
	for (int i = 0; i < n_objects; i++)
		if (!objects[i].dead && objects[i].index > 0)
			script_say("    live %s#%d", objects[i].kind, objects[i].index);
}

const char *
script_errno(int value)
{
	const char *name = strerrorname_np(value);
	if (value == 0)
		return "0";
	if (name)
		return name;
	char *out = scratch();
	snprintf(out, 64, "%d", value);
	return out;
}

/* queued events */

#define MAX_QUEUE 256

static int cq_events[MAX_QUEUE], cq_head, cq_tail;
static int polls[MAX_QUEUE], poll_head, poll_tail;
static struct script_cm_event cm_events[MAX_QUEUE];
static int cm_head, cm_tail;

void
script_push_cq_event(int cq_index)
{
	if (cq_tail < MAX_QUEUE)
		cq_events[cq_tail++] = cq_index;
}

int
script_take_cq_event(int *cq_index)
{
	if (cq_head == cq_tail)
		return 0;
	*cq_index = cq_events[cq_head++];
	return 1;
}

void
script_push_poll(int result)
{
	if (poll_tail < MAX_QUEUE)
		polls[poll_tail++] = result;
}

int
script_take_poll(int *result)
{
	if (poll_head == poll_tail)
		return 0;
	*result = polls[poll_head++];
	return 1;
}

void
script_push_cm_event(int type, int id_index, const void *data, uint8_t len)
{
	if (cm_tail < MAX_QUEUE)
		cm_events[cm_tail++] = (struct script_cm_event){type, id_index, data, len};
}

int
script_take_cm_event(struct script_cm_event *event)
{
	if (cm_head == cm_tail)
		return 0;
	*event = cm_events[cm_head++];
	return 1;
}
