/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * admission.c - whom the software fabric lets in: RPMA_SOFT_ALLOW, RPMA_SOFT_MAX_CONNECTIONS, RPMA_SOFT_MAX_HANDSHAKES, and the
 * address that the program told it to listen on. Over RDMA these variables mean nothing.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fabric.h"

/* A network for documentation, in which nobody is. */
#define ELSEWHERE "192.0.2.0/24,2001:db8::/32"

static void
only_on_the_software_fabric(const char *addr)
{
	if (!on_soft(addr))
		check_skip("only the software fabric looks at these variables");
}

/* A request that the other side refuses. */
static void
expect_refusal(struct rpma_peer *peer, const char *addr, const char *port)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;

	OK(rpma_conn_req_new(peer, addr, port, NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &conn));
	expect_event(conn, RPMA_CONN_REJECTED);
	OK(rpma_conn_delete(&conn));
}

/* A listener goes by what the environment says when it begins to listen: two in one process differ. */
static void
allow_server(struct side *side)
{
	struct rpma_peer *peer;
	struct rpma_ep *open, *shut;
	struct rpma_conn *conn;
	char port[8], shut_port[8], allowed[128];

	only_on_the_software_fabric(side->addr);
	peer = peer_on(side->addr);
	snprintf(allowed, sizeof(allowed), "%s, %s", ELSEWHERE, side->addr);
	CHECK_INT(setenv("RPMA_SOFT_ALLOW", allowed, 1), 0);
	open = listen_on(peer, side->addr, port);
	CHECK_INT(setenv("RPMA_SOFT_ALLOW", ELSEWHERE, 1), 0);
	shut = listen_on(peer, side->addr, shut_port);
	CHECK_INT(unsetenv("RPMA_SOFT_ALLOW"), 0);
	give(side, 0, port, sizeof(port));
	give(side, 0, shut_port, sizeof(shut_port));
	for (int i = 0; i < 2; i++) {
		conn = accept_one(open, NULL, NULL, 0);
		part_after(&conn);
	}
	hear(side, 0, "refused");
	OK(rpma_ep_shutdown(&open));
	OK(rpma_ep_shutdown(&shut));
	OK(rpma_peer_delete(&peer));
}

static void
allow_client(struct side *side)
{
	struct rpma_peer *peer;
	struct rpma_conn *conn;
	char port[8], shut_port[8];

	only_on_the_software_fabric(side->addr);
	peer = peer_on(side->addr);
	take(side, 0, port, sizeof(port));
	take(side, 0, shut_port, sizeof(shut_port));
	for (int i = 0; i < 2; i++) {
		conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
		part(&conn);
		expect_refusal(peer, side->addr, shut_port);
		expect_refusal(peer, side->addr, shut_port);
	}
	say(side, 0, "refused");
	OK(rpma_peer_delete(&peer));
}

/* What means nothing is no permission and no prohibition: nobody listens. */
static void
nonsense(const char *addr)
{
	static const struct {
		const char *variable;
		const char *value;
	} settings[] = {
		{"RPMA_SOFT_ALLOW", ""},
		{"RPMA_SOFT_ALLOW", "localhost"},
		{"RPMA_SOFT_ALLOW", "192.0.2.0/33"},
		{"RPMA_SOFT_ALLOW", "192.0.2.1/24"},
		{"RPMA_SOFT_ALLOW", "127.0.0.1,,::1"},
		{"RPMA_SOFT_MAX_CONNECTIONS", "0"},
		{"RPMA_SOFT_MAX_CONNECTIONS", "many"},
		{"RPMA_SOFT_MAX_HANDSHAKES", "-1"},
	};
	struct rpma_peer *peer;
	struct rpma_ep *ep = NULL;
	char port[8];
	int reserved;

	only_on_the_software_fabric(addr);
	peer = peer_on(addr);
	reserved = reserve_port(addr, port);
	CHECK_INT(close(reserved), 0);
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		CHECK_INT(setenv(settings[i].variable, settings[i].value, 1), 0);
		errno = 0;
		CHECK_CODE(rpma_ep_listen(peer, addr, port, &ep), RPMA_E_PROVIDER);
		if (!is_original())
			CHECK_INT(errno, EINVAL);
		CHECK(ep == NULL);
		CHECK_INT(unsetenv(settings[i].variable), 0);
	}
	ep = listen_on(peer, addr, port);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

/* As many as are allowed, and again as many when those are gone. */
static void
max_connections_server(struct side *side)
{
	struct rpma_peer *peer;
	struct rpma_ep *ep;
	struct rpma_conn *conns[2];
	char port[8];

	only_on_the_software_fabric(side->addr);
	CHECK_INT(setenv("RPMA_SOFT_MAX_CONNECTIONS", "2", 1), 0);
	peer = peer_on(side->addr);
	ep = listen_on(peer, side->addr, port);
	give(side, 0, port, sizeof(port));
	for (int round = 0; round < 3; round++) {
		conns[0] = accept_one(ep, NULL, NULL, 0);
		conns[1] = accept_one(ep, NULL, NULL, 0);
		hear(side, 0, "refused");
		part_after(&conns[0]);
		part_after(&conns[1]);
		say(side, 0, "gone");
	}
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
max_connections_client(struct side *side)
{
	struct rpma_peer *peer;
	struct rpma_conn *conns[2];
	char port[8];

	only_on_the_software_fabric(side->addr);
	peer = peer_on(side->addr);
	take(side, 0, port, sizeof(port));
	for (int round = 0; round < 3; round++) {
		conns[0] = connect_to(peer, side->addr, port, NULL, NULL, 0);
		conns[1] = connect_to(peer, side->addr, port, NULL, NULL, 0);
		for (int i = 0; i < 3; i++)
			expect_refusal(peer, side->addr, port);
		say(side, 0, "refused");
		part(&conns[0]);
		part(&conns[1]);
		hear(side, 0, "gone");
	}
	OK(rpma_peer_delete(&peer));
}

/* Sockets that say nothing: with one more than are allowed, the oldest is closed; who asks for a connection is served. */
static void
max_handshakes_server(struct side *side)
{
	struct rpma_peer *peer;
	struct rpma_conn *conn;
	struct rpma_ep *ep;
	char port[8];

	only_on_the_software_fabric(side->addr);
	if (strchr(side->addr, ':') != NULL)
		check_skip("%s is no IPv4 address", side->addr);
	CHECK_INT(setenv("RPMA_SOFT_MAX_HANDSHAKES", "2", 1), 0);
	peer = peer_on(side->addr);
	ep = listen_on(peer, side->addr, port);
	give(side, 0, port, sizeof(port));
	conn = accept_one(ep, NULL, NULL, 0);
	part_after(&conn);
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_peer_delete(&peer));
}

static void
max_handshakes_client(struct side *side)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct rpma_peer *peer;
	struct rpma_conn *conn;
	int silent[5];
	char port[8], byte;

	only_on_the_software_fabric(side->addr);
	if (strchr(side->addr, ':') != NULL)
		check_skip("%s is no IPv4 address", side->addr);
	CHECK_INT(inet_pton(AF_INET, side->addr, &to.sin_addr), 1);
	peer = peer_on(side->addr);
	take(side, 0, port, sizeof(port));
	to.sin_port = htons((uint16_t)atoi(port));
	for (int i = 0; i < 5; i++) {
		silent[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CHECK(silent[i] >= 0);
		CHECK_INT(connect(silent[i], (struct sockaddr *)&to, sizeof(to)), 0);
	}
	for (int i = 0; i < 3; i++)
		CHECK_INT(read(silent[i], &byte, 1), 0);
	conn = connect_to(peer, side->addr, port, NULL, NULL, 0);
	part(&conn);
	for (int i = 0; i < 5; i++)
		CHECK_INT(close(silent[i]), 0);
	OK(rpma_peer_delete(&peer));
}

/* Whether somebody listens at an IPv4 address and port. */
static bool
is_listened_on(uint32_t addr, const char *port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(addr)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	bool connected;

	CHECK(fd >= 0);
	connected = connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0;
	if (!connected)
		CHECK_INT(errno, ECONNREFUSED);
	CHECK_INT(close(fd), 0);
	return connected;
}

/* How many sockets listen at a port, of all that this network namespace has. */
static int
listeners(const char *table, const char *port)
{
	char line[512];
	unsigned local_port, state;
	int n = 0;
	FILE *file = fopen(table, "r");

	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "%*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &local_port, &state) == 2)
			n += state == 0x0a && local_port == (unsigned)atoi(port);
	fclose(file);
	return n;
}

/* At the address that the program gave, and nowhere else. */
static void
only_where_told(const char *addr)
{
	struct rpma_peer *peer;
	struct rpma_ep *ep;
	char port[8];

	only_on_the_software_fabric(addr);
	if (!is_loopback(addr) || strchr(addr, ':') != NULL)
		check_skip("the loopback network has other addresses of this machine, %s has not", addr);
	peer = peer_on(addr);
	CHECK_INT(reserve_port(addr, port) >= 0, 1);
	CHECK_INT(listeners("/proc/self/net/tcp", port) + listeners("/proc/self/net/tcp6", port), 0);
	ep = listen_on(peer, addr, port);
	CHECK_INT(listeners("/proc/self/net/tcp", port), 1);
	CHECK_INT(listeners("/proc/self/net/tcp6", port), 0);
	CHECK(is_listened_on(ntohl(inet_addr(addr)), port));
	CHECK(!is_listened_on(ntohl(inet_addr(addr)) + 1, port));
	OK(rpma_ep_shutdown(&ep));
	CHECK_INT(listeners("/proc/self/net/tcp", port), 0);
	OK(rpma_peer_delete(&peer));
}

static const struct test tests[] = {
	PAIR(allow),
	LOCAL(nonsense),
	PAIR(max_connections),
	PAIR(max_handshakes),
	LOCAL(only_where_told),
	END,
};

int
main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
