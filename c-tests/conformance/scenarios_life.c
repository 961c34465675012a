/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * Life cycles: what a program does from the first peer to the last delete, in every configuration.
 * The runner fails each provider call of each of them in turn.
 */

#include <stdlib.h>
#include <string.h>

#include "scenarios.h"

const char *const life_variants[] = {
	"active+default", "active", "active+pdata", "active+rcq", "active+shared", "active+shared+rcq",
	"active+srq", "active+srq-no-rcq", "active+srq-no-rcq+rcq", "active+srq+rcq",
	"active+shared+srq", "active+shared+srq-no-rcq", "active+shared+srq-no-rcq+rcq",
	"active+sizes", "active+zeros", "active+timeout",
	"passive+default", "passive+pdata", "passive+rcq", "passive+shared", "passive+shared+rcq",
	"passive+srq", "passive+srq-no-rcq", "passive+shared+srq", "passive+shared+srq-no-rcq+rcq",
	"passive+sizes", "passive+zeros", NULL};

void
life(const char *variant)
{
	struct fixture f = FIXTURE_INIT;
	fixture_peer(&f);
	fixture_cfg(&f, variant);
	fixture_request(&f, variant);
	fixture_connection(&f, variant);
	if (given(f.conn)) {
		struct rpma_conn *conn = f.conn;
		int fd = UNTOUCHED_INT;
		uint32_t qp_num = UNTOUCHED_INT;
		API(rpma_conn_get_event_fd(conn, &fd));
		say_fd("fd", fd);
		fd = UNTOUCHED_INT;
		API(rpma_conn_get_compl_fd(conn, &fd));
		say_fd("fd", fd);
		API(rpma_conn_get_qp_num(conn, &qp_num));
		say_int("qp_num", qp_num);
		struct rpma_cq *cqs[2] = {f.cq, f.rcq};
		for (int i = 0; i < 2; i++) {
			if (!given(cqs[i]))
				continue;
			fd = UNTOUCHED_INT;
			APIF(rpma_cq_get_fd(cqs[i], &fd), "rpma_cq_get_fd(%s)", i ? "rcq" : "cq");
			say_fd("fd", fd);
		}
	}
	fixture_down(&f);
}

/* A request that is never connected. */
const char *const undecided_variants[] = {"active", "active+rcq", "active+shared+rcq", "active+srq",
	"passive", "passive+rcq", "passive+shared", "passive+pdata", "passive+srq", NULL};

void
undecided(const char *variant)
{
	struct fixture f = FIXTURE_INIT;
	fixture_peer(&f);
	fixture_cfg(&f, variant);
	fixture_request(&f, variant);
	if (given(f.req)) {
		struct rpma_conn_private_data got = {UNTOUCHED, 0xa5};
		API(rpma_conn_req_get_private_data(f.req, &got));
		say_pointer("pdata.ptr", got.ptr);
		say_int("pdata.len", got.len);
		if (given(got.ptr))
			say_bytes("pdata", got.ptr, got.len);
	}
	fixture_down(&f);
}

/* Connecting consumes the request whatever its arguments are. */
const char *const bad_connect_variants[] = {
	"active+no-conn", "active+no-conn+pdata", "active+null-data", "active+empty-data",
	"active+null-empty-data", "active+no-conn+empty-data", "active+shared+rcq+no-conn",
	"passive+no-conn", "passive+empty-data", "passive+null-data", "passive+shared+no-conn",
	"active+full-data", "passive+full-data", "active+longest-data", NULL};

void
bad_connect(const char *variant)
{
	static char bytes[255];
	memset(bytes, 0x77, sizeof(bytes));
	struct fixture f = FIXTURE_INIT;
	fixture_peer(&f);
	fixture_cfg(&f, variant);
	fixture_request(&f, variant);
	if (given(f.req)) {
		struct rpma_conn_private_data data = {bytes, 5};
		const struct rpma_conn_private_data *pdata = NULL;
		if (has(variant, "null-data") || has(variant, "null-empty-data"))
			data.ptr = NULL;
		if (has(variant, "empty-data") || has(variant, "null-empty-data"))
			data.len = 0;
		if (has(variant, "full-data"))
			data.len = has(variant, "active") ? 56 : 196;
		if (has(variant, "longest-data"))
			data.len = 255;
		if (strstr(variant, "data"))
			pdata = &data;
		struct rpma_conn **conn = has(variant, "no-conn") ? NULL : &f.conn;
		APIF(rpma_conn_req_connect(&f.req, pdata, conn), "rpma_conn_req_connect(%s)", variant);
		say_pointer("req", f.req);
		say_pointer("conn", f.conn);
	}
	fixture_down(&f);
}

/* Deleting what is not there, twice over. */
void
nothing_to_delete(const char *variant)
{
	(void) variant;
#define DELETE_NOTHING(type, function) \
	do { \
		struct type *nothing = NULL; \
		API(function(NULL)); \
		API(function(&nothing)); \
		say_pointer("pointer", nothing); \
	} while (0)
	DELETE_NOTHING(rpma_peer, rpma_peer_delete);
	DELETE_NOTHING(rpma_peer_cfg, rpma_peer_cfg_delete);
	DELETE_NOTHING(rpma_mr_local, rpma_mr_dereg);
	DELETE_NOTHING(rpma_mr_remote, rpma_mr_remote_delete);
	DELETE_NOTHING(rpma_conn_cfg, rpma_conn_cfg_delete);
	DELETE_NOTHING(rpma_conn_req, rpma_conn_req_delete);
	DELETE_NOTHING(rpma_conn, rpma_conn_delete);
	DELETE_NOTHING(rpma_ep, rpma_ep_shutdown);
	DELETE_NOTHING(rpma_srq_cfg, rpma_srq_cfg_delete);
	DELETE_NOTHING(rpma_srq, rpma_srq_delete);
}

/* A peer of each kind of device. */
const char *const peer_variants[] = {"plain", "delete-twice", NULL};

void
peer(const char *variant)
{
	struct fixture f = FIXTURE_INIT;
	fixture_peer(&f);
	fixture_memory_regions(&f);
	fixture_down(&f);
	if (has(variant, "delete-twice"))
		fixture_down(&f);
}

/* The device behind an address. */
const char *const context_variants[] = {"local", "remote", "no-verbs", NULL};

void
context(const char *variant)
{
	struct ibv_context *context = UNTOUCHED;
	if (has(variant, "no-verbs"))
		script_device.no_verbs = 1;
	if (has(variant, "remote"))
		API(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_REMOTE, &context));
	else
		API(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
	script_say("     context %s", context == UNTOUCHED ? "unchanged" : script_name(context));
}

/* Every event of the connection manager on a connection and on an endpoint, known or not. */
const char *const event_variants[] = {"conn", "conn+data-null-length", "conn+data-zero-length",
	"conn+passive", "ep", NULL};

void
events(const char *variant)
{
	struct fixture f = FIXTURE_INIT;
	fixture_peer(&f);
	if (has(variant, "ep")) {
		if (given(f.peer))
			API(rpma_ep_listen(f.peer, "127.0.0.1", "7204", &f.ep));
	} else {
		fixture_cfg(&f, "default");
		fixture_request(&f, has(variant, "passive") ? "passive" : "active");
		if (given(f.req))
			API(rpma_conn_req_connect(&f.req, NULL, &f.conn));
	}
	for (int type = -2; type <= 20; type++) {
		const void *data = has(variant, "data-null-length") ? NULL : "12345";
		uint8_t length = has(variant, "data-zero-length") ? 0 : 5;
		if (has(variant, "ep") && given(f.ep)) {
			int fd = UNTOUCHED_INT;
			API(rpma_ep_get_fd(f.ep, &fd));
			say_fd("fd", fd);
			script_push_cm_event(type, type == RDMA_CM_EVENT_CONNECT_REQUEST ? 0 : 1, data,
					length);
			f.req = UNTOUCHED;
			APIF(rpma_ep_next_conn_req(f.ep, NULL, &f.req), "rpma_ep_next_conn_req(event %d)",
					type);
			say_pointer("req", f.req);
			if (given(f.req)) {
				struct rpma_conn_private_data got = {UNTOUCHED, 0xa5};
				API(rpma_conn_req_get_private_data(f.req, &got));
				say_pointer("pdata.ptr", got.ptr);
				say_int("pdata.len", got.len);
				API(rpma_conn_req_delete(&f.req));
			}
		} else if (given(f.conn)) {
			enum rpma_conn_event event = (enum rpma_conn_event)UNTOUCHED_INT;
			script_push_cm_event(type, 1, data, length);
			APIF(rpma_conn_next_event(f.conn, &event), "rpma_conn_next_event(event %d)", type);
			say_int("event", event);
			struct rpma_conn_private_data got = {UNTOUCHED, 0xa5};
			API(rpma_conn_get_private_data(f.conn, &got));
			say_pointer("pdata.ptr", got.ptr);
			say_int("pdata.len", got.len);
			if (given(got.ptr))
				say_bytes("pdata", got.ptr, got.len);
		}
	}
	/* none left */
	if (given(f.ep) && !given(f.conn)) {
		f.req = UNTOUCHED;
		API(rpma_ep_next_conn_req(f.ep, NULL, &f.req));
		say_pointer("req", f.req);
		if (given(f.req))
			API(rpma_conn_req_delete(&f.req));
	}
	if (given(f.conn)) {
		enum rpma_conn_event event = (enum rpma_conn_event)UNTOUCHED_INT;
		API(rpma_conn_next_event(f.conn, &event));
		say_int("event", event);
	}
	f.req = UNTOUCHED;
	fixture_down(&f);
}

/* An endpoint serving one client after another. */
void
endpoint(const char *variant)
{
	(void) variant;
	struct fixture f = FIXTURE_INIT;
	fixture_peer(&f);
	if (given(f.peer))
		API(rpma_ep_listen(f.peer, "0.0.0.0", "0", &f.ep));
	for (int i = 0; i < 3 && given(f.ep); i++) {
		f.req = UNTOUCHED;
		script_push_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, 0, i == 1 ? "abc" : NULL, i == 1 ? 3 : 0);
		API(rpma_ep_next_conn_req(f.ep, NULL, &f.req));
		say_pointer("req", f.req);
		if (!given(f.req))
			continue;
		f.conn = UNTOUCHED;
		API(rpma_conn_req_connect(&f.req, NULL, &f.conn));
		say_pointer("conn", f.conn);
		if (!given(f.conn))
			continue;
		struct rpma_conn_private_data got = {UNTOUCHED, 0xa5};
		API(rpma_conn_get_private_data(f.conn, &got));
		say_pointer("pdata.ptr", got.ptr);
		say_int("pdata.len", got.len);
		API(rpma_conn_delete(&f.conn));
	}
	fixture_down(&f);
}

/* A request outlives the endpoint it was taken from, and is decided then. */
const char *const outlives_variants[] = {"delete", "connect", "connect+shared+rcq", "two", NULL};

void
outlives(const char *variant)
{
	struct fixture f = FIXTURE_INIT;
	struct rpma_conn_req *other = UNTOUCHED;
	fixture_peer(&f);
	fixture_cfg(&f, variant);
	fixture_request(&f, has(variant, "shared") ? "passive+pdata" : "passive");
	if (has(variant, "two") && given(f.ep)) {
		script_push_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, 0, NULL, 0);
		API(rpma_ep_next_conn_req(f.ep, NULL, &other));
		say_pointer("other", other);
	}
	if (given(f.ep)) {
		API(rpma_ep_shutdown(&f.ep));
		say_pointer("ep", f.ep);
	}
	if (!has(variant, "delete"))
		fixture_connection(&f, variant);
	if (given(other)) {
		API(rpma_conn_req_delete(&other));
		say_pointer("other", other);
	}
	fixture_down(&f);
}
