/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * The scripted provider's libibverbs.so.1: real structures, one pretended device, every call
 * recorded and answered from the script. Pure look-ups that change nothing (device list, names,
 * ibv_qp_to_qp_ex) are not recorded, so that a library may make more or fewer of them.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* the header wraps it in a macro; here the function itself is defined */
#include "script.h"
#undef ibv_reg_mr

/*
 * Facts of newer headers than the ones this may be built with: bits and the two members that later
 * releases append to struct ibv_qp_ex.
 */
#define SEND_OPS_FLUSH (1 << 11)
#define SEND_OPS_ATOMIC_WRITE (1 << 12)
#define DEVICE_FLUSH_GLOBAL (1ULL << 38)
#define DEVICE_FLUSH_PERSISTENT (1ULL << 39)
#define ACCESS_FLUSH_PERSISTENT (1U << 9)
#define DEVICE_ATOMIC_WRITE (1ULL << 40)
#define QP_EX_OFFSET_ATOMIC_WRITE 0x158
#define QP_EX_OFFSET_FLUSH 0x160

struct scripted_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex;
		char newest[QP_EX_OFFSET_FLUSH + 2 * sizeof(void *)];
	};
	int extended;
};

static struct verbs_context device_context;
static struct ibv_device device;
static int device_ready;
static struct ibv_cq unknown_cq;

#define VERDICT_FAILS(v) ((v).fail || (v).raw)

/* what a struct field or a bit mask is called in the trace */

static const char *
bits(uint64_t value, const char *const names[], int count, char *out, size_t size)
{
	size_t used = 0;
	out[0] = '\0';
	for (int i = 0; i < 64; i++) {
		if (!(value & (1ULL << i)))
			continue;
		if (i < count && names[i])
			used += (size_t)snprintf(out + used, size - used, "%s%s", used ? "|" : "", names[i]);
		else
			used += (size_t)snprintf(out + used, size - used, "%sbit%d", used ? "|" : "", i);
		if (used >= size)
			break;
	}
	return used ? out : "0";
}

static const char *const access_names[] = {"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ",
	"REMOTE_ATOMIC", "MW_BIND", "ZERO_BASED", "ON_DEMAND", "HUGETLB", "FLUSH_GLOBAL",
	"FLUSH_PERSISTENT"};
static const char *const send_flag_names[] = {"FENCE", "SIGNALED", "SOLICITED", "INLINE", "IP_CSUM"};
static const char *const qp_mask_names[] = {"PD", "XRCD", "CREATE_FLAGS", "MAX_TSO_HEADER",
	"IND_TABLE", "RX_HASH", "SEND_OPS_FLAGS"};
static const char *const send_ops_names[] = {"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND",
	"SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "LOCAL_INV",
	"BIND_MW", "SEND_WITH_INV", "TSO", "FLUSH", "ATOMIC_WRITE"};
static const char *const opcode_names[] = {"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND",
	"SEND_WITH_IMM", "RDMA_READ"};

#define BITS(value, names) \
	bits((value), (names), (int)(sizeof(names) / sizeof(names[0])), (char[256]){0}, 256)

/* Ends a call that returns a pointer. */
static void
say_null(const char *call, int value)
{
	script_say("    %s = NULL %s", call, script_errno(value));
	errno = value;
}

static const char *
bytes(const void *data, size_t size, char *out)
{
	for (size_t i = 0; i < size; i++)
		snprintf(out + 2 * i, 3, "%02x", ((const unsigned char *)data)[i]);
	out[2 * size] = '\0';
	return out;
}

/* An address the library put into a work request: told by the region its key belongs to. */
static const char *
sge_address(const struct ibv_sge *sge, char *out, size_t size)
{
	struct ibv_mr *mr = script_find("mr", (int)sge->lkey - 0x1000);
	if (mr && sge->lkey >= 0x1000)
		snprintf(out, size, "%s%+lld", script_name(mr),
				(long long)(sge->addr - (uint64_t)(uintptr_t)mr->addr));
	else
		snprintf(out, size, "%s", script_address((void *)(uintptr_t)sge->addr));
	return out;
}

static const char *
sge_list(const struct ibv_sge *list, int count, int inlined, char *out, size_t size)
{
	size_t used = (size_t)snprintf(out, size, "[");
	char address[64];
	for (int i = 0; i < count && used < size; i++) {
		if (inlined)
			used += (size_t)snprintf(out + used, size - used, "bytes=%s",
					bytes((void *)(uintptr_t)list[i].addr,
						list[i].length < 32 ? list[i].length : 32,
						(char[65]){0}));
		else
			used += (size_t)snprintf(out + used, size - used, "%s length=%u lkey=%#x",
					sge_address(&list[i], address, sizeof(address)),
					list[i].length, list[i].lkey);
	}
	if (used < size)
		snprintf(out + used, size - used, "]");
	return out;
}

/* the data path, reached through the function pointers of the context */

static int
ret_errno_value(const char *call, struct script_verdict verdict)
{
	if (VERDICT_FAILS(verdict)) {
		script_say("    %s = %s", call, verdict.raw ? "raw" : script_errno(verdict.value));
		return verdict.value;
	}
	script_say("    %s = 0", call);
	return 0;
}

/* A look-up that succeeded: how often a library asks is its own business. */
static int
answered(const char *call)
{
	if (script_look_ups_told())
		script_say("    %s = 0", call);
	return 0;
}

static int
scripted_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	if (!script_recording())
		return 0;

	struct script_verdict verdict = script_judge("ibv_post_send");
	char call[1024], list[512];
	int has_imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || wr->opcode == IBV_WR_SEND_WITH_IMM;
	int is_rdma = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_READ ||
			wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	size_t used = (size_t)snprintf(call, sizeof(call),
			"ibv_post_send(%s, wr_id=%#llx, next=%s, opcode=%s, send_flags=%s, sg_list=%s%s, num_sge=%d",
			script_name(qp), (unsigned long long)wr->wr_id, wr->next ? "set" : "NULL",
			(unsigned)wr->opcode < 5 ? opcode_names[wr->opcode] : "other",
			BITS(wr->send_flags, send_flag_names), wr->sg_list ? "" : "NULL",
			sge_list(wr->sg_list, wr->num_sge, !!(wr->send_flags & IBV_SEND_INLINE), list,
				sizeof(list)),
			wr->num_sge);
	if (has_imm)
		used += (size_t)snprintf(call + used, sizeof(call) - used, ", imm_data=%s",
				bytes(&wr->imm_data, 4, (char[9]){0}));
	if (is_rdma)
		used += (size_t)snprintf(call + used, sizeof(call) - used,
				", remote_addr=%#llx, rkey=%#x",
				(unsigned long long)wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
	snprintf(call + used, sizeof(call) - used, ", bad_wr=%s)", bad_wr ? "set" : "NULL");
	if (VERDICT_FAILS(verdict) && bad_wr)
		*bad_wr = wr;
	return ret_errno_value(call, verdict);
}

static void
say_recv(const char *function, const char *queue, struct ibv_recv_wr *wr,
		struct ibv_recv_wr **bad_wr, char *call, size_t size)
{
	char list[512];
	snprintf(call, size, "%s(%s, wr_id=%#llx, next=%s, sg_list=%s%s, num_sge=%d, bad_wr=%s)",
			function, queue, (unsigned long long)wr->wr_id, wr->next ? "set" : "NULL",
			wr->sg_list ? "" : "NULL",
			sge_list(wr->sg_list, wr->num_sge, 0, list, sizeof(list)), wr->num_sge,
			bad_wr ? "set" : "NULL");
}

static int
scripted_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	if (!script_recording())
		return 0;

	struct script_verdict verdict = script_judge("ibv_post_recv");
	char call[1024];
	say_recv("ibv_post_recv", script_name(qp), wr, bad_wr, call, sizeof(call));
	if (VERDICT_FAILS(verdict) && bad_wr)
		*bad_wr = wr;
	return ret_errno_value(call, verdict);
}

static int
scripted_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	if (!script_recording())
		return 0;

	struct script_verdict verdict = script_judge("ibv_post_srq_recv");
	char call[1024];
	say_recv("ibv_post_srq_recv", script_name(srq), wr, bad_wr, call, sizeof(call));
	if (VERDICT_FAILS(verdict) && bad_wr)
		*bad_wr = wr;
	return ret_errno_value(call, verdict);
}

static int
scripted_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	if (!script_recording()) {
		wc->status = IBV_WC_SUCCESS;
		return script_device.cq_empty ? 0 : num_entries;
	}

	struct script_verdict verdict = script_judge("ibv_poll_cq");
	int result = num_entries;
	if (VERDICT_FAILS(verdict))
		result = verdict.raw ? verdict.value : -1;
	else
		(void) script_take_poll(&result);
	for (int i = 0; i < num_entries && i < result; i++) {
		memset(&wc[i], 0, sizeof(wc[i]));
		wc[i].wr_id = 0xc0ffee00u + (unsigned)i;
		wc[i].opcode = IBV_WC_SEND;
		wc[i].byte_len = 100u + (unsigned)i;
	}
	script_say("    ibv_poll_cq(%s, num_entries=%d) = %d", script_name(cq), num_entries, result);
	return result;
}

static int
scripted_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	if (!script_recording())
		return 0;

	struct script_verdict verdict = script_judge("ibv_req_notify_cq");
	char call[128];
	snprintf(call, sizeof(call), "ibv_req_notify_cq(%s, solicited_only=%d)", script_name(cq),
			solicited_only);
	return ret_errno_value(call, verdict);
}

/* the extended QP: started, filled, completed */

static void
scripted_wr_start(struct ibv_qp_ex *qp)
{
	if (script_recording())
		script_say("    wr_start(%s)", script_name(qp));
}

static int
scripted_wr_complete(struct ibv_qp_ex *qp)
{
	if (!script_recording())
		return 0;

	struct script_verdict verdict = script_judge("wr_complete");
	char call[160];
	snprintf(call, sizeof(call), "wr_complete(%s)", script_name(qp));
	return ret_errno_value(call, verdict);
}

static void
scripted_wr_abort(struct ibv_qp_ex *qp)
{
	script_say("    wr_abort(%s)", script_name(qp));
}

static void
scripted_wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, const void *data)
{
	if (script_recording())
		script_say("    wr_atomic_write(%s, wr_id=%#llx, wr_flags=%s, rkey=%#x, remote_addr=%#llx, data=%s)",
			script_name(qp), (unsigned long long)qp->wr_id, BITS(qp->wr_flags, send_flag_names),
			rkey, (unsigned long long)remote_addr, bytes(data, 8, (char[17]){0}));
}

static void
scripted_wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type,
		uint8_t level)
{
	if (script_recording())
		script_say("    wr_flush(%s, wr_id=%#llx, wr_flags=%s, rkey=%#x, remote_addr=%#llx, len=%zu, type=%u, level=%u)",
			script_name(qp), (unsigned long long)qp->wr_id, BITS(qp->wr_flags, send_flag_names),
			rkey, (unsigned long long)remote_addr, len, type, level);
}

/* the device */

static int
scripted_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct script_verdict verdict = script_judge("ibv_query_device_ex");
	char call[128];
	snprintf(call, sizeof(call), "ibv_query_device_ex(%s, input=%s)", script_name(context),
			input ? "set" : "NULL");
	if (VERDICT_FAILS(verdict))
		return ret_errno_value(call, verdict);

	struct ibv_device_attr_ex full;
	memset(&full, 0, sizeof(full));
	full.orig_attr.max_qp_wr = 1 << 14;
	full.orig_attr.max_cqe = 1 << 16;
	full.orig_attr.max_qp_rd_atom = 16;
	full.orig_attr.max_qp_init_rd_atom = 16;
	full.orig_attr.phys_port_cnt = 1;
	if (script_device.odp & 1)
		full.odp_caps.general_caps |= IBV_ODP_SUPPORT;
	if (script_device.odp & 2)
		full.odp_caps.per_transport_caps.rc_odp_caps |= IBV_ODP_SUPPORT_WRITE;
	if (script_device.odp & 4)
		full.odp_caps.per_transport_caps.rc_odp_caps |= IBV_ODP_SUPPORT_READ;
	/* must not be mistaken for the reliable connected transport's */
	full.odp_caps.per_transport_caps.uc_odp_caps = ~0u;
	full.odp_caps.per_transport_caps.ud_odp_caps = ~0u;
	if (script_device.flush_global)
		full.device_cap_flags_ex |= DEVICE_FLUSH_GLOBAL;
	if (script_device.flush_persistent)
		full.device_cap_flags_ex |= DEVICE_FLUSH_PERSISTENT;
	if (script_device.atomic_write)
		full.device_cap_flags_ex |= DEVICE_ATOMIC_WRITE;
	memcpy(attr, &full, attr_size < sizeof(full) ? attr_size : sizeof(full));
	return answered(call);
}

static int
scripted_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		struct ibv_sge *sg_list, uint32_t num_sge)
{
	struct script_verdict verdict = script_judge("ibv_advise_mr");
	char call[512], list[256];
	snprintf(call, sizeof(call), "ibv_advise_mr(%s, advice=%d, flags=%#x, sg_list=%s, num_sge=%u)",
			script_name(pd), (int)advice, flags,
			sge_list(sg_list, (int)num_sge, 0, list, sizeof(list)), num_sge);
	return ret_errno_value(call, verdict);
}

static struct ibv_qp *
scripted_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct script_verdict verdict = script_judge("ibv_create_qp_ex");
	char call[1024], fields[900];
	script_qp_fields(fields, sizeof(fields), attr);
	snprintf(call, sizeof(call), "spare ibv_create_qp_ex(%s, %s)", script_name(context), fields);
	struct ibv_qp *qp = VERDICT_FAILS(verdict) ? NULL : script_create_qp(context, attr, "spare-qp");
	if (qp == NULL)
		say_null(call, VERDICT_FAILS(verdict) ? verdict.value : errno);
	else
		script_say("    %s = %s", call, script_name(qp));
	return qp;
}

struct ibv_context *
script_context(void)
{
	if (!device_ready) {
		device_ready = 1;
		device.node_type = IBV_NODE_CA;
		strcpy(device.name, "scripted0");
		strcpy(device.dev_name, "uverbs0");

		struct ibv_context *context = &device_context.context;
		context->device = &device;
		context->cmd_fd = -1;
		context->async_fd = -1;
		context->num_comp_vectors = 1;
		context->ops.post_send = scripted_post_send;
		context->ops.post_recv = scripted_post_recv;
		context->ops.post_srq_recv = scripted_post_srq_recv;
		context->ops.poll_cq = scripted_poll_cq;
		context->ops.req_notify_cq = scripted_req_notify_cq;
		context->abi_compat = __VERBS_ABI_IS_EXTENDED;
		device_context.sz = sizeof(device_context);
		device_context.query_device_ex = scripted_query_device_ex;
		device_context.advise_mr = scripted_advise_mr;
		device_context.create_qp_ex = scripted_create_qp_ex;
		unknown_cq.context = context;
	}
	device.transport_type = script_device.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	if (script_device.no_extended_ops)
		device_context.context.abi_compat = NULL;
	return &device_context.context;
}

/* the functions libibverbs exports */

struct ibv_device **
ibv_get_device_list(int *num_devices)
{
	static struct ibv_device *list[2];
	(void) script_context();
	list[0] = &device;
	if (num_devices)
		*num_devices = 1;
	return list;
}

void
ibv_free_device_list(struct ibv_device **list)
{
	(void) list;
}

const char *
ibv_get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

struct ibv_context *
ibv_open_device(struct ibv_device *dev)
{
	(void) dev;
	return script_context();
}

int
ibv_close_device(struct ibv_context *context)
{
	(void) context;
	return 0;
}

const char *
ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_SUCCESS ? "success" : "error";
}

int
ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct script_verdict verdict = script_judge("ibv_query_device");
	char call[128];
	snprintf(call, sizeof(call), "ibv_query_device(%s)", script_name(context));
	if (VERDICT_FAILS(verdict))
		return ret_errno_value(call, verdict);
	memset(attr, 0, sizeof(*attr));
	attr->max_cqe = 1 << 16;
	attr->phys_port_cnt = 1;
	return answered(call);
}

struct ibv_pd *
ibv_alloc_pd(struct ibv_context *context)
{
	struct script_verdict verdict = script_judge("ibv_alloc_pd");
	char call[128];
	snprintf(call, sizeof(call), "ibv_alloc_pd(%s)", script_name(context));
	if (VERDICT_FAILS(verdict)) {
		say_null(call, verdict.value);
		return NULL;
	}
	struct ibv_pd *pd = script_new("pd", sizeof(*pd));
	pd->context = context;
	script_say("    %s = %s", call, script_name(pd));
	return pd;
}

/* Destroying with a returned errno: one shape for five functions. */
static int
destroy(const char *function, const void *object)
{
	struct script_verdict verdict = script_judge(function);
	char call[128];
	snprintf(call, sizeof(call), "%s(%s)", function, script_name(object));
	if (!VERDICT_FAILS(verdict))
		script_dead(object);
	return ret_errno_value(call, verdict);
}

int
ibv_dealloc_pd(struct ibv_pd *pd)
{
	return destroy("ibv_dealloc_pd", pd);
}

/* As with a CQ without a channel: memory of the library's own with no right but this is to try something out. */
static int
is_spare(const void *addr, unsigned access)
{
	return access == ACCESS_FLUSH_PERSISTENT && strcmp(script_address(addr), "private") == 0;
}

static struct ibv_mr *
reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access)
{
	int spare = is_spare(addr, access);
	struct script_verdict verdict = script_judge(spare ? "spare ibv_reg_mr" : "ibv_reg_mr");
	char call[256];
	snprintf(call, sizeof(call), "ibv_reg_mr(%s, %s, length=%zu, access=%s)", script_name(pd),
			script_address(addr), length, BITS(access, access_names));
	if (VERDICT_FAILS(verdict)) {
		say_null(call, verdict.value);
		return NULL;
	}
	struct ibv_mr *mr = script_new(spare ? "spare-mr" : "mr", sizeof(*mr));
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = 0x1000u + (unsigned)script_index(mr);
	mr->rkey = 0xa0b0c000u + (unsigned)script_index(mr);
	script_say("    %s = %s", call, script_name(mr));
	return mr;
}

struct ibv_mr *
ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg_mr(pd, addr, length, (unsigned)access);
}

struct ibv_mr *
ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	if (iova != (uint64_t)(uintptr_t)addr)
		script_say("    ibv_reg_mr_iova2: iova differs from the address");
	return reg_mr(pd, addr, length, access);
}

int
ibv_dereg_mr(struct ibv_mr *mr)
{
	return destroy(strncmp(script_name(mr), "spare", 5) == 0 ? "spare ibv_dereg_mr" : "ibv_dereg_mr", mr);
}

struct ibv_comp_channel *
ibv_create_comp_channel(struct ibv_context *context)
{
	struct script_verdict verdict = script_judge("ibv_create_comp_channel");
	char call[128];
	snprintf(call, sizeof(call), "ibv_create_comp_channel(%s)", script_name(context));
	if (VERDICT_FAILS(verdict)) {
		say_null(call, verdict.value);
		return NULL;
	}
	struct ibv_comp_channel *channel = script_new("channel", sizeof(*channel));
	channel->context = context;
	channel->fd = 1000 + script_index(channel);
	script_say("    %s = %s", call, script_name(channel));
	return channel;
}

int
ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return destroy("ibv_destroy_comp_channel", channel);
}

struct ibv_cq *
ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
		struct ibv_comp_channel *channel, int comp_vector)
{
	/*
	 * A CQ without a channel is nobody's but a library's that tries something out: it is not
	 * counted among those of connections, so that the same call fails in every library, and the
	 * others keep their names.
	 */
	struct script_verdict verdict = script_judge(channel ? "ibv_create_cq" : "spare ibv_create_cq");
	char call[256];
	snprintf(call, sizeof(call),
			"ibv_create_cq(%s, cqe=%d, cq_context=%s, channel=%s, comp_vector=%d)",
			script_name(context), cqe, cq_context ? "set" : "NULL", script_name(channel),
			comp_vector);
	if (VERDICT_FAILS(verdict)) {
		say_null(call, verdict.value);
		return NULL;
	}
	struct ibv_cq *cq = script_new(channel ? "cq" : "spare-cq", sizeof(*cq));
	cq->context = context;
	cq->channel = channel;
	cq->cq_context = cq_context;
	cq->cqe = cqe;
	script_say("    %s = %s", call, script_name(cq));
	return cq;
}

int
ibv_destroy_cq(struct ibv_cq *cq)
{
	if (cq->channel == NULL)
		return destroy("spare ibv_destroy_cq", cq);
	/* the real one waits for the acknowledgments that are missing: for ever */
	if (cq->handle)
		script_say("    %s is destroyed with %d events not acknowledged", script_name(cq),
				(int)cq->handle);
	return destroy("ibv_destroy_cq", cq);
}

int
ibv_destroy_qp(struct ibv_qp *qp)
{
	return destroy("spare ibv_destroy_qp", qp);
}

int
ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	int index = 0;
	if (!script_recording()) {
		/* the costs are measured with one CQ on a channel: its context is the channel's peer */
		static struct ibv_comp_channel *seen;
		static struct ibv_cq *seen_cq;
		if (seen != channel) {
			for (int i = 1; (seen_cq = script_find("cq", i)) != NULL; i++)
				if (seen_cq->channel == channel)
					break;
			seen = channel;
		}
		*cq = seen_cq;
		*cq_context = NULL;
		return 0;
	}

	struct script_verdict verdict = script_judge("ibv_get_cq_event");
	if (VERDICT_FAILS(verdict)) {
		script_say("    ibv_get_cq_event(%s) = %s", script_name(channel),
				verdict.raw ? "raw" : script_errno(verdict.value));
		if (verdict.raw)
			return verdict.value;
		errno = verdict.value;
		return -1;
	}

	*cq_context = NULL;
	if (script_take_cq_event(&index)) {
		*cq = index ? script_find("cq", index) : NULL;
		if (*cq == NULL)
			*cq = &unknown_cq;
	} else {
		*cq = &unknown_cq;
		for (int i = 1; script_find("cq", i); i++) {
			*cq = script_find("cq", i);
			if ((*cq)->channel == channel)
				break;
		}
	}
	(*cq)->handle++; /* here: events not acknowledged */
	script_say("    ibv_get_cq_event(%s) = 0 %s", script_name(channel), script_name(*cq));
	return 0;
}

void
ibv_ack_cq_events(struct ibv_cq *cq, unsigned nevents)
{
	if (!script_recording())
		return;
	cq->handle -= nevents;
	script_say("    ibv_ack_cq_events(%s, %u)", script_name(cq), nevents);
}

struct ibv_srq *
ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct script_verdict verdict = script_judge("ibv_create_srq");
	char call[256];
	snprintf(call, sizeof(call),
			"ibv_create_srq(%s, srq_context=%s, max_wr=%u, max_sge=%u, srq_limit=%u)",
			script_name(pd), attr->srq_context ? "set" : "NULL", attr->attr.max_wr,
			attr->attr.max_sge, attr->attr.srq_limit);
	if (VERDICT_FAILS(verdict)) {
		say_null(call, verdict.value);
		return NULL;
	}
	struct ibv_srq *srq = script_new("srq", sizeof(*srq));
	srq->context = pd->context;
	srq->pd = pd;
	script_say("    %s = %s", call, script_name(srq));
	return srq;
}

int
ibv_destroy_srq(struct ibv_srq *srq)
{
	return destroy("ibv_destroy_srq", srq);
}

struct ibv_qp_ex *
ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct scripted_qp *scripted = (struct scripted_qp *)qp;
	return scripted->extended && !script_device.no_extended_qp ? &scripted->ex : NULL;
}

static void
set_pointer(struct scripted_qp *qp, size_t offset, void *value)
{
	memcpy((char *)qp + offset, &value, sizeof(value));
}

/* A QP as a driver would make it; the caller (the connection manager) has judged and told the call. */
struct ibv_qp *
script_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr, const char *kind)
{
	uint64_t wanted = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? attr->send_ops_flags : 0;
	uint64_t can = 0;
	if (!script_device.old_userland) {
		if (script_device.atomic_write)
			can |= SEND_OPS_ATOMIC_WRITE;
		if (script_device.flush_global && script_device.flush_persistent)
			can |= SEND_OPS_FLUSH;
	}
	if (wanted & ~can) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	struct scripted_qp *qp = script_new(kind, sizeof(*qp));
	qp->qp.context = context;
	qp->qp.pd = attr->pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.srq = attr->srq;
	qp->qp.qp_num = 0x100u + (unsigned)script_index(qp);
	qp->qp.qp_type = attr->qp_type;
	qp->extended = !!(attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
	if (qp->extended) {
		qp->ex.wr_start = scripted_wr_start;
		qp->ex.wr_complete = scripted_wr_complete;
		qp->ex.wr_abort = scripted_wr_abort;
		if (wanted & SEND_OPS_ATOMIC_WRITE)
			set_pointer(qp, QP_EX_OFFSET_ATOMIC_WRITE, (void *)scripted_wr_atomic_write);
		if (wanted & SEND_OPS_FLUSH)
			set_pointer(qp, QP_EX_OFFSET_FLUSH, (void *)scripted_wr_flush);
		/* an older driver's structure ends earlier: what follows is somebody else's */
		if (script_device.old_userland)
			set_pointer(qp, QP_EX_OFFSET_FLUSH, (void *)2);
	}
	return &qp->qp;
}

/* Fields of a QP request, for the connection manager's trace line. */
void
script_qp_fields(char *out, size_t size, const struct ibv_qp_init_attr_ex *attr)
{
	char mask[256], ops[256];
	bits(attr->comp_mask, qp_mask_names, 7, mask, sizeof(mask));
	size_t used = (size_t)snprintf(out, size,
			"qp_context=%s, send_cq=%s, recv_cq=%s, srq=%s, max_send_wr=%u, max_recv_wr=%u, "
			"max_send_sge=%u, max_recv_sge=%u, max_inline_data=%u, qp_type=%s, sq_sig_all=%d, "
			"comp_mask=%s",
			attr->qp_context ? "set" : "NULL", script_name(attr->send_cq),
			script_name(attr->recv_cq), script_name(attr->srq), attr->cap.max_send_wr,
			attr->cap.max_recv_wr, attr->cap.max_send_sge, attr->cap.max_recv_sge,
			attr->cap.max_inline_data, attr->qp_type == IBV_QPT_RC ? "RC" : "other",
			attr->sq_sig_all, mask);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_PD)
		used += (size_t)snprintf(out + used, size - used, ", pd=%s", script_name(attr->pd));
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		snprintf(out + used, size - used, ", send_ops_flags=%s",
				bits(attr->send_ops_flags, send_ops_names, 13, ops, sizeof(ops)));
}

/* The device itself and the CQ nobody knows have names too. */
__attribute__((constructor)) static void
name_statics(void)
{
	(void) script_context();
	script_name_static(&device_context.context, "ctx");
	script_name_static(&unknown_cq, "unknown-cq");
}
