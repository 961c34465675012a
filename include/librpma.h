/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * librpma.h - remote persistent memory access
 *
 * Made by cbindgen from the comments and declarations in src/capi: change those, not this file.
 */

#ifndef LIBRPMA_H
#define LIBRPMA_H 1

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <infiniband/verbs.h>

/* for rpma_log_set_function(): the default log function */
#define RPMA_LOG_USE_DEFAULT_FUNCTION (NULL)

/**
 * Completion flag of an operation: a completion if it fails.
 */
#define RPMA_F_COMPLETION_ON_ERROR (1 << 0)

/**
 * Completion flag of an operation: a completion in any case.
 */
#define RPMA_F_COMPLETION_ALWAYS ((1 << 1) | RPMA_F_COMPLETION_ON_ERROR)

/**
 * Offsets of atomic writes are multiples of this.
 */
#define RPMA_ATOMIC_WRITE_ALIGNMENT 8

/**
 * Unknown error.
 */
#define RPMA_E_UNKNOWN (-100000)

/**
 * Not supported.
 */
#define RPMA_E_NOSUPP (-100001)

/**
 * A call to the provider (libibverbs, librdmacm or the software fabric) failed: see the
 * log, and errno where it was set.
 */
#define RPMA_E_PROVIDER (-100002)

/**
 * Out of memory.
 */
#define RPMA_E_NOMEM (-100003)

/**
 * Invalid argument.
 */
#define RPMA_E_INVAL (-100004)

/**
 * No completion is available.
 */
#define RPMA_E_NO_COMPLETION (-100005)

/**
 * No event is available.
 */
#define RPMA_E_NO_EVENT (-100006)

/**
 * Temporary error: try again.
 */
#define RPMA_E_AGAIN (-100007)

/**
 * The completion channel is shared.
 */
#define RPMA_E_SHARED_CHANNEL (-100008)

/**
 * The completion channel is not shared.
 */
#define RPMA_E_NOT_SHARED_CHNL (-100009)

/**
 * Usage of a memory region: source of a read by the other side.
 */
#define RPMA_MR_USAGE_READ_SRC (1 << 0)

/**
 * Usage of a memory region: destination of a read by this side.
 */
#define RPMA_MR_USAGE_READ_DST (1 << 1)

/**
 * Usage of a memory region: source of a write by this side.
 */
#define RPMA_MR_USAGE_WRITE_SRC (1 << 2)

/**
 * Usage of a memory region: destination of a write by the other side.
 */
#define RPMA_MR_USAGE_WRITE_DST (1 << 3)

/**
 * Usage of a memory region: flushed by the other side, for visibility.
 */
#define RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY (1 << 4)

/**
 * Usage of a memory region: flushed by the other side, for persistence.
 */
#define RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT (1 << 5)

/**
 * Usage of a memory region: source of messages.
 */
#define RPMA_MR_USAGE_SEND (1 << 6)

/**
 * Usage of a memory region: destination of messages.
 */
#define RPMA_MR_USAGE_RECV (1 << 7)

/**
 * How long looking for a device may take, in milliseconds; also how long, by default, finding the
 * other side's address and the way to it may take.
 */
#define RPMA_DEFAULT_TIMEOUT_MS 1000

/**
 * Waits for a completion; kept for compatibility, no function takes it.
 */
#define RPMA_W_WAIT_FOR_COMPLETION 1

/**
 * What happened to a connection.
 */
enum rpma_conn_event {
  /**
   * no event
   */
  RPMA_CONN_UNDEFINED = -1,
  /**
   * the connection is there
   */
  RPMA_CONN_ESTABLISHED,
  /**
   * the connection has ended: either side asked for it, or the other side or the way to it is gone
   */
  RPMA_CONN_CLOSED,
  /**
   * the connection could not be set up, or the device was removed
   */
  RPMA_CONN_LOST,
  /**
   * the other side, or the fabric, refused the connection
   */
  RPMA_CONN_REJECTED,
  /**
   * the other side did not answer
   */
  RPMA_CONN_UNREACHABLE,
};

/**
 * What a flush guarantees when it completes.
 */
enum rpma_flush_type {
  /**
   * the data survives a loss of power
   */
  RPMA_FLUSH_TYPE_PERSISTENT,
  /**
   * the data is visible to every observer on the other side
   */
  RPMA_FLUSH_TYPE_VISIBILITY,
};

/**
 * Which of the two thresholds.
 */
enum rpma_log_threshold {
  /**
   * up to where records reach the log function
   */
  RPMA_LOG_THRESHOLD,
  /**
   * up to where the default log function writes to standard error too
   */
  RPMA_LOG_THRESHOLD_AUX,
  /**
   * how many there are
   */
  RPMA_LOG_THRESHOLD_MAX,
};

/**
 * How important a log record is; or, as a threshold, up to where records are wanted.
 */
enum rpma_log_level {
  /**
   * as a threshold: nothing at all
   */
  RPMA_LOG_DISABLED = -1,
  /**
   * the library cannot go on
   */
  RPMA_LOG_LEVEL_FATAL,
  /**
   * an operation failed
   */
  RPMA_LOG_LEVEL_ERROR,
  /**
   * something that a caller should know, though the operation goes on
   */
  RPMA_LOG_LEVEL_WARNING,
  /**
   * rare events of normal operation, such as a connection
   */
  RPMA_LOG_LEVEL_NOTICE,
  /**
   * what the library decides on the way
   */
  RPMA_LOG_LEVEL_INFO,
  /**
   * details for whoever looks for a fault
   */
  RPMA_LOG_LEVEL_DEBUG,
};

/**
 * Which kind of address a device is looked for by.
 */
enum rpma_util_ibv_context_type {
  /**
   * an address of this machine
   */
  RPMA_UTIL_IBV_CONTEXT_LOCAL,
  /**
   * an address of the other side
   */
  RPMA_UTIL_IBV_CONTEXT_REMOTE,
};

/**
 * A function that takes log records: the level, the source file, line and function they come
 * from, and a printf(3) format with its arguments, whose text ends with a line feed (this
 * library gives the text as a whole, by the format "%s"). It may be called from any thread that is
 * inside the library, and from one of the library's own. Locks may be held meanwhile: of the
 * library's functions it may call rpma_log_get_threshold() and rpma_err_2str() only.
 */
typedef void rpma_log_function(enum rpma_log_level level, const char *file_name,
                               const int line_no, const char *function_name,
                               const char *message_format, ...);

/**
 * A connection.
 */
struct rpma_conn;

/**
 * The configuration of a connection.
 */
struct rpma_conn_cfg;

/**
 * A connection request: a connection that is not decided yet.
 */
struct rpma_conn_req;

/**
 * A completion queue. It belongs to the connection, or the shared receive queue, that gave it.
 */
struct rpma_cq;

/**
 * An endpoint: where a peer listens for connect requests.
 */
struct rpma_ep;

/**
 * A registered region of this process's memory.
 */
struct rpma_mr_local;

/**
 * A region of the other side's memory.
 */
struct rpma_mr_remote;

/**
 * A peer: one device as one side of connections.
 */
struct rpma_peer;

/**
 * A peer's configuration: what one side has to tell the other about itself.
 */
struct rpma_peer_cfg;

/**
 * A shared receive queue: receive requests that several connections take from.
 */
struct rpma_srq;

/**
 * The configuration of a shared receive queue.
 */
struct rpma_srq_cfg;

/**
 * Private data: what a side sends along with its connect request or its answer.
 */
struct rpma_conn_private_data {
  /**
   * the data
   */
  void *ptr;
  /**
   * how many bytes it has
   */
  uint8_t len;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Gives the descriptor that becomes readable when an event is there. It belongs to the library;
 * the program may poll it and make it non-blocking.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_get_event_fd(const struct rpma_conn *conn, int *fd);

/**
 * Takes the connection's next event, or waits for one unless the descriptor is non-blocking.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL; RPMA_E_NO_EVENT if there is none;
 * RPMA_E_UNKNOWN for an event without meaning here, which is taken; RPMA_E_PROVIDER if the
 * provider fails (errno says why); RPMA_E_NOMEM.
 *
 * Thread safety: safe.
 */
int rpma_conn_next_event(struct rpma_conn *conn, enum rpma_conn_event *event);

/**
 * Gives the private data that the other side sent: pdata->ptr and pdata->len, NULL and 0 if
 * there is none. On the side that asked for the connection it is there once the connection is
 * established. It belongs to the library and stays valid until the connection is deleted.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_get_private_data(const struct rpma_conn *conn, struct rpma_conn_private_data *pdata);

/**
 * Takes over what the other side says about itself, which decides whether its memory can be
 * flushed to persistence. The configuration stays the caller's.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_apply_remote_peer_cfg(struct rpma_conn *conn, const struct rpma_peer_cfg *pcfg);

/**
 * Tells the number of the connection's queue pair, which its completions carry.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_get_qp_num(const struct rpma_conn *conn, uint32_t *qp_num);

/**
 * Gives the connection's main completion queue. It belongs to the connection.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_get_cq(const struct rpma_conn *conn, struct rpma_cq **cq_ptr);

/**
 * Gives the connection's separate receive completion queue; NULL if it has none. It belongs to
 * the connection.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_get_rcq(const struct rpma_conn *conn, struct rpma_cq **rcq_ptr);

/**
 * Starts to end the connection. Both sides get the event RPMA_CONN_CLOSED; operations that are
 * outstanding complete with an error.
 *
 * Returns 0; RPMA_E_INVAL if conn is NULL; RPMA_E_PROVIDER if the provider refuses (errno says
 * why).
 *
 * Thread safety: safe.
 */
int rpma_conn_disconnect(struct rpma_conn *conn);

/**
 * Deletes a connection with its queues; *conn_ptr becomes NULL, also on failure. A NULL
 * *conn_ptr is success.
 *
 * Returns 0; RPMA_E_INVAL if conn_ptr is NULL or the private memory for flushing cannot be
 * unmapped; RPMA_E_PROVIDER if the provider fails on the way, in which case the rest is released
 * all the same (errno says why).
 *
 * Thread safety: safe on different connections.
 */
int rpma_conn_delete(struct rpma_conn **conn_ptr);

/**
 * Gives the descriptor of the shared completion channel, which becomes readable when a
 * completion of either queue is announced. It belongs to the library; the program may poll it
 * and make it non-blocking, and then calls rpma_conn_wait().
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL; RPMA_E_NOT_SHARED_CHNL if the connection was
 * not configured to share its channel.
 *
 * Thread safety: safe.
 */
int rpma_conn_get_compl_fd(const struct rpma_conn *conn, int *fd);

/**
 * Waits until a completion is announced on the shared channel and asks for the next
 * announcement. *cq becomes the queue to fetch from, *is_rcq, which may be NULL, whether it is
 * the receive completion queue. flags is not used.
 *
 * Returns 0; RPMA_E_INVAL if conn or cq is NULL; RPMA_E_NOT_SHARED_CHNL if the connection was
 * not configured to share its channel; RPMA_E_NO_COMPLETION if nothing is announced (the
 * descriptor is non-blocking, or the wait was interrupted); RPMA_E_UNKNOWN if the announcement
 * is of no queue of this connection; RPMA_E_PROVIDER if the next announcement cannot be asked
 * for, and *cq is NULL then (errno says why).
 *
 * Thread safety: safe.
 */
int rpma_conn_wait(struct rpma_conn *conn, int flags, struct rpma_cq **cq, bool *is_rcq);

/**
 * Reads len bytes at src_offset of the remote region src to dst_offset of the local region dst.
 * src needs the usage RPMA_MR_USAGE_READ_SRC, dst RPMA_MR_USAGE_READ_DST. Both may be NULL, with
 * all numbers 0, for an operation that moves nothing. flags is RPMA_F_COMPLETION_ON_ERROR or
 * RPMA_F_COMPLETION_ALWAYS; op_context comes back as wr_id of the completion.
 *
 * Returns 0 once the operation is posted; RPMA_E_INVAL if conn is NULL, flags is 0, one of src
 * and dst is NULL, both are NULL with a number that is not 0, or len is above 4 GiB - 1;
 * RPMA_E_PROVIDER if the provider refuses, as it does when the queue is full. The outcome of the
 * operation is in its completion.
 *
 * Thread safety: safe.
 */
int rpma_read(struct rpma_conn *conn,
              struct rpma_mr_local *dst,
              size_t dst_offset,
              const struct rpma_mr_remote *src,
              size_t src_offset,
              size_t len,
              int flags,
              const void *op_context);

/**
 * Writes len bytes at src_offset of the local region src to dst_offset of the remote region dst.
 * src needs the usage RPMA_MR_USAGE_WRITE_SRC, dst RPMA_MR_USAGE_WRITE_DST. Both may be NULL,
 * with all numbers 0, for an operation that moves nothing. flags and op_context are as in
 * rpma_read(). A completion says that src may be used again; that the data is visible or
 * persistent takes rpma_flush().
 *
 * Returns 0 once the operation is posted; RPMA_E_INVAL if conn is NULL, flags is 0, one of src
 * and dst is NULL, both are NULL with a number that is not 0, or len is above 4 GiB - 1;
 * RPMA_E_PROVIDER if the provider refuses, as it does when the queue is full.
 *
 * Thread safety: safe.
 */
int rpma_write(struct rpma_conn *conn,
               struct rpma_mr_remote *dst,
               size_t dst_offset,
               const struct rpma_mr_local *src,
               size_t src_offset,
               size_t len,
               int flags,
               const void *op_context);

/**
 * Writes as rpma_write() does, and then completes a receive request of the other side, which
 * gets imm as its immediate data.
 *
 * Returns 0 once the operation is posted; RPMA_E_INVAL if conn is NULL, flags is 0, one of src
 * and dst is NULL, both are NULL with a number that is not 0, or len is above 4 GiB - 1;
 * RPMA_E_PROVIDER if the provider refuses, as it does when the queue is full.
 *
 * Thread safety: safe.
 */
int rpma_write_with_imm(struct rpma_conn *conn,
                        struct rpma_mr_remote *dst,
                        size_t dst_offset,
                        const struct rpma_mr_local *src,
                        size_t src_offset,
                        size_t len,
                        int flags,
                        uint32_t imm,
                        const void *op_context);

/**
 * Writes the 8 bytes at src to dst_offset of the remote region dst so that no observer sees only
 * some of them, and after all earlier operations. dst needs the usage RPMA_MR_USAGE_WRITE_DST;
 * dst_offset is a multiple of RPMA_ATOMIC_WRITE_ALIGNMENT. src may be reused at once. flags and
 * op_context are as in rpma_read().
 *
 * Returns 0 once the operation is posted; RPMA_E_INVAL if conn, dst or src is NULL, flags is 0,
 * or dst_offset is not a multiple of 8; RPMA_E_PROVIDER if the provider refuses, as it does when
 * the queue is full.
 *
 * Thread safety: safe.
 */
int rpma_atomic_write(struct rpma_conn *conn,
                      struct rpma_mr_remote *dst,
                      size_t dst_offset,
                      const char *src,
                      int flags,
                      const void *op_context);

/**
 * Makes all earlier writes to len bytes at dst_offset of the remote region dst visible or
 * persistent, as type says: they are when this operation completes. dst needs the matching
 * usage, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY or RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT. flags and
 * op_context are as in rpma_read().
 *
 * Returns 0 once the operation is posted; RPMA_E_INVAL if conn or dst is NULL, flags is 0, or
 * type is none; RPMA_E_NOSUPP if dst lacks the usage, or type is RPMA_FLUSH_TYPE_PERSISTENT and
 * no remote peer configuration with direct write to persistent memory was applied;
 * RPMA_E_PROVIDER if the provider refuses, as it does when the queue is full.
 *
 * Thread safety: safe.
 */
int rpma_flush(struct rpma_conn *conn,
               struct rpma_mr_remote *dst,
               size_t dst_offset,
               size_t len,
               enum rpma_flush_type type,
               int flags,
               const void *op_context);

/**
 * Sends a message of len bytes at offset of src, which has the usage RPMA_MR_USAGE_SEND. src may
 * be NULL, with offset and len 0, for a message without bytes. The other side needs a receive
 * request for it. flags and op_context are as in rpma_read().
 *
 * Returns 0 once the operation is posted; RPMA_E_INVAL if conn is NULL, flags is 0, src is NULL
 * with offset or len not 0, or len is above 4 GiB - 1; RPMA_E_PROVIDER if the provider refuses,
 * as it does when the queue is full.
 *
 * Thread safety: safe.
 */
int rpma_send(struct rpma_conn *conn,
              const struct rpma_mr_local *src,
              size_t offset,
              size_t len,
              int flags,
              const void *op_context);

/**
 * Sends a message as rpma_send() does, with imm as immediate data.
 *
 * Returns 0 once the operation is posted; RPMA_E_INVAL if conn is NULL, flags is 0, src is NULL
 * with offset or len not 0, or len is above 4 GiB - 1; RPMA_E_PROVIDER if the provider refuses,
 * as it does when the queue is full.
 *
 * Thread safety: safe.
 */
int rpma_send_with_imm(struct rpma_conn *conn,
                       const struct rpma_mr_local *src,
                       size_t offset,
                       size_t len,
                       int flags,
                       uint32_t imm,
                       const void *op_context);

/**
 * Posts a receive request for a message of up to len bytes to offset of dst, which has the usage
 * RPMA_MR_USAGE_RECV. dst may be NULL, with offset and len 0, for a message without bytes. The
 * memory may not be used until the request completes; op_context comes back as wr_id of the
 * completion.
 *
 * Returns 0 once the request is posted; RPMA_E_INVAL if conn is NULL, dst is NULL with offset or
 * len not 0, or len is above 4 GiB - 1; RPMA_E_PROVIDER if the provider refuses, as it does when
 * the queue is full or the connection uses a shared receive queue.
 *
 * Thread safety: safe.
 */
int rpma_recv(struct rpma_conn *conn,
              struct rpma_mr_local *dst,
              size_t offset,
              size_t len,
              const void *op_context);

/**
 * Creates a configuration of a connection with the defaults: a timeout
 * of 1000 ms, 10 entries for the completion queue and 10 requests for each of the send and the
 * receive queue, no separate receive completion queue, no shared completion channel, no shared
 * receive queue.
 * It is deleted with rpma_conn_cfg_delete().
 *
 * Returns 0; RPMA_E_INVAL if cfg_ptr is NULL; RPMA_E_NOMEM.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_new(struct rpma_conn_cfg **cfg_ptr);

/**
 * Deletes a configuration; *cfg_ptr becomes NULL. A NULL *cfg_ptr is success.
 *
 * Returns 0; RPMA_E_INVAL if cfg_ptr is NULL.
 *
 * Thread safety: safe on different configurations.
 */
int rpma_conn_cfg_delete(struct rpma_conn_cfg **cfg_ptr);

/**
 * Sets how long to wait for the address, and then for the route, of the other side, in
 * milliseconds.
 *
 * Returns 0; RPMA_E_INVAL if cfg is NULL or the time negative.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_set_timeout(struct rpma_conn_cfg *cfg, int timeout_ms);

/**
 * Tells how long to wait for the address, and then for the route, of the other side, in
 * milliseconds.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_get_timeout(const struct rpma_conn_cfg *cfg, int *timeout_ms);

/**
 * Sets how many entries the main completion queue has. Sizes above INT_MAX are taken as INT_MAX.
 * A provider makes none with 0 entries, or with more than its device has: then the connection
 * request that is to have it fails with RPMA_E_PROVIDER.
 *
 * Returns 0; RPMA_E_INVAL if cfg is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_set_cq_size(struct rpma_conn_cfg *cfg, uint32_t cq_size);

/**
 * Tells how many entries the main completion queue has.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_get_cq_size(const struct rpma_conn_cfg *cfg, uint32_t *cq_size);

/**
 * Sets how many entries the separate receive completion queue has; with 0 there is none, and
 * receives complete in the main queue. Sizes above INT_MAX are taken as INT_MAX.
 *
 * Returns 0; RPMA_E_INVAL if cfg is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_set_rcq_size(struct rpma_conn_cfg *cfg, uint32_t rcq_size);

/**
 * Tells how many entries the separate receive completion queue has; 0 means that there is none.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_get_rcq_size(const struct rpma_conn_cfg *cfg, uint32_t *rcq_size);

/**
 * Sets how many requests the send queue holds.
 *
 * Returns 0; RPMA_E_INVAL if cfg is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_set_sq_size(struct rpma_conn_cfg *cfg, uint32_t sq_size);

/**
 * Tells how many requests the send queue holds.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_get_sq_size(const struct rpma_conn_cfg *cfg, uint32_t *sq_size);

/**
 * Sets how many requests the receive queue holds.
 *
 * Returns 0; RPMA_E_INVAL if cfg is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_set_rq_size(struct rpma_conn_cfg *cfg, uint32_t rq_size);

/**
 * Tells how many requests the receive queue holds.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_get_rq_size(const struct rpma_conn_cfg *cfg, uint32_t *rq_size);

/**
 * Sets whether both completion queues announce their completions through one channel, which is
 * waited for with rpma_conn_wait().
 *
 * Returns 0; RPMA_E_INVAL if cfg is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_set_compl_channel(struct rpma_conn_cfg *cfg, bool shared);

/**
 * Tells whether both completion queues announce their completions through one channel.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_get_compl_channel(const struct rpma_conn_cfg *cfg, bool *shared);

/**
 * Sets the shared receive queue that the connection takes its receive requests from. The queue
 * has to be there when the connection is made, and is deleted after it.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_set_srq(struct rpma_conn_cfg *cfg, struct rpma_srq *srq);

/**
 * Tells the shared receive queue that the connection takes its receive requests from; NULL if
 * there is none.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_cfg_get_srq(const struct rpma_conn_cfg *cfg, struct rpma_srq **srq_ptr);

/**
 * Prepares a connection to an address (or host name) and a port (or service name); a NULL cfg
 * means the defaults. The request is sent with rpma_conn_req_connect(), or given up with
 * rpma_conn_req_delete().
 *
 * Returns 0; RPMA_E_INVAL if peer, addr, port or req_ptr is NULL, or cfg contradicts itself;
 * RPMA_E_PROVIDER if the address or the way to it cannot be found in time or the queues cannot
 * be created (errno says why, or the log for a name that cannot be found); RPMA_E_NOMEM;
 * RPMA_E_UNKNOWN if no device belongs to the address.
 *
 * Thread safety: safe.
 */
int rpma_conn_req_new(struct rpma_peer *peer,
                      const char *addr,
                      const char *port,
                      const struct rpma_conn_cfg *cfg,
                      struct rpma_conn_req **req_ptr);

/**
 * Gives a request up; *req_ptr becomes NULL, also on failure. A NULL *req_ptr is success. A
 * request of the other side is rejected.
 *
 * Returns 0; RPMA_E_INVAL if req_ptr is NULL; RPMA_E_PROVIDER if the provider fails on the way
 * (errno says why).
 *
 * Thread safety: safe on different requests.
 */
int rpma_conn_req_delete(struct rpma_conn_req **req_ptr);

/**
 * Sends the request to the other side, or grants the other side's request, with private data
 * if pdata is not NULL. The outcome arrives as an event: see rpma_conn_next_event(). The request
 * is consumed, *req_ptr becomes NULL, whatever the result; the connection is deleted with
 * rpma_conn_delete().
 *
 * Returns 0; RPMA_E_INVAL if req_ptr, *req_ptr or conn_ptr is NULL, or pdata is not NULL but
 * its ptr is NULL or its len 0; RPMA_E_PROVIDER if the provider refuses, for instance private
 * data that is too long for the fabric (errno says why); RPMA_E_NOMEM.
 *
 * Thread safety: safe on different requests.
 */
int rpma_conn_req_connect(struct rpma_conn_req **req_ptr,
                          const struct rpma_conn_private_data *pdata,
                          struct rpma_conn **conn_ptr);

/**
 * Posts a receive request before the connection is there, so that no message can come too
 * early; see rpma_recv(), but dst may not be NULL.
 *
 * Returns 0; RPMA_E_INVAL if req or dst is NULL or len is above 4 GiB - 1; RPMA_E_PROVIDER if
 * the provider refuses, as it does when the queue is full.
 *
 * Thread safety: safe.
 */
int rpma_conn_req_recv(struct rpma_conn_req *req,
                       struct rpma_mr_local *dst,
                       size_t offset,
                       size_t len,
                       const void *op_context);

/**
 * Gives the private data that came with a request of the other side: pdata->ptr and pdata->len,
 * NULL and 0 if there was none. It belongs to the library and stays valid until the request, or
 * the connection that it became, is deleted.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_conn_req_get_private_data(const struct rpma_conn_req *req,
                                   struct rpma_conn_private_data *pdata);

/**
 * Gives the descriptor that becomes readable when a completion is announced. It belongs to the
 * library; the program may poll it and make it non-blocking, and then calls rpma_cq_wait().
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_cq_get_fd(const struct rpma_cq *cq, int *fd);

/**
 * Waits until a completion is announced and asks for the next announcement. The completions are
 * then fetched with rpma_cq_get_wc(), all of them, since several may have one announcement.
 *
 * Returns 0; RPMA_E_INVAL if cq is NULL; RPMA_E_SHARED_CHANNEL if the queue's channel is shared,
 * for which there is rpma_conn_wait(); RPMA_E_NO_COMPLETION if nothing is announced (the
 * descriptor is non-blocking, or the wait was interrupted); RPMA_E_PROVIDER if the next
 * announcement cannot be asked for (errno says why).
 *
 * Thread safety: safe.
 */
int rpma_cq_wait(struct rpma_cq *cq);

/**
 * Fetches up to num_entries completions to wc; *num_entries_got, which may be NULL if
 * num_entries is 1, becomes the number that there were.
 *
 * Returns 0 if there was at least one; RPMA_E_INVAL if cq or wc is NULL, num_entries is below 1,
 * or num_entries_got is NULL with num_entries above 1; RPMA_E_NO_COMPLETION if there is none;
 * RPMA_E_PROVIDER if the provider fails; RPMA_E_UNKNOWN if it claims more than it was asked for.
 *
 * Thread safety: safe.
 */
int rpma_cq_get_wc(struct rpma_cq *cq, int num_entries, struct ibv_wc *wc, int *num_entries_got);

/**
 * Listens for connect requests at an address (or host name) of this machine and a port (or
 * service name). The endpoint is ended with rpma_ep_shutdown().
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL; RPMA_E_PROVIDER if the address cannot be
 * found, bound or listened at (errno says why, or the log for a name that cannot be found);
 * RPMA_E_NOMEM.
 *
 * Thread safety: safe.
 */
int rpma_ep_listen(struct rpma_peer *peer,
                   const char *addr,
                   const char *port,
                   struct rpma_ep **ep_ptr);

/**
 * Stops listening; *ep_ptr becomes NULL, also on failure. A NULL *ep_ptr is success. Requests
 * that were taken stay.
 *
 * Returns 0; RPMA_E_INVAL if ep_ptr is NULL; RPMA_E_PROVIDER if the provider fails (errno says
 * why).
 *
 * Thread safety: safe on different endpoints.
 */
int rpma_ep_shutdown(struct rpma_ep **ep_ptr);

/**
 * Gives the descriptor that becomes readable when a connect request is there. It belongs to the
 * library; the program may poll it and make it non-blocking.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_ep_get_fd(const struct rpma_ep *ep, int *fd);

/**
 * Takes the next connect request, or waits for one unless the descriptor is non-blocking, and
 * creates the queues for it; a NULL cfg means the defaults. The request is granted with
 * rpma_conn_req_connect(), or turned down with rpma_conn_req_delete(). If it cannot be served,
 * the other side is rejected.
 *
 * Returns 0; RPMA_E_INVAL if ep or req_ptr is NULL, an unexpected event is there, or cfg
 * contradicts itself; RPMA_E_NO_EVENT if there is no request; RPMA_E_PROVIDER if the event or
 * the queues cannot be had (errno says why); RPMA_E_NOMEM; RPMA_E_UNKNOWN if the request belongs
 * to no device.
 *
 * Thread safety: safe.
 */
int rpma_ep_next_conn_req(struct rpma_ep *ep,
                          const struct rpma_conn_cfg *cfg,
                          struct rpma_conn_req **req_ptr);

/**
 * Gives the text for a return value of this library.
 *
 * Returns a static string: "Success" for 0, a text for each error code, "Unknown error" for
 * any other value. Cannot fail.
 *
 * Thread safety: safe.
 */
const char *rpma_err_2str(int ret);

/**
 * Sets a threshold of the log. The environment variables RPMA_LOG_LEVEL (main threshold) and
 * RPMA_LOG_STDERR_LEVEL (auxiliary threshold) take precedence where they are set to one of
 * disabled, fatal, error, warning, notice, info, debug. The defaults are WARNING and DISABLED.
 *
 * Returns 0, or RPMA_E_INVAL for a threshold or a level that is none.
 *
 * Thread safety: safe.
 */
int rpma_log_set_threshold(enum rpma_log_threshold threshold, enum rpma_log_level level);

/**
 * Tells a threshold of the log, as it was set last.
 *
 * Returns 0, or RPMA_E_INVAL if level is NULL or the threshold is none.
 *
 * Thread safety: safe.
 */
int rpma_log_get_threshold(enum rpma_log_threshold threshold, enum rpma_log_level *level);

/**
 * Sets the function that takes log records; RPMA_LOG_USE_DEFAULT_FUNCTION (NULL) brings the
 * default one back, which writes to syslog(3) and, up to the auxiliary threshold, to standard
 * error.
 *
 * The function gets each record's text complete, ending with a line feed. It may be called from any
 * thread that is inside the library, and from one of the library's own, and of the library's functions it
 * may call rpma_log_get_threshold() and rpma_err_2str() only: locks may be held meanwhile.
 *
 * Returns 0, or RPMA_E_AGAIN if a temporary error occurred (this implementation has none).
 *
 * Thread safety: safe. Records on their way may still reach the previous function.
 */
int rpma_log_set_function(rpma_log_function *log_function);

/**
 * Registers size bytes of memory at ptr for the uses in usage, a set of RPMA_MR_USAGE_* bits.
 * The memory stays the caller's, who keeps it mapped until the region is deregistered with
 * rpma_mr_dereg(). Memory that the device cannot pin, such as a file on DAX, is registered with
 * on-demand paging if the device can do that.
 *
 * Returns 0; RPMA_E_INVAL if a pointer is NULL, size or usage is 0, or usage has an unknown bit;
 * RPMA_E_NOMEM; RPMA_E_PROVIDER if the provider refuses (errno says why).
 *
 * Thread safety: safe.
 */
int rpma_mr_reg(struct rpma_peer *peer,
                void *ptr,
                size_t size,
                int usage,
                struct rpma_mr_local **mr_ptr);

/**
 * Deregisters a region; *mr_ptr becomes NULL, also on failure. A NULL *mr_ptr is success. No
 * operation that uses the region may be outstanding.
 *
 * Returns 0; RPMA_E_INVAL if mr_ptr is NULL; RPMA_E_PROVIDER if the provider fails (errno says
 * why).
 *
 * Thread safety: safe on different regions.
 */
int rpma_mr_dereg(struct rpma_mr_local **mr_ptr);

/**
 * Writes the region's descriptor, which the other side reads with
 * rpma_mr_remote_from_descriptor(). The buffer has the size that rpma_mr_get_descriptor_size()
 * tells.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_mr_get_descriptor(const struct rpma_mr_local *mr, void *desc);

/**
 * Creates a remote region from the descriptor that its owner sent. Bytes after the descriptor
 * are ignored. It is deleted with rpma_mr_remote_delete().
 *
 * Returns 0; RPMA_E_INVAL if desc or mr_ptr is NULL, the descriptor is too short or names no
 * usage; RPMA_E_NOMEM.
 *
 * Thread safety: safe.
 */
int rpma_mr_remote_from_descriptor(const void *desc,
                                   size_t desc_size,
                                   struct rpma_mr_remote **mr_ptr);

/**
 * Tells how many bytes a region's descriptor has.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_mr_get_descriptor_size(const struct rpma_mr_local *mr, size_t *desc_size);

/**
 * Tells where a region starts.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_mr_get_ptr(const struct rpma_mr_local *mr, void **ptr);

/**
 * Tells how many bytes a region has.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_mr_get_size(const struct rpma_mr_local *mr, size_t *size);

/**
 * Tells how many bytes a remote region has.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_mr_remote_get_size(const struct rpma_mr_remote *mr, size_t *size);

/**
 * Tells for which types of flush a remote region was registered: a set of the
 * RPMA_MR_USAGE_FLUSH_TYPE_* bits, possibly 0.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_mr_remote_get_flush_type(const struct rpma_mr_remote *mr, int *flush_type);

/**
 * Deletes a remote region; *mr_ptr becomes NULL. A NULL *mr_ptr is success. The other side's
 * memory is not touched.
 *
 * Returns 0; RPMA_E_INVAL if mr_ptr is NULL.
 *
 * Thread safety: safe on different regions.
 */
int rpma_mr_remote_delete(struct rpma_mr_remote **mr_ptr);

/**
 * Tells the device how len bytes at offset of a region are going to be used; advice and flags
 * are those of ibv_advise_mr(3). It is of use for regions with on-demand paging.
 *
 * Returns 0; RPMA_E_INVAL if mr is NULL, len is above 4 GiB - 1, or the provider does not accept
 * the range or the advice; RPMA_E_NOSUPP if the device takes no such advice; RPMA_E_PROVIDER if
 * the provider fails for another reason.
 *
 * Thread safety: safe.
 */
int rpma_mr_advise(struct rpma_mr_local *mr, size_t offset, size_t len, int advice, uint32_t flags);

/**
 * Creates a peer on a device, with a protection domain of its own. It is deleted with
 * rpma_peer_delete(), after all that was made from it.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL; RPMA_E_PROVIDER if the device cannot be asked
 * for its abilities or gives no protection domain (errno says why); RPMA_E_NOMEM;
 * RPMA_E_UNKNOWN if the provider fails without a reason.
 *
 * Thread safety: safe.
 */
int rpma_peer_new(struct ibv_context *ibv_ctx, struct rpma_peer **peer_ptr);

/**
 * Deletes a peer; *peer_ptr becomes NULL, also on failure. A NULL *peer_ptr is success.
 *
 * Returns 0; RPMA_E_INVAL if peer_ptr is NULL; RPMA_E_PROVIDER if the protection domain cannot
 * be released, as is the case while regions or connections use it (errno says why).
 *
 * Thread safety: safe on different peers.
 */
int rpma_peer_delete(struct rpma_peer **peer_ptr);

/**
 * Creates a peer configuration with the defaults: no direct write to persistent memory. It is
 * deleted with rpma_peer_cfg_delete().
 *
 * Returns 0; RPMA_E_INVAL if pcfg_ptr is NULL; RPMA_E_NOMEM.
 *
 * Thread safety: safe.
 */
int rpma_peer_cfg_new(struct rpma_peer_cfg **pcfg_ptr);

/**
 * Deletes a peer configuration; *pcfg_ptr becomes NULL. A NULL *pcfg_ptr is success.
 *
 * Returns 0; RPMA_E_INVAL if pcfg_ptr is NULL.
 *
 * Thread safety: safe on different configurations.
 */
int rpma_peer_cfg_delete(struct rpma_peer_cfg **pcfg_ptr);

/**
 * Declares whether data that a write brought to this peer's memory and that was flushed is
 * persistent: true only if the platform writes directly to persistent memory.
 *
 * Returns 0; RPMA_E_INVAL if pcfg is NULL.
 *
 * Thread safety: safe.
 */
int rpma_peer_cfg_set_direct_write_to_pmem(struct rpma_peer_cfg *pcfg, bool supported);

/**
 * Tells whether direct write to persistent memory is declared.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_peer_cfg_get_direct_write_to_pmem(const struct rpma_peer_cfg *pcfg, bool *supported);

/**
 * Writes the configuration's descriptor, which the other side reads with
 * rpma_peer_cfg_from_descriptor(). The buffer has the size that
 * rpma_peer_cfg_get_descriptor_size() tells.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_peer_cfg_get_descriptor(const struct rpma_peer_cfg *pcfg, void *desc);

/**
 * Tells how many bytes the configuration's descriptor has.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_peer_cfg_get_descriptor_size(const struct rpma_peer_cfg *pcfg, size_t *desc_size);

/**
 * Creates a peer configuration from the descriptor of the other side's. Bytes after the
 * descriptor are ignored. It is deleted with rpma_peer_cfg_delete().
 *
 * Returns 0; RPMA_E_INVAL if desc or pcfg_ptr is NULL or desc_size is 0; RPMA_E_NOMEM.
 *
 * Thread safety: safe.
 */
int rpma_peer_cfg_from_descriptor(const void *desc,
                                  size_t desc_size,
                                  struct rpma_peer_cfg **pcfg_ptr);

/**
 * Creates a shared receive queue; a NULL cfg means the defaults. It is deleted with
 * rpma_srq_delete(), after the connections that use it.
 *
 * Returns 0; RPMA_E_INVAL if peer or srq_ptr is NULL; RPMA_E_PROVIDER if the queue or its
 * completion queue cannot be created (errno says why); RPMA_E_NOMEM.
 *
 * Thread safety: safe.
 */
int rpma_srq_new(struct rpma_peer *peer, struct rpma_srq_cfg *cfg, struct rpma_srq **srq_ptr);

/**
 * Deletes a shared receive queue and its completion queue; *srq_ptr becomes NULL, also on
 * failure. A NULL *srq_ptr is success.
 *
 * Returns 0; RPMA_E_INVAL if srq_ptr is NULL; RPMA_E_PROVIDER if a queue cannot be released, as
 * is the case while connections use it (errno says why).
 *
 * Thread safety: safe on different queues.
 */
int rpma_srq_delete(struct rpma_srq **srq_ptr);

/**
 * Posts a receive request for a message of up to len bytes to offset of dst, which has the usage
 * RPMA_MR_USAGE_RECV. dst may be NULL, with offset and len 0, for a message without bytes.
 * op_context comes back as wr_id of the completion.
 *
 * Returns 0; RPMA_E_INVAL if srq is NULL, dst is NULL with offset or len not 0, or len is above
 * 4 GiB - 1; RPMA_E_PROVIDER if the provider refuses, as it does when the queue is full.
 *
 * Thread safety: safe.
 */
int rpma_srq_recv(struct rpma_srq *srq,
                  struct rpma_mr_local *dst,
                  size_t offset,
                  size_t len,
                  const void *op_context);

/**
 * Gives the completion queue for receives through the shared queue; NULL if it has none of its
 * own. It belongs to the shared queue.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_srq_get_rcq(const struct rpma_srq *srq, struct rpma_cq **rcq_ptr);

/**
 * Creates a configuration of a shared receive queue with the defaults: 20 receive
 * requests, and a completion queue of its own with 20 entries.
 * It is deleted with rpma_srq_cfg_delete().
 *
 * Returns 0; RPMA_E_INVAL if cfg_ptr is NULL; RPMA_E_NOMEM.
 *
 * Thread safety: safe.
 */
int rpma_srq_cfg_new(struct rpma_srq_cfg **cfg_ptr);

/**
 * Deletes a configuration; *cfg_ptr becomes NULL. A NULL *cfg_ptr is success.
 *
 * Returns 0; RPMA_E_INVAL if cfg_ptr is NULL.
 *
 * Thread safety: safe on different configurations.
 */
int rpma_srq_cfg_delete(struct rpma_srq_cfg **cfg_ptr);

/**
 * Sets how many receive requests the queue holds.
 *
 * Returns 0; RPMA_E_INVAL if cfg is NULL.
 *
 * Thread safety: safe.
 */
int rpma_srq_cfg_set_rq_size(struct rpma_srq_cfg *cfg, uint32_t rq_size);

/**
 * Tells how many receive requests the queue holds.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_srq_cfg_get_rq_size(const struct rpma_srq_cfg *cfg, uint32_t *rq_size);

/**
 * Sets how many entries the queue's own completion queue has; with 0 it has none, and completions
 * go to each connection's. Sizes above INT_MAX are taken as INT_MAX.
 *
 * Returns 0; RPMA_E_INVAL if cfg is NULL.
 *
 * Thread safety: safe.
 */
int rpma_srq_cfg_set_rcq_size(struct rpma_srq_cfg *cfg, uint32_t rcq_size);

/**
 * Tells how many entries the queue's own completion queue has; 0 means that it has none.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL.
 *
 * Thread safety: safe.
 */
int rpma_srq_cfg_get_rcq_size(const struct rpma_srq_cfg *cfg, uint32_t *rcq_size);

/**
 * Finds the device that has a local address, or that leads to a remote one. The context belongs
 * to the library and stays valid until the process ends; it is NULL for a wildcard address and for one
 * of this machine that is on no device. A context of the software fabric is for this library, and
 * for asking about the device with ibv_query_device(), ibv_query_device_ex() and ibv_query_port().
 *
 * Returns 0; RPMA_E_INVAL if addr or ibv_ctx_ptr is NULL or the type is none; RPMA_E_PROVIDER if
 * the address cannot be found or no device belongs to it (errno says more where it can).
 *
 * Thread safety: safe.
 */
int rpma_utils_get_ibv_context(const char *addr,
                               enum rpma_util_ibv_context_type type,
                               struct ibv_context **ibv_ctx_ptr);

/**
 * Tells whether a device can page registered memory in on demand, for the reads and writes that
 * this library does: *is_odp_capable becomes 1 or 0.
 *
 * Returns 0; RPMA_E_INVAL if an argument is NULL; RPMA_E_PROVIDER if the device cannot be asked
 * (errno says why).
 *
 * Thread safety: safe.
 */
int rpma_utils_ibv_context_is_odp_capable(struct ibv_context *ibv_ctx, int *is_odp_capable);

/**
 * Gives the text for a connection event.
 *
 * Returns a static string for any value, named or not. Cannot fail.
 *
 * Thread safety: safe.
 */
const char *rpma_utils_conn_event_2str(enum rpma_conn_event conn_event);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LIBRPMA_H */
