/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * server.c - offers the memory of a log to a client, which appends to it from afar.
 *
 * usage: server [-d] [-s MIB] ADDR PORT FILE
 *
 *   -d       this machine's platform takes remote writes directly to FILE's persistent memory; only who runs it can know
 *   -s MIB   size of FILE if it has to be made (32)
 *
 * Once a client is connected, this program sleeps: records arrive in its memory, and from there in the file, without it. It prints
 * READY on standard output when it listens, everything else on standard error, and ends with SIGINT or SIGTERM. Should it end in
 * another way, whatever was acknowledged to the client is in the file; the next start goes on from there.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <librpma.h>

#include "log.h"

/* Not in every system's headers. */
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x03
#endif
#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif

struct server {
	/* the log's file, mapped */
	char *base;
	size_t size;
	bool pmem; /* the mapping is persistent memory itself, not the page cache */

	int signals; /* readable when the program has to end */

	struct rpma_peer *peer;
	struct rpma_peer_cfg *pcfg;
	struct rpma_mr_local *mr;
	struct rpma_ep *ep;
	struct rpma_conn *conn; /* the one client; NULL if there is none */
};

/* Says what failed and why. What a provider's call failed with is in errno. */
static int
failed(const char *what, int ret)
{
	if (ret == RPMA_E_PROVIDER)
		fprintf(stderr, "server: %s: %s (%s)\n", what, rpma_err_2str(ret), strerror(errno));
	else
		fprintf(stderr, "server: %s: %s\n", what, rpma_err_2str(ret));
	return -1;
}

static int
failed_errno(const char *what)
{
	fprintf(stderr, "server: %s: %s\n", what, strerror(errno));
	return -1;
}

/* Opens the log's file, or makes it, and maps it. */
static int
log_open(struct server *s, const char *path, size_t size)
{
	static const struct log_head unused;
	struct log_found found;
	struct log_head *head;
	struct stat status;
	const char *wrong;
	int fd, err;

	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed_errno(path);
	if (fstat(fd, &status) != 0) {
		failed_errno(path);
		goto err_close;
	}
	if (status.st_size == 0) {
		/* Get all the space now: later, a full disk could be reported to nobody. */
		err = posix_fallocate(fd, 0, (off_t)size);
		if (err != 0) {
			errno = err;
			failed_errno(path);
			goto err_close;
		}
	} else {
		size = (size_t)status.st_size;
	}

	/* MAP_SYNC is accepted only for persistent memory (a file system mounted with -o dax). */
	s->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	s->pmem = s->base != MAP_FAILED;
	if (!s->pmem)
		s->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s->base == MAP_FAILED) {
		s->base = NULL;
		failed_errno(path);
		goto err_close;
	}
	s->size = size;
	close(fd); /* the mapping stays */

	/* Zeros are a log that is still to be begun; anything else has to be a whole log. */
	head = (struct log_head *)s->base;
	if (size >= LOG_START && memcmp(head, &unused, sizeof(*head)) == 0) {
		memcpy(head->magic, LOG_MAGIC, sizeof(head->magic));
		head->tail = LOG_START;
		if (msync(s->base, LOG_START, MS_SYNC) != 0)
			return failed_errno("msync");
	}
	wrong = log_walk(s->base, size, &found);
	if (wrong != NULL) {
		fprintf(stderr, "server: %s: after record %" PRIu64 ": %s\n", path, found.records, wrong);
		return -1;
	}
	return 0;

err_close:
	close(fd);
	return -1;
}

/*
 * What a persistent flush can promise here. On the software fabric it always keeps its promise, with whatever the mapping needs for
 * it. RDMA hardware only takes care that the data leaves the device, and whether that is good enough is the platform's matter.
 */
static bool
is_flush_durable(const struct server *s, const char *device, bool direct)
{
	bool soft = strncmp(device, "rpma_soft", strlen("rpma_soft")) == 0;

	if (soft && s->pmem)
		fprintf(stderr, "server: the log is on persistent memory: a flush writes the CPU's cache lines back to it\n");
	else if (soft)
		fprintf(stderr, "server: the log is an ordinary file: a flush is done when msync is, and is as durable as the file system\n");
	else if (direct)
		fprintf(stderr, "server: the log is taken for persistent memory that the device writes to directly\n");
	else
		fprintf(stderr, "server: this device writes to the CPU's caches%s: what it flushes outlives this process, but not "
			"a loss of power\n", s->pmem ? "" : " and to the page cache");
	return soft || direct;
}

/* Everything that is needed before a client can come. */
static int
server_listen(struct server *s, const char *addr, const char *port, bool direct)
{
	struct ibv_context *device = NULL;
	int ret;

	/* Which device has this address? */
	ret = rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &device);
	if (ret)
		return failed(addr, ret);
	if (device == NULL) {
		fprintf(stderr, "server: %s belongs to no device in particular: give an address of one\n", addr);
		return -1;
	}
	fprintf(stderr, "server: device %s, address %s, port %s\n", device->device->name, addr, port);
	ret = rpma_peer_new(device, &s->peer);
	if (ret)
		return failed("rpma_peer_new", ret);

	/* The configuration tells the client what it may ask for: without this it cannot flush to persistence. */
	ret = rpma_peer_cfg_new(&s->pcfg);
	if (ret)
		return failed("rpma_peer_cfg_new", ret);
	ret = rpma_peer_cfg_set_direct_write_to_pmem(s->pcfg, is_flush_durable(s, device->device->name, direct));
	if (ret)
		return failed("rpma_peer_cfg_set_direct_write_to_pmem", ret);

	/* The client may write to the log and flush it. It may not read. */
	ret = rpma_mr_reg(s->peer, s->base, s->size, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT |
		RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, &s->mr);
	if (ret)
		return failed("rpma_mr_reg", ret);

	ret = rpma_ep_listen(s->peer, addr, port, &s->ep);
	if (ret)
		return failed("rpma_ep_listen", ret);
	return 0;
}

/* Checks the log and writes down what a client needs to go on with it. */
static int
make_offer(const struct server *s, struct log_offer *offer)
{
	size_t mr_size, pcfg_size;
	struct log_found found;
	const char *wrong;
	int ret;

	wrong = log_walk(s->base, s->size, &found);
	if (wrong != NULL) {
		fprintf(stderr, "server: the log is damaged after record %" PRIu64 ": %s\n", found.records, wrong);
		return -1;
	}
	memset(offer, 0, sizeof(*offer));
	offer->tail = found.tail;
	offer->seq = found.records;

	ret = rpma_mr_get_descriptor_size(s->mr, &mr_size);
	if (ret)
		return failed("rpma_mr_get_descriptor_size", ret);
	ret = rpma_peer_cfg_get_descriptor_size(s->pcfg, &pcfg_size);
	if (ret)
		return failed("rpma_peer_cfg_get_descriptor_size", ret);
	if (mr_size + pcfg_size > sizeof(offer->descs)) {
		fprintf(stderr, "server: the descriptors are too large\n");
		return -1;
	}
	offer->mr_desc_size = (uint8_t)mr_size;
	offer->pcfg_desc_size = (uint8_t)pcfg_size;
	ret = rpma_mr_get_descriptor(s->mr, offer->descs);
	if (ret)
		return failed("rpma_mr_get_descriptor", ret);
	ret = rpma_peer_cfg_get_descriptor(s->pcfg, offer->descs + mr_size);
	if (ret)
		return failed("rpma_peer_cfg_get_descriptor", ret);
	return 0;
}

/* A client asks for a connection. */
static int
accept_client(struct server *s)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_conn_private_data pdata;
	struct log_offer offer;
	int ret;

	/* That this one client failed is no reason to stop serving. */
	ret = rpma_ep_next_conn_req(s->ep, NULL, &req);
	if (ret) {
		failed("rpma_ep_next_conn_req", ret);
		return 0;
	}
	if (make_offer(s, &offer) != 0) {
		rpma_conn_req_delete(&req);
		return -1;
	}
	pdata.ptr = &offer;
	pdata.len = sizeof(offer);
	ret = rpma_conn_req_connect(&req, &pdata, &s->conn);
	if (ret)
		failed("rpma_conn_req_connect", ret);
	else
		fprintf(stderr, "server: a client comes; the log has %" PRIu64 " records\n", offer.seq);
	return 0;
}

/* Something happened to the client's connection. */
static void
client_event(struct server *s)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	int ret;

	ret = rpma_conn_next_event(s->conn, &event);
	if (ret == RPMA_E_NO_EVENT)
		return;
	if (ret)
		failed("rpma_conn_next_event", ret);
	else if (event == RPMA_CONN_ESTABLISHED)
		return;

	fprintf(stderr, "server: the client has gone (%s)\n", rpma_utils_conn_event_2str(event));
	/* This answers the client's farewell, if there was one. If there was none, it has nobody to go to. */
	rpma_conn_disconnect(s->conn);
	ret = rpma_conn_delete(&s->conn);
	if (ret)
		failed("rpma_conn_delete", ret);
}

/* Serves one client after another until a signal comes. A log has one writer: who comes second waits for the first to go. */
static int
server_run(struct server *s)
{
	int ep_fd, ret;

	ret = rpma_ep_get_fd(s->ep, &ep_fd);
	if (ret)
		return failed("rpma_ep_get_fd", ret);

	for (;;) {
		struct pollfd fds[2] = {{.fd = s->signals, .events = POLLIN}, {.fd = ep_fd, .events = POLLIN}};

		if (s->conn != NULL) {
			ret = rpma_conn_get_event_fd(s->conn, &fds[1].fd);
			if (ret)
				return failed("rpma_conn_get_event_fd", ret);
		}
		if (poll(fds, 2, -1) < 0) {
			if (errno == EINTR)
				continue;
			return failed_errno("poll");
		}
		if (fds[0].revents != 0)
			return 0;
		if (fds[1].revents == 0)
			continue;
		if (s->conn != NULL)
			client_event(s);
		else if (accept_client(s) != 0)
			return -1;
	}
}

/* Releases everything, in the reverse order; what was never made is NULL, which is fine with all of these. */
static int
server_close(struct server *s)
{
	int ret, status = 0;

	if (s->conn != NULL)
		rpma_conn_disconnect(s->conn);
	if ((ret = rpma_conn_delete(&s->conn)))
		status = failed("rpma_conn_delete", ret);
	if ((ret = rpma_ep_shutdown(&s->ep)))
		status = failed("rpma_ep_shutdown", ret);
	if ((ret = rpma_mr_dereg(&s->mr)))
		status = failed("rpma_mr_dereg", ret);
	if ((ret = rpma_peer_cfg_delete(&s->pcfg)))
		status = failed("rpma_peer_cfg_delete", ret);
	if ((ret = rpma_peer_delete(&s->peer)))
		status = failed("rpma_peer_delete", ret);
	if (s->base != NULL && munmap(s->base, s->size) != 0)
		status = failed_errno("munmap");
	if (s->signals >= 0)
		close(s->signals);
	return status;
}

int
main(int argc, char *argv[])
{
	struct server s = {.signals = -1};
	bool direct = false;
	size_t mib = 32;
	sigset_t set;
	int opt, status = -1;

	while ((opt = getopt(argc, argv, "ds:")) != -1) {
		if (opt == 'd')
			direct = true;
		else if (opt == 's')
			mib = strtoul(optarg, NULL, 10);
		else
			mib = 0;
	}
	if (mib == 0 || argc - optind != 3) {
		fprintf(stderr, "usage: %s [-d] [-s MIB] ADDR PORT FILE\n", argv[0]);
		return 2;
	}

	/* Signals are read from a descriptor. They have to be blocked before there is any other thread. */
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &set, NULL) != 0 || (s.signals = signalfd(-1, &set, SFD_CLOEXEC)) < 0) {
		failed_errno("signalfd");
		return 1;
	}

	if (log_open(&s, argv[optind + 2], mib << 20) == 0 &&
			server_listen(&s, argv[optind], argv[optind + 1], direct) == 0) {
		puts("READY");
		fflush(stdout);
		status = server_run(&s);
	}
	if (server_close(&s) != 0)
		status = -1;
	return status == 0 ? 0 : 1;
}
