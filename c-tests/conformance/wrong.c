/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * Proof that the runner can fail: loaded before a librpma, it makes that library wrong in the one
 * way the environment's RPMA_WRONG names. The self-test runs the original against itself with each.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <librpma.h>

static int
wrong(const char *way)
{
	static const char *asked;
	if (asked == NULL)
		asked = getenv("RPMA_WRONG") ? getenv("RPMA_WRONG") : "";
	return strcmp(asked, way) == 0;
}

#define REAL(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

/* a value out */
int
rpma_conn_cfg_get_rcq_size(const struct rpma_conn_cfg *cfg, uint32_t *size)
{
	int ret = REAL(rpma_conn_cfg_get_rcq_size)(cfg, size);
	if (ret == 0 && wrong("value"))
		++*size;
	return ret;
}

/* a field of a work request */
int
rpma_read(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t dst_offset,
		const struct rpma_mr_remote *src, size_t src_offset, size_t len, int flags,
		const void *op_context)
{
	return REAL(rpma_read)(conn, dst, dst_offset, src, src_offset, len,
			wrong("work-request") && flags ? flags | 2 : flags, op_context);
}

/* the caller's pointer afterwards */
int
rpma_peer_delete(struct rpma_peer **peer_ptr)
{
	struct rpma_peer *peer = peer_ptr ? *peer_ptr : NULL;
	int ret = REAL(rpma_peer_delete)(peer_ptr);
	if (peer && wrong("pointer"))
		*peer_ptr = peer;
	return ret;
}

/* a code */
int
rpma_mr_remote_from_descriptor(const void *desc, size_t desc_size, struct rpma_mr_remote **mr_ptr)
{
	int ret = REAL(rpma_mr_remote_from_descriptor)(desc, desc_size, mr_ptr);
	return ret == RPMA_E_INVAL && desc_size == 20 && wrong("code") ? RPMA_E_NOSUPP : ret;
}

/* a crash */
int
rpma_cq_get_wc(struct rpma_cq *cq, int num_entries, struct ibv_wc *wc, int *num_entries_got)
{
	if (wc == NULL && wrong("crash"))
		abort();
	return REAL(rpma_cq_get_wc)(cq, num_entries, wc, num_entries_got);
}

/* a hang */
int
rpma_ep_shutdown(struct rpma_ep **ep_ptr)
{
	while (ep_ptr == NULL && wrong("hang"))
		pause();
	return REAL(rpma_ep_shutdown)(ep_ptr);
}

/* errno of a failed provider call; a record too few */
int
rpma_conn_disconnect(struct rpma_conn *conn)
{
	enum rpma_log_level level = RPMA_LOG_DISABLED;
	(void) rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level);
	if (wrong("record"))
		(void) rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_ERROR);
	int ret = REAL(rpma_conn_disconnect)(conn);
	if (wrong("record"))
		(void) rpma_log_set_threshold(RPMA_LOG_THRESHOLD, level);
	if (ret && wrong("errno"))
		errno = EDOM;
	return ret;
}

/* something left behind */
int
rpma_srq_delete(struct rpma_srq **srq_ptr)
{
	if (srq_ptr && *srq_ptr && wrong("leak")) {
		*srq_ptr = NULL;
		return 0;
	}
	return REAL(rpma_srq_delete)(srq_ptr);
}

/* one provider call too many */
int
rpma_cq_wait(struct rpma_cq *cq)
{
	int ret = REAL(rpma_cq_wait)(cq);
	return ret == 0 && wrong("extra-call") ? REAL(rpma_cq_wait)(cq) : ret;
}

/* another code when memory runs out, and only then */
int
rpma_mr_reg(struct rpma_peer *peer, void *ptr, size_t size, int usage, struct rpma_mr_local **mr_ptr)
{
	int ret = REAL(rpma_mr_reg)(peer, ptr, size, usage, mr_ptr);
	return ret == RPMA_E_NOMEM && wrong("out-of-memory") ? RPMA_E_PROVIDER : ret;
}

const char *
rpma_err_2str(int ret)
{
	return ret == RPMA_E_AGAIN && wrong("text") ? "try again" : REAL(rpma_err_2str)(ret);
}
