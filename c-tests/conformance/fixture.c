/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/* The steps every life cycle is made of. No expectation is in here: the trace is the outcome. */

#include <string.h>

#include "fixture.h"

char fixture_memory[MEMORY_SIZE] __attribute__((aligned(4096)));

/* Is the word among those of the variant, which are separated by '+'? */
int
has(const char *variant, const char *word)
{
	size_t length = strlen(word);
	while (*variant) {
		size_t here = strcspn(variant, "+");
		if (here == length && strncmp(variant, word, length) == 0)
			return 1;
		variant += here;
		if (*variant == '+')
			variant++;
	}
	return 0;
}

void
fixture_peer(struct fixture *f)
{
	script_name_memory("memory", fixture_memory, sizeof(fixture_memory));
	struct rpma_peer **peer = &f->peer;
	API(rpma_peer_new(script_context(), peer));
	say_pointer("peer", f->peer);
}

void
fixture_memory_regions(struct fixture *f)
{
	if (!given(f->peer))
		return;
	struct rpma_peer *peer = f->peer;
	API(rpma_mr_reg(peer, fixture_memory, MEMORY_SIZE, 0xff, &f->mr));
	say_pointer("mr", f->mr);

	/* what a peer would have sent: 0x100000, 4096 bytes, key 0xabcd0123, all usages */
	static const unsigned char descriptor[21] = {0x00, 0x00, 0x10, 0, 0, 0, 0, 0,
		0x00, 0x10, 0, 0, 0, 0, 0, 0, 0x23, 0x01, 0xcd, 0xab, 0xff};
	API(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &f->remote));
	say_pointer("remote", f->remote);
}

void
fixture_cfg(struct fixture *f, const char *variant)
{
	if (has(variant, "default"))
		return;
	struct rpma_conn_cfg **cfg_ptr = &f->cfg;
	API(rpma_conn_cfg_new(cfg_ptr));
	say_pointer("cfg", f->cfg);
	if (!given(f->cfg))
		return;
	struct rpma_conn_cfg *cfg = f->cfg;
	if (has(variant, "rcq"))
		API(rpma_conn_cfg_set_rcq_size(cfg, 7));
	if (has(variant, "shared"))
		API(rpma_conn_cfg_set_compl_channel(cfg, true));
	if (has(variant, "sizes")) {
		API(rpma_conn_cfg_set_cq_size(cfg, UINT32_MAX));
		API(rpma_conn_cfg_set_rcq_size(cfg, UINT32_MAX));
		API(rpma_conn_cfg_set_sq_size(cfg, UINT32_MAX));
		API(rpma_conn_cfg_set_rq_size(cfg, 0x80000000u));
	}
	if (has(variant, "zeros")) {
		API(rpma_conn_cfg_set_cq_size(cfg, 0));
		API(rpma_conn_cfg_set_sq_size(cfg, 0));
		API(rpma_conn_cfg_set_rq_size(cfg, 0));
		API(rpma_conn_cfg_set_timeout(cfg, 0));
	}
	if (has(variant, "timeout"))
		API(rpma_conn_cfg_set_timeout(cfg, 77));
	if ((has(variant, "srq") || has(variant, "srq-no-rcq")) && given(f->peer)) {
		struct rpma_peer *peer = f->peer;
		if (has(variant, "srq-no-rcq")) {
			API(rpma_srq_cfg_new(&f->srq_cfg));
			if (given(f->srq_cfg))
				API(rpma_srq_cfg_set_rcq_size(f->srq_cfg, 0));
		}
		struct rpma_srq_cfg *srq_cfg = given(f->srq_cfg) ? f->srq_cfg : NULL;
		API(rpma_srq_new(peer, srq_cfg, &f->srq));
		say_pointer("srq", f->srq);
		if (given(f->srq))
			API(rpma_conn_cfg_set_srq(cfg, f->srq));
	}
}

static const char hello[] = "what the other side said";

void
fixture_request(struct fixture *f, const char *variant)
{
	if (!given(f->peer))
		return;
	struct rpma_peer *peer = f->peer;
	struct rpma_conn_cfg *cfg = given(f->cfg) ? f->cfg : NULL;
	if (has(variant, "passive")) {
		API(rpma_ep_listen(peer, "127.0.0.1", "7204", &f->ep));
		say_pointer("ep", f->ep);
		if (!given(f->ep))
			return;
		if (has(variant, "pdata"))
			script_push_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, 0, hello, sizeof(hello));
		else
			script_push_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, 0, NULL, 0);
		struct rpma_ep *ep = f->ep;
		API(rpma_ep_next_conn_req(ep, cfg, &f->req));
	} else {
		API(rpma_conn_req_new(peer, "127.0.0.1", "7204", cfg, &f->req));
	}
	say_pointer("req", f->req);
}

void
fixture_connection(struct fixture *f, const char *variant)
{
	if (!given(f->req))
		return;
	struct rpma_conn_private_data data = {"private", 7};
	const struct rpma_conn_private_data *pdata = has(variant, "pdata") ? &data : NULL;
	struct rpma_conn_req **req_ptr = &f->req;
	APIF(rpma_conn_req_connect(req_ptr, pdata, &f->conn), "rpma_conn_req_connect(&req, %s, &conn)",
			pdata ? "private data" : "NULL");
	say_pointer("req", f->req);
	say_pointer("conn", f->conn);
	if (!given(f->conn))
		return;
	struct rpma_conn *conn = f->conn;

	enum rpma_conn_event event = (enum rpma_conn_event)UNTOUCHED_INT;
	if (has(variant, "pdata"))
		script_push_cm_event(RDMA_CM_EVENT_ESTABLISHED, 1, "established", 12);
	else
		script_push_cm_event(RDMA_CM_EVENT_ESTABLISHED, 1, NULL, 0);
	API(rpma_conn_next_event(conn, &event));
	say_int("event", event);

	struct rpma_conn_private_data got = {UNTOUCHED, 0xa5};
	API(rpma_conn_get_private_data(conn, &got));
	say_pointer("pdata.ptr", got.ptr);
	say_int("pdata.len", got.len);
	if (given(got.ptr))
		say_bytes("pdata", got.ptr, got.len);

	API(rpma_conn_get_cq(conn, &f->cq));
	say_pointer("cq", f->cq);
	API(rpma_conn_get_rcq(conn, &f->rcq));
	say_pointer("rcq", f->rcq);
}

void
fixture_down(struct fixture *f)
{
	if (given(f->conn)) {
		API(rpma_conn_disconnect(f->conn));
		script_push_cm_event(RDMA_CM_EVENT_DISCONNECTED, 1, NULL, 0);
		enum rpma_conn_event event = (enum rpma_conn_event)UNTOUCHED_INT;
		API(rpma_conn_next_event(f->conn, &event));
		say_int("event", event);
		API(rpma_conn_delete(&f->conn));
		say_pointer("conn", f->conn);
	}
	if (given(f->req)) {
		API(rpma_conn_req_delete(&f->req));
		say_pointer("req", f->req);
	}
	if (given(f->ep)) {
		API(rpma_ep_shutdown(&f->ep));
		say_pointer("ep", f->ep);
	}
	if (given(f->remote)) {
		API(rpma_mr_remote_delete(&f->remote));
		say_pointer("remote", f->remote);
	}
	if (given(f->mr)) {
		API(rpma_mr_dereg(&f->mr));
		say_pointer("mr", f->mr);
	}
	if (given(f->srq)) {
		API(rpma_srq_delete(&f->srq));
		say_pointer("srq", f->srq);
	}
	if (given(f->srq_cfg))
		API(rpma_srq_cfg_delete(&f->srq_cfg));
	if (given(f->pcfg))
		API(rpma_peer_cfg_delete(&f->pcfg));
	if (given(f->cfg)) {
		API(rpma_conn_cfg_delete(&f->cfg));
		say_pointer("cfg", f->cfg);
	}
	if (given(f->peer)) {
		API(rpma_peer_delete(&f->peer));
		say_pointer("peer", f->peer);
	}
}
