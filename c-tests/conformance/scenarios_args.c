/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * Every argument a function may refuse, good and bad, in all combinations: what is refused, with
 * which code, before which provider call, and what of the caller's is touched.
 */

#include <string.h>

#include "scenarios.h"

/* Both values of one argument. */
#define EACH(name) for (int name = 0; name <= 1; name++)
#define OK(name) (name ? "ok" : "bad")

static struct fixture f;

static void
up(const char *variant)
{
	static const struct fixture init = FIXTURE_INIT;
	f = init;
	fixture_peer(&f);
	fixture_memory_regions(&f);
	if (variant) {
		fixture_cfg(&f, variant);
		fixture_request(&f, variant);
	}
}

/* Objects a case made are taken down at once. */
#define SAY_AND_DROP(pointer, drop) \
	do { \
		say_pointer(#pointer, pointer); \
		if (given(pointer)) \
			(void) drop(&pointer); \
	} while (0)

#define GETTER(function, object_type, object, value_type) \
	EACH(o) EACH(v) { \
		value_type value; \
		memset(&value, 0x5a, sizeof(value)); \
		APIF(function(o ? (object) : (object_type *)NULL, v ? &value : NULL), \
				#function "(%s, %s)", OK(o), OK(v)); \
		if (!(o && v)) \
			say_bytes("value", &value, sizeof(value)); \
	}

void
args_config(const char *variant)
{
	(void) variant;
	struct rpma_conn_cfg *cfg = UNTOUCHED;
	struct rpma_srq_cfg *srq_cfg = UNTOUCHED;
	struct rpma_peer_cfg *pcfg = UNTOUCHED;
	API(rpma_conn_cfg_new(NULL));
	API(rpma_srq_cfg_new(NULL));
	API(rpma_peer_cfg_new(NULL));
	API(rpma_conn_cfg_new(&cfg));
	API(rpma_srq_cfg_new(&srq_cfg));
	API(rpma_peer_cfg_new(&pcfg));
	if (!given(cfg) || !given(srq_cfg) || !given(pcfg))
		return;

	GETTER(rpma_conn_cfg_get_timeout, struct rpma_conn_cfg, cfg, int);
	GETTER(rpma_conn_cfg_get_cq_size, struct rpma_conn_cfg, cfg, uint32_t);
	GETTER(rpma_conn_cfg_get_rcq_size, struct rpma_conn_cfg, cfg, uint32_t);
	GETTER(rpma_conn_cfg_get_sq_size, struct rpma_conn_cfg, cfg, uint32_t);
	GETTER(rpma_conn_cfg_get_rq_size, struct rpma_conn_cfg, cfg, uint32_t);
	GETTER(rpma_conn_cfg_get_compl_channel, struct rpma_conn_cfg, cfg, bool);
	GETTER(rpma_conn_cfg_get_srq, struct rpma_conn_cfg, cfg, struct rpma_srq *);
	GETTER(rpma_srq_cfg_get_rq_size, struct rpma_srq_cfg, srq_cfg, uint32_t);
	GETTER(rpma_srq_cfg_get_rcq_size, struct rpma_srq_cfg, srq_cfg, uint32_t);
	GETTER(rpma_peer_cfg_get_direct_write_to_pmem, struct rpma_peer_cfg, pcfg, bool);
	GETTER(rpma_peer_cfg_get_descriptor, struct rpma_peer_cfg, pcfg, uint8_t);
	GETTER(rpma_peer_cfg_get_descriptor_size, struct rpma_peer_cfg, pcfg, size_t);

	API(rpma_conn_cfg_set_timeout(NULL, 1));
	API(rpma_conn_cfg_set_timeout(NULL, -1));
	API(rpma_conn_cfg_set_timeout(cfg, -1));
	API(rpma_conn_cfg_set_cq_size(NULL, 1));
	API(rpma_conn_cfg_set_rcq_size(NULL, 1));
	API(rpma_conn_cfg_set_sq_size(NULL, 1));
	API(rpma_conn_cfg_set_rq_size(NULL, 1));
	API(rpma_conn_cfg_set_compl_channel(NULL, true));
	API(rpma_conn_cfg_set_srq(NULL, NULL));
	API(rpma_conn_cfg_set_srq(NULL, (struct rpma_srq *)cfg));
	API(rpma_conn_cfg_set_srq(cfg, NULL));
	API(rpma_srq_cfg_set_rq_size(NULL, 1));
	API(rpma_srq_cfg_set_rcq_size(NULL, 1));
	API(rpma_peer_cfg_set_direct_write_to_pmem(NULL, true));

	EACH(d) EACH(size) EACH(out) {
		struct rpma_peer_cfg *made = UNTOUCHED;
		APIF(rpma_peer_cfg_from_descriptor(d ? "\1" : NULL, (size_t)size, out ? &made : NULL),
				"rpma_peer_cfg_from_descriptor(%s, %d, %s)", OK(d), size, OK(out));
		SAY_AND_DROP(made, rpma_peer_cfg_delete);
	}
	API(rpma_peer_cfg_delete(&pcfg));
	API(rpma_srq_cfg_delete(&srq_cfg));
	API(rpma_conn_cfg_delete(&cfg));
}

void
args_peer(const char *variant)
{
	(void) variant;
	EACH(c) EACH(out) {
		struct rpma_peer *peer = UNTOUCHED;
		APIF(rpma_peer_new(c ? script_context() : NULL, out ? &peer : NULL),
				"rpma_peer_new(%s, %s)", OK(c), OK(out));
		SAY_AND_DROP(peer, rpma_peer_delete);
	}
	EACH(addr) for (int type = -1; type <= 2; type++) EACH(out) {
		struct ibv_context *context = UNTOUCHED;
		APIF(rpma_utils_get_ibv_context(addr ? "127.0.0.1" : NULL,
				(enum rpma_util_ibv_context_type)type, out ? &context : NULL),
				"rpma_utils_get_ibv_context(%s, %d, %s)", OK(addr), type, OK(out));
		script_say("     context %s", context == UNTOUCHED ? "unchanged" : script_name(context));
	}
	EACH(c) EACH(out) {
		int capable = UNTOUCHED_INT;
		APIF(rpma_utils_ibv_context_is_odp_capable(c ? script_context() : NULL,
				out ? &capable : NULL),
				"rpma_utils_ibv_context_is_odp_capable(%s, %s)", OK(c), OK(out));
		say_int("capable", capable);
	}
	API(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, NULL));
	API(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_MAX, NULL));
}

void
args_memory(const char *variant)
{
	(void) variant;
	up(NULL);
	if (!given(f.peer))
		return;
	EACH(peer) EACH(ptr) EACH(size) for (int usage = 0; usage < 3; usage++) EACH(out) {
		static const int values[] = {RPMA_MR_USAGE_SEND, 0, 0x100 | RPMA_MR_USAGE_SEND};
		struct rpma_mr_local *mr = UNTOUCHED;
		APIF(rpma_mr_reg(peer ? f.peer : NULL, ptr ? fixture_memory : NULL, (size_t)size * 10,
				values[usage], out ? &mr : NULL),
				"rpma_mr_reg(%s, %s, %d, %#x, %s)", OK(peer), OK(ptr), size * 10, values[usage],
				OK(out));
		SAY_AND_DROP(mr, rpma_mr_dereg);
	}
	if (!given(f.mr) || !given(f.remote)) {
		fixture_down(&f);
		return;
	}
	struct descriptor {
		unsigned char bytes[21];
	};
	GETTER(rpma_mr_get_descriptor, struct rpma_mr_local, f.mr, struct descriptor);
	GETTER(rpma_mr_get_descriptor_size, struct rpma_mr_local, f.mr, size_t);
	GETTER(rpma_mr_get_ptr, struct rpma_mr_local, f.mr, void *);
	GETTER(rpma_mr_get_size, struct rpma_mr_local, f.mr, size_t);
	GETTER(rpma_mr_remote_get_size, struct rpma_mr_remote, f.remote, size_t);
	GETTER(rpma_mr_remote_get_flush_type, struct rpma_mr_remote, f.remote, int);

	EACH(d) EACH(long_enough) EACH(usage) EACH(out) {
		unsigned char bytes[21] = {[20] = usage ? 1 : 0};
		struct rpma_mr_remote *remote = UNTOUCHED;
		APIF(rpma_mr_remote_from_descriptor(d ? bytes : NULL, long_enough ? 21 : 20,
				out ? &remote : NULL),
				"rpma_mr_remote_from_descriptor(%s, %s, usage %s, %s)", OK(d), OK(long_enough),
				OK(usage), OK(out));
		SAY_AND_DROP(remote, rpma_mr_remote_delete);
	}
	fixture_down(&f);
}

void
args_request(const char *variant)
{
	(void) variant;
	up(NULL);
	if (!given(f.peer))
		return;
	EACH(peer) EACH(addr) EACH(port) EACH(out) {
		struct rpma_ep *ep = UNTOUCHED;
		APIF(rpma_ep_listen(peer ? f.peer : NULL, addr ? "::1" : NULL, port ? "http" : NULL,
				out ? &ep : NULL),
				"rpma_ep_listen(%s, %s, %s, %s)", OK(peer), OK(addr), OK(port), OK(out));
		SAY_AND_DROP(ep, rpma_ep_shutdown);
	}
	EACH(peer) EACH(addr) EACH(port) EACH(out) {
		struct rpma_conn_req *req = UNTOUCHED;
		APIF(rpma_conn_req_new(peer ? f.peer : NULL, addr ? "host" : NULL, port ? "99999" : NULL, NULL,
				out ? &req : NULL),
				"rpma_conn_req_new(%s, %s, %s, NULL, %s)", OK(peer), OK(addr), OK(port), OK(out));
		SAY_AND_DROP(req, rpma_conn_req_delete);
	}
	if (given(f.peer))
		API(rpma_ep_listen(f.peer, "", "", &f.ep));
	if (given(f.ep)) {
		EACH(ep) EACH(out) {
			struct rpma_conn_req *req = UNTOUCHED;
			script_push_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, 0, NULL, 0);
			APIF(rpma_ep_next_conn_req(ep ? f.ep : NULL, NULL, out ? &req : NULL),
					"rpma_ep_next_conn_req(%s, NULL, %s)", OK(ep), OK(out));
			SAY_AND_DROP(req, rpma_conn_req_delete);
		}
		GETTER(rpma_ep_get_fd, struct rpma_ep, f.ep, int);
	}
	fixture_request(&f, "active");
	struct rpma_conn_req *nothing = NULL;
	API(rpma_conn_req_connect(NULL, NULL, NULL));
	API(rpma_conn_req_connect(NULL, NULL, &f.conn));
	API(rpma_conn_req_connect(&nothing, NULL, NULL));
	API(rpma_conn_req_connect(&nothing, NULL, &f.conn));
	say_pointer("nothing", nothing);
	say_pointer("conn", f.conn);
	if (given(f.req)) {
		GETTER(rpma_conn_req_get_private_data, struct rpma_conn_req, f.req,
				struct rpma_conn_private_data);
		EACH(req) EACH(dst) EACH(range)
			APIF(rpma_conn_req_recv(req ? f.req : NULL, dst ? f.mr : NULL, range ? 0 : 8,
					range ? 0 : 8, NULL),
					"rpma_conn_req_recv(%s, %s, range %s)", OK(req), OK(dst), OK(range));
	}
	fixture_down(&f);
}

void
args_connection(const char *variant)
{
	(void) variant;
	up("active");
	fixture_connection(&f, "active");
	if (given(f.conn)) {
		GETTER(rpma_conn_get_event_fd, struct rpma_conn, f.conn, int);
		GETTER(rpma_conn_get_compl_fd, struct rpma_conn, f.conn, int);
		GETTER(rpma_conn_get_private_data, struct rpma_conn, f.conn, struct rpma_conn_private_data);
		GETTER(rpma_conn_get_qp_num, struct rpma_conn, f.conn, uint32_t);
		GETTER(rpma_conn_get_cq, struct rpma_conn, f.conn, struct rpma_cq *);
		GETTER(rpma_conn_get_rcq, struct rpma_conn, f.conn, struct rpma_cq *);
		GETTER(rpma_conn_next_event, struct rpma_conn, f.conn, enum rpma_conn_event);
		struct rpma_peer_cfg *pcfg = UNTOUCHED;
		API(rpma_peer_cfg_new(&pcfg));
		if (given(pcfg)) {
			EACH(conn) EACH(cfg)
				APIF(rpma_conn_apply_remote_peer_cfg(conn ? f.conn : NULL, cfg ? pcfg : NULL),
						"rpma_conn_apply_remote_peer_cfg(%s, %s)", OK(conn), OK(cfg));
			API(rpma_peer_cfg_delete(&pcfg));
		}
		EACH(conn) EACH(out) EACH(is_rcq) {
			struct rpma_cq *cq = UNTOUCHED;
			bool rcq = false;
			APIF(rpma_conn_wait(conn ? f.conn : NULL, 0, out ? &cq : NULL, is_rcq ? &rcq : NULL),
					"rpma_conn_wait(%s, 0, %s, %s)", OK(conn), OK(out), OK(is_rcq));
			say_pointer("cq", cq);
		}
		API(rpma_conn_disconnect(NULL));
	}
	fixture_down(&f);
}

void
args_operations(const char *variant)
{
	(void) variant;
	up("active");
	fixture_connection(&f, "active");
	if (given(f.conn) && given(f.mr) && given(f.remote)) {
		EACH(c) EACH(l) EACH(r) EACH(lo) EACH(ro) EACH(len) EACH(flags) {
			struct rpma_conn *conn = c ? f.conn : NULL;
			struct rpma_mr_local *local = l ? f.mr : NULL;
			struct rpma_mr_remote *remote = r ? f.remote : NULL;
			size_t lof = lo ? 0 : 16, rof = ro ? 0 : 24, length = len ? 0 : 32;
#define TELL(name) name "(%s, local %s+%zu, remote %s+%zu, %zu, %d)", OK(c), OK(l), lof, OK(r), rof, \
		length, flags
			APIF(rpma_read(conn, local, lof, remote, rof, length, flags, NULL), TELL("rpma_read"));
			APIF(rpma_write(conn, remote, rof, local, lof, length, flags, NULL),
					TELL("rpma_write"));
			APIF(rpma_write_with_imm(conn, remote, rof, local, lof, length, flags, 1, NULL),
					TELL("rpma_write_with_imm"));
		}
		EACH(c) EACH(l) EACH(lo) EACH(len) EACH(flags) {
			struct rpma_conn *conn = c ? f.conn : NULL;
			struct rpma_mr_local *local = l ? f.mr : NULL;
			size_t lof = lo ? 0 : 16, length = len ? 0 : 32;
			APIF(rpma_send(conn, local, lof, length, flags, NULL),
					"rpma_send(%s, %s+%zu, %zu, %d)", OK(c), OK(l), lof, length, flags);
			APIF(rpma_send_with_imm(conn, local, lof, length, flags, 1, NULL),
					"rpma_send_with_imm(%s, %s+%zu, %zu, %d)", OK(c), OK(l), lof, length, flags);
			if (flags)
				APIF(rpma_recv(conn, local, lof, length, NULL),
						"rpma_recv(%s, %s+%zu, %zu)", OK(c), OK(l), lof, length);
		}
		EACH(c) EACH(r) EACH(s) EACH(flags) for (size_t offset = 0; offset <= 16; offset++)
			APIF(rpma_atomic_write(c ? f.conn : NULL, r ? f.remote : NULL, offset,
					s ? "abcdefgh" : NULL, flags, NULL),
					"rpma_atomic_write(%s, %s+%zu, %s, %d)", OK(c), OK(r), offset, OK(s), flags);
		EACH(c) EACH(r) EACH(flags) for (int type = 0; type <= 1; type++)
			APIF(rpma_flush(c ? f.conn : NULL, r ? f.remote : NULL, 0, 8,
					(enum rpma_flush_type)type, flags, NULL),
					"rpma_flush(%s, %s, type %d, %d)", OK(c), OK(r), type, flags);
	}
	fixture_down(&f);
}

void
args_completion(const char *variant)
{
	(void) variant;
	up("active");
	fixture_connection(&f, "active");
	if (given(f.cq)) {
		static const int entries[] = {-2147483647 - 1, -1, 0, 1, 2, 16};
		struct ibv_wc wc[16];
		EACH(cq) for (int e = 0; e < 6; e++) EACH(w) EACH(out) {
			int got = UNTOUCHED_INT;
			APIF(rpma_cq_get_wc(cq ? f.cq : NULL, entries[e], w ? wc : NULL, out ? &got : NULL),
					"rpma_cq_get_wc(%s, %d, %s, %s)", OK(cq), entries[e], OK(w), OK(out));
			say_int("got", got);
		}
		GETTER(rpma_cq_get_fd, struct rpma_cq, f.cq, int);
		API(rpma_cq_wait(NULL));
	}
	fixture_down(&f);
}

void
args_srq(const char *variant)
{
	(void) variant;
	up(NULL);
	if (!given(f.peer))
		return;
	EACH(peer) EACH(out) {
		struct rpma_srq *srq = UNTOUCHED;
		APIF(rpma_srq_new(peer ? f.peer : NULL, NULL, out ? &srq : NULL),
				"rpma_srq_new(%s, NULL, %s)", OK(peer), OK(out));
		SAY_AND_DROP(srq, rpma_srq_delete);
	}
	if (given(f.peer))
		API(rpma_srq_new(f.peer, NULL, &f.srq));
	if (given(f.srq) && given(f.mr)) {
		GETTER(rpma_srq_get_rcq, struct rpma_srq, f.srq, struct rpma_cq *);
		EACH(s) EACH(dst) EACH(offset) EACH(len)
			APIF(rpma_srq_recv(s ? f.srq : NULL, dst ? f.mr : NULL, offset ? 0 : 8, len ? 0 : 8,
					NULL),
					"rpma_srq_recv(%s, %s, %d, %d)", OK(s), OK(dst), offset ? 0 : 8, len ? 0 : 8);
	}
	fixture_down(&f);
}
