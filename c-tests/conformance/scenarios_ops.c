/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * The data path with good arguments: what each operation puts into its work request, and what
 * completions and waiting give back. Bad arguments are in scenarios_args.c.
 */

#include <string.h>

#include "scenarios.h"

static void
up(struct fixture *f, const char *variant)
{
	fixture_peer(f);
	fixture_memory_regions(f);
	fixture_cfg(f, variant);
	fixture_request(f, variant);
	if (given(f->req) && given(f->mr)) {
		API(rpma_conn_req_recv(f->req, f->mr, 64, 128, (void *)(uintptr_t)0x77));
		API(rpma_conn_req_recv(f->req, f->mr, 0, 0, NULL));
	}
	fixture_connection(f, variant);
}

/* Variants: what the device can do natively, and what the application's rdma-core knows of it. */
const char *const operation_variants[] = {"active", "passive", "active+srq", "atomic-write",
	"atomic-write+flush", "atomic-write+flush+old-userland", "no-extended-qp+atomic-write", NULL};

static void
device(const char *variant)
{
	script_device.atomic_write = has(variant, "atomic-write");
	script_device.flush_global = has(variant, "flush") || has(variant, "flush-global");
	script_device.flush_persistent = has(variant, "flush") || has(variant, "flush-persistent");
	script_device.old_userland = has(variant, "old-userland");
	script_device.no_extended_qp = has(variant, "no-extended-qp");
}

static const int flag_values[] = {RPMA_F_COMPLETION_ON_ERROR, RPMA_F_COMPLETION_ALWAYS, 2, 4, 0x80, -1};
#define N_FLAGS (sizeof(flag_values) / sizeof(flag_values[0]))

void
operations(const char *variant)
{
	device(variant);
	struct fixture f = FIXTURE_INIT;
	up(&f, variant);
	if (given(f.conn) && given(f.mr) && given(f.remote)) {
		struct rpma_conn *conn = f.conn;
		struct rpma_mr_local *mr = f.mr;
		struct rpma_mr_remote *remote = f.remote;
		const void *context = (const void *)(uintptr_t)0xfeedfacecafef00dull;
		for (size_t i = 0; i < N_FLAGS; i++) {
			int flags = flag_values[i];
			script_say("flags %#x", (unsigned)flags);
			API(rpma_read(conn, mr, 16, remote, 32, 48, flags, context));
			API(rpma_write(conn, remote, 1, mr, 2, 3, flags, context));
			API(rpma_write_with_imm(conn, remote, 4, mr, 5, 6, flags, 0x01020304, context));
			API(rpma_atomic_write(conn, remote, 8, "ABCDEFGH", flags, context));
			API(rpma_send(conn, mr, 7, 8, flags, context));
			API(rpma_send_with_imm(conn, mr, 9, 10, flags, 0xf1f2f3f4u, context));
		}
		/* nothing to move */
		API(rpma_read(conn, NULL, 0, NULL, 0, 0, 1, NULL));
		API(rpma_write(conn, NULL, 0, NULL, 0, 0, 1, NULL));
		API(rpma_write_with_imm(conn, NULL, 0, NULL, 0, 0, 1, 5, NULL));
		API(rpma_send(conn, NULL, 0, 0, 1, NULL));
		API(rpma_send_with_imm(conn, NULL, 0, 0, 1, 6, NULL));
		API(rpma_recv(conn, NULL, 0, 0, NULL));
		/* no bytes of something */
		API(rpma_read(conn, mr, 16, remote, 32, 0, 3, context));
		API(rpma_write(conn, remote, 32, mr, 16, 0, 3, context));
		API(rpma_send(conn, mr, 16, 0, 3, context));
		API(rpma_recv(conn, mr, 16, 0, context));
		/* beyond the regions' ends: the provider decides */
		API(rpma_read(conn, mr, 8192, remote, 1 << 20, 1 << 21, 3, context));
		API(rpma_write(conn, remote, 1 << 20, mr, 8192, 1 << 21, 3, context));
		API(rpma_atomic_write(conn, remote, 1 << 20, "12345678", 3, context));
		API(rpma_send(conn, mr, 8192, 1 << 21, 3, context));
		API(rpma_recv(conn, mr, 8192, 1 << 21, context));
		API(rpma_recv(conn, mr, 1, 2, context));
		/* the longest there is */
		API(rpma_write(conn, remote, 0, mr, 0, UINT32_MAX, 3, context));
	}
	fixture_down(&f);
}

void
long_operations(const char *variant)
{
	(void) variant;
	static const size_t lengths[] = {(size_t)1 << 32, ((size_t)1 << 32) + 1, SIZE_MAX};
	struct fixture f = FIXTURE_INIT;
	up(&f, "srq");
	for (size_t i = 0; i < 3 && given(f.conn) && given(f.mr) && given(f.remote); i++) {
		size_t length = lengths[i];
		script_say("length %#zx", length);
		API(rpma_read(f.conn, f.mr, 0, f.remote, 0, length, 3, NULL));
		API(rpma_write(f.conn, f.remote, 0, f.mr, 0, length, 3, NULL));
		API(rpma_write_with_imm(f.conn, f.remote, 0, f.mr, 0, length, 3, 1, NULL));
		API(rpma_send(f.conn, f.mr, 0, length, 3, NULL));
		API(rpma_send_with_imm(f.conn, f.mr, 0, length, 3, 1, NULL));
		API(rpma_recv(f.conn, f.mr, 0, length, NULL));
		API(rpma_srq_recv(f.srq, f.mr, 0, length, NULL));
		API(rpma_mr_advise(f.mr, 0, length, 0, 0));
		API(rpma_flush(f.conn, f.remote, 0, length, RPMA_FLUSH_TYPE_VISIBILITY, 3, NULL));
	}
	fixture_down(&f);
}

const char *const flush_variants[] = {"active", "passive", "flush", "flush+passive", "flush-global",
	"flush-persistent", "old-userland", "flush+old-userland", "flush+no-extended-qp", NULL};

void
flushes(const char *variant)
{
	device(variant);
	struct fixture f = FIXTURE_INIT;
	up(&f, variant);
	static const unsigned char usages_told[] = {0x01, 0x10, 0x20, 0x30, 0x40};
	for (int pmem = -1; pmem <= 1 && given(f.conn); pmem++) {
		if (pmem >= 0) {
			unsigned char told = (unsigned char)pmem;
			struct rpma_peer_cfg *pcfg = UNTOUCHED;
			APIF(rpma_peer_cfg_from_descriptor(&told, 1, &pcfg), "remote peer: direct write %d",
					pmem);
			if (given(pcfg)) {
				API(rpma_conn_apply_remote_peer_cfg(f.conn, pcfg));
				API(rpma_peer_cfg_delete(&pcfg));
			}
		}
		for (size_t u = 0; u < sizeof(usages_told); u++) {
			unsigned char descriptor[21] = {0x00, 0x00, 0x20, [8] = 0x00, 0x10, [16] = 0x42,
				[20] = usages_told[u]};
			struct rpma_mr_remote *remote = UNTOUCHED;
			APIF(rpma_mr_remote_from_descriptor(descriptor, 21, &remote), "remote usage %#x",
					usages_told[u]);
			if (!given(remote))
				continue;
			for (int type = 0; type <= 1; type++) {
				APIF(rpma_flush(f.conn, remote, 0, 4096, (enum rpma_flush_type)type,
						RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)0x99),
						"rpma_flush(0, 4096, type %d)", type);
				APIF(rpma_flush(f.conn, remote, 100, 64, (enum rpma_flush_type)type,
						RPMA_F_COMPLETION_ON_ERROR, NULL),
						"rpma_flush(100, 64, type %d)", type);
				/* the end of the region, under 8 bytes, nothing at all */
				APIF(rpma_flush(f.conn, remote, 4095, 1, (enum rpma_flush_type)type,
						RPMA_F_COMPLETION_ALWAYS, NULL),
						"rpma_flush(4095, 1, type %d)", type);
				APIF(rpma_flush(f.conn, remote, 0, 7, (enum rpma_flush_type)type,
						RPMA_F_COMPLETION_ALWAYS, NULL),
						"rpma_flush(0, 7, type %d)", type);
				APIF(rpma_flush(f.conn, remote, 0, 0, (enum rpma_flush_type)type,
						RPMA_F_COMPLETION_ALWAYS, NULL),
						"rpma_flush(0, 0, type %d)", type);
				APIF(rpma_flush(f.conn, remote, 0, 8, (enum rpma_flush_type)type, 0, NULL),
						"rpma_flush(0, 8, type %d, flags 0)", type);
			}
			API(rpma_mr_remote_delete(&remote));
		}
	}
	fixture_down(&f);
}

void
unknown_flush(const char *variant)
{
	(void) variant;
	struct fixture f = FIXTURE_INIT;
	up(&f, "active");
	static const int types[] = {2, 77, -1};
	for (size_t i = 0; i < 3 && given(f.conn) && given(f.remote); i++)
		APIF(rpma_flush(f.conn, f.remote, 0, 8, (enum rpma_flush_type)types[i],
				RPMA_F_COMPLETION_ALWAYS, NULL), "rpma_flush(type %d)", types[i]);
	fixture_down(&f);
}

const char *const completion_variants[] = {"active", "active+rcq", "active+shared+rcq", NULL};

void
completions(const char *variant)
{
	struct fixture f = FIXTURE_INIT;
	up(&f, variant);
	static const int results[] = {0, -1, -2, 1, 2, 3, 16, 17, 100};
	struct ibv_wc wc[16];
	struct rpma_cq *cqs[2] = {f.cq, f.rcq};
	for (int c = 0; c < 2; c++) {
		struct rpma_cq *cq = cqs[c];
		if (!given(cq))
			continue;
		for (size_t r = 0; r < sizeof(results) / sizeof(results[0]); r++) {
			for (int entries = 1; entries <= 16; entries += 15) {
				int got = UNTOUCHED_INT;
				memset(wc, 0xcc, sizeof(wc));
				script_push_poll(results[r]);
				APIF(rpma_cq_get_wc(cq, entries, wc, &got), "rpma_cq_get_wc(%d) of %d", entries,
						results[r]);
				say_int("got", got);
				if (got > 0 && got <= 16)
					say_int("wr_id", (long long)wc[got - 1].wr_id);
			}
			script_push_poll(results[r]);
			APIF(rpma_cq_get_wc(cq, 1, wc, NULL), "rpma_cq_get_wc(1, NULL) of %d", results[r]);
		}
	}
	fixture_down(&f);
}

/* Waiting, where one may and where one may not. CQs are told by the provider's numbers. */
const char *const wait_variants[] = {"active", "active+rcq", "active+shared", "active+shared+rcq",
	"active+srq", "active+shared+srq-no-rcq+rcq", "passive+shared+rcq", NULL};

static void
conn_wait(struct fixture *f, int flags, int with_is_rcq)
{
	struct rpma_cq *cq = UNTOUCHED;
	bool is_rcq = false, *is_rcq_ptr = with_is_rcq ? &is_rcq : NULL;
	memset(&is_rcq, 0x5a, 1);
	APIF(rpma_conn_wait(f->conn, flags, &cq, is_rcq_ptr), "rpma_conn_wait(flags %d, %s)", flags,
			with_is_rcq ? "&is_rcq" : "NULL");
	script_say("     cq %s", cq == UNTOUCHED ? "unchanged" : cq == NULL ? "NULL" :
			cq == f->cq ? "cq" : cq == f->rcq ? "rcq" : "other");
	unsigned char byte;
	memcpy(&byte, &is_rcq, 1);
	script_say("     is_rcq %s", byte == 0x5a ? "unchanged" : byte == 0 ? "false" :
			byte == 1 ? "true" : "other");
}

void
waits(const char *variant)
{
	struct fixture f = FIXTURE_INIT;
	up(&f, variant);
	if (given(f.conn)) {
		if (given(f.cq))
			API(rpma_cq_wait(f.cq));
		if (given(f.rcq))
			API(rpma_cq_wait(f.rcq));
		/* 1: the first CQ, 2: the second, 0: one nobody knows */
		static const int order[] = {1, 2, 1, 1, 0, 2};
		for (size_t i = 0; i < 6; i++) {
			script_push_cq_event(order[i]);
			conn_wait(&f, (int)i, i != 3);
		}
		if (given(f.cq)) {
			script_push_cq_event(0);
			API(rpma_cq_wait(f.cq));
		}
	}
	fixture_down(&f);
}

void
srq_life(const char *variant)
{
	(void) variant;
	for (int rcq = 0; rcq < 3; rcq++) {
		struct fixture f = FIXTURE_INIT;
		fixture_peer(&f);
		fixture_memory_regions(&f);
		if (rcq) {
			API(rpma_srq_cfg_new(&f.srq_cfg));
			if (given(f.srq_cfg)) {
				APIF(rpma_srq_cfg_set_rcq_size(f.srq_cfg, rcq == 1 ? 0 : UINT32_MAX),
						"rpma_srq_cfg_set_rcq_size(case %d)", rcq);
				API(rpma_srq_cfg_set_rq_size(f.srq_cfg, 0x90000000u));
			}
		}
		if (given(f.peer)) {
			API(rpma_srq_new(f.peer, given(f.srq_cfg) ? f.srq_cfg : NULL, &f.srq));
			say_pointer("srq", f.srq);
		}
		if (given(f.srq)) {
			API(rpma_srq_get_rcq(f.srq, &f.rcq));
			say_pointer("rcq", f.rcq);
			if (given(f.mr))
				API(rpma_srq_recv(f.srq, f.mr, 3, 4, (void *)(uintptr_t)5));
			API(rpma_srq_recv(f.srq, NULL, 0, 0, NULL));
			if (given(f.rcq)) {
				struct ibv_wc wc;
				int fd = UNTOUCHED_INT;
				API(rpma_cq_get_fd(f.rcq, &fd));
				say_fd("fd", fd);
				API(rpma_cq_wait(f.rcq));
				API(rpma_cq_get_wc(f.rcq, 1, &wc, NULL));
			}
		}
		fixture_down(&f);
	}
}
