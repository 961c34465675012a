/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* The scripted provider's librdmacm.so.1: ids, channels and events, recorded and scripted. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rdma/rdma_cma.h>

#include "script.h"

#define VERDICT_FAILS(v) ((v).fail || (v).raw)

/* Ends a call that returns 0 or -1 with errno. */
static int
finish(const char *call, struct script_verdict verdict)
{
	if (verdict.raw) {
		script_say("    %s = raw %d", call, verdict.value);
		return verdict.value;
	}
	if (verdict.fail) {
		script_say("    %s = -1 %s", call, script_errno(verdict.value));
		errno = verdict.value;
		return -1;
	}
	script_say("    %s = 0", call);
	return 0;
}

struct rdma_event_channel *
rdma_create_event_channel(void)
{
	struct script_verdict verdict = script_judge("rdma_create_event_channel");
	if (VERDICT_FAILS(verdict)) {
		script_say("    rdma_create_event_channel() = NULL %s", script_errno(verdict.value));
		errno = verdict.value;
		return NULL;
	}
	struct rdma_event_channel *channel = script_new("evch", sizeof(*channel));
	channel->fd = 2000 + script_index(channel);
	script_say("    rdma_create_event_channel() = %s", script_name(channel));
	return channel;
}

void
rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	script_say("    rdma_destroy_event_channel(%s)", script_name(channel));
	script_dead(channel);
}

int
rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		enum rdma_port_space ps)
{
	struct script_verdict verdict = script_judge("rdma_create_id");
	char call[160];
	snprintf(call, sizeof(call), "rdma_create_id(%s, context=%s, ps=%s)", script_name(channel),
			context ? "set" : "NULL", ps == RDMA_PS_TCP ? "TCP" : "other");
	if (VERDICT_FAILS(verdict))
		return finish(call, verdict);
	struct rdma_cm_id *created = script_new("id", sizeof(struct rdma_cm_id));
	created->channel = channel;
	created->context = context;
	created->ps = ps;
	created->qp_type = IBV_QPT_RC;
	*id = created;
	script_say("    %s = 0 %s", call, script_name(created));
	return 0;
}

int
rdma_destroy_id(struct rdma_cm_id *id)
{
	/* counted by the id it is about, as rejecting is: some libraries leave ids that others reject and release */
	struct script_verdict verdict = script_judge_nth("rdma_destroy_id", script_index(id));
	char call[96];
	snprintf(call, sizeof(call), "rdma_destroy_id(%s)", script_name(id));
	if (!VERDICT_FAILS(verdict))
		script_dead(id);
	return finish(call, verdict);
}

int
rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	/* back to a channel of its own is a clean-up of some libraries only: neither counted nor failing */
	struct script_verdict verdict =
			script_judge(channel ? "rdma_migrate_id" : "spare rdma_migrate_id");
	char call[96];
	snprintf(call, sizeof(call), "rdma_migrate_id(%s, %s)", script_name(id), script_name(channel));
	if (!VERDICT_FAILS(verdict))
		id->channel = channel;
	return finish(call, verdict);
}

/* The one address everything resolves to; what was asked is in the trace. */
static struct sockaddr_in source, target;

int
rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		struct rdma_addrinfo **res)
{
	struct script_verdict verdict = script_judge("rdma_getaddrinfo");
	char call[256];
	snprintf(call, sizeof(call),
			"rdma_getaddrinfo(node=%s, service=%s, ai_flags=%#x, ai_family=%d, ai_qp_type=%d, ai_port_space=%#x, rest=%s)",
			node ? node : "NULL", service ? service : "NULL", (unsigned)hints->ai_flags,
			hints->ai_family, hints->ai_qp_type, (unsigned)hints->ai_port_space,
			hints->ai_src_len || hints->ai_dst_len || hints->ai_src_addr ||
				hints->ai_dst_addr || hints->ai_route_len || hints->ai_connect_len ?
				"set" : "0");
	if (VERDICT_FAILS(verdict))
		return finish(call, verdict);
	struct rdma_addrinfo *info = script_new("rai", sizeof(*info));
	static char source_name[] = "source", target_name[] = "target";
	source.sin_family = target.sin_family = AF_INET;
	info->ai_flags = hints->ai_flags;
	info->ai_family = AF_INET;
	info->ai_qp_type = hints->ai_qp_type;
	info->ai_port_space = hints->ai_port_space;
	info->ai_src_len = sizeof(source);
	info->ai_src_addr = (struct sockaddr *)&source;
	info->ai_src_canonname = source_name;
	if (!(hints->ai_flags & RAI_PASSIVE)) {
		info->ai_dst_len = sizeof(target);
		info->ai_dst_addr = (struct sockaddr *)&target;
		info->ai_dst_canonname = target_name;
	}
	*res = info;
	script_say("    %s = 0 %s", call, script_name(info));
	return 0;
}

void
rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	script_say("    rdma_freeaddrinfo(%s)", script_name(res));
	script_dead(res);
}

static const char *
sockaddr_name(const struct sockaddr *address)
{
	if (address == NULL)
		return "NULL";
	if ((const void *)address == (const void *)&source)
		return "source";
	if ((const void *)address == (const void *)&target)
		return "target";
	return "?";
}

static void
bind_to_device(struct rdma_cm_id *id)
{
	id->verbs = script_device.no_verbs ? NULL : script_context();
	id->port_num = 1;
}

int
rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	struct script_verdict verdict = script_judge("rdma_resolve_addr");
	char call[160];
	snprintf(call, sizeof(call), "rdma_resolve_addr(%s, %s, %s, timeout_ms=%d)", script_name(id),
			sockaddr_name(src), sockaddr_name(dst), timeout_ms);
	if (!VERDICT_FAILS(verdict))
		bind_to_device(id);
	return finish(call, verdict);
}

int
rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct script_verdict verdict = script_judge("rdma_resolve_route");
	char call[96];
	snprintf(call, sizeof(call), "rdma_resolve_route(%s, timeout_ms=%d)", script_name(id), timeout_ms);
	return finish(call, verdict);
}

int
rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	struct script_verdict verdict = script_judge("rdma_bind_addr");
	char call[96];
	snprintf(call, sizeof(call), "rdma_bind_addr(%s, %s)", script_name(id), sockaddr_name(address));
	if (!VERDICT_FAILS(verdict))
		bind_to_device(id);
	return finish(call, verdict);
}

int
rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct script_verdict verdict = script_judge("rdma_listen");
	char call[96];
	snprintf(call, sizeof(call), "rdma_listen(%s, backlog=%d)", script_name(id), backlog);
	return finish(call, verdict);
}

int
rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct script_verdict verdict = script_judge("rdma_create_qp_ex");
	char call[1024], fields[900];
	script_qp_fields(fields, sizeof(fields), attr);
	snprintf(call, sizeof(call), "rdma_create_qp_ex(%s, %s)", script_name(id), fields);
	if (VERDICT_FAILS(verdict))
		return finish(call, verdict);
	struct ibv_qp *qp = script_create_qp(id->verbs, attr, "qp");
	if (qp == NULL) {
		verdict.fail = 1;
		verdict.value = errno;
		return finish(call, verdict);
	}
	id->qp = qp;
	id->pd = qp->pd;
	script_say("    %s = 0 %s", call, script_name(qp));
	return 0;
}

void
rdma_destroy_qp(struct rdma_cm_id *id)
{
	script_say("    rdma_destroy_qp(%s) %s", script_name(id), script_name(id->qp));
	script_dead(id->qp);
	id->qp = NULL;
}

static const char *
conn_param(const struct rdma_conn_param *param, char *out, size_t size)
{
	if (param == NULL)
		return "NULL";
	char hex[513] = "";
	for (int i = 0; param->private_data && i < param->private_data_len; i++)
		snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)param->private_data)[i]);
	snprintf(out, size,
			"private_data=%s[%s], private_data_len=%u, responder_resources=%u, initiator_depth=%u, "
			"flow_control=%u, retry_count=%u, rnr_retry_count=%u, srq=%u, qp_num=%u",
			param->private_data ? "" : "NULL", hex, param->private_data_len,
			param->responder_resources, param->initiator_depth, param->flow_control,
			param->retry_count, param->rnr_retry_count, param->srq, param->qp_num);
	return out;
}

int
rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct script_verdict verdict = script_judge("rdma_connect");
	char call[1024], fields[900];
	snprintf(call, sizeof(call), "rdma_connect(%s, %s)", script_name(id),
			conn_param(param, fields, sizeof(fields)));
	return finish(call, verdict);
}

int
rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct script_verdict verdict = script_judge("rdma_accept");
	char call[1024], fields[900];
	snprintf(call, sizeof(call), "rdma_accept(%s, %s)", script_name(id),
			conn_param(param, fields, sizeof(fields)));
	return finish(call, verdict);
}

int
rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	struct script_verdict verdict = script_judge_nth("rdma_reject", script_index(id));
	char call[96];
	snprintf(call, sizeof(call), "rdma_reject(%s, private_data=%s, private_data_len=%u)",
			script_name(id), private_data ? "set" : "NULL", private_data_len);
	return finish(call, verdict);
}

int
rdma_disconnect(struct rdma_cm_id *id)
{
	struct script_verdict verdict = script_judge("rdma_disconnect");
	char call[96];
	snprintf(call, sizeof(call), "rdma_disconnect(%s)", script_name(id));
	return finish(call, verdict);
}

/* An event with its own copy of the private data, which is wiped when the event is acknowledged. */
struct scripted_event {
	struct rdma_cm_event event;
	unsigned char data[256];
};

int
rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct script_verdict verdict = script_judge("rdma_get_cm_event");
	char call[96];
	snprintf(call, sizeof(call), "rdma_get_cm_event(%s)", script_name(channel));
	if (VERDICT_FAILS(verdict))
		return finish(call, verdict);

	struct script_cm_event next;
	if (!script_take_cm_event(&next)) {
		verdict.fail = 1;
		verdict.value = script_device.empty_errno;
		return finish(call, verdict);
	}

	struct scripted_event *made = script_new("event", sizeof(*made));
	struct rdma_cm_id *id;
	if (next.id_index == 0) {
		id = script_new("id", sizeof(struct rdma_cm_id));
		id->channel = channel;
		id->ps = RDMA_PS_TCP;
		id->qp_type = IBV_QPT_RC;
		bind_to_device(id);
	} else {
		id = script_find("id", next.id_index);
	}
	made->event.id = id;
	made->event.event = (enum rdma_cm_event_type)next.type;
	if (next.data) {
		memcpy(made->data, next.data, next.len);
		made->event.param.conn.private_data = made->data;
	}
	made->event.param.conn.private_data_len = next.len;
	*event = &made->event;
	script_say("    %s = 0 %s type=%d %s", call, script_name(made), next.type, script_name(id));
	return 0;
}

int
rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct script_verdict verdict = script_judge("rdma_ack_cm_event");
	char call[96];
	snprintf(call, sizeof(call), "rdma_ack_cm_event(%s)", script_name(event));
	if (!VERDICT_FAILS(verdict)) {
		memset(((struct scripted_event *)event)->data, 0xdd, 256);
		script_dead(event);
	}
	return finish(call, verdict);
}

const char *
rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED",
		"ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE",
		"REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN",
		"MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT"};
	return (unsigned)event < 16 ? names[event] : "UNKNOWN EVENT";
}

static struct ibv_context *contexts[2];

struct ibv_context **
rdma_get_devices(int *num_devices)
{
	contexts[0] = script_context();
	if (num_devices)
		*num_devices = 1;
	return contexts;
}

void
rdma_free_devices(struct ibv_context **list)
{
	(void) list;
}
