/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * harness.c - starts the processes of a test, joins them with control channels, watches the time and judges how they
 * ended; see harness.h. It calls nothing of the library.
 *
 * Environment: RPMA_TEST_ADDR (127.0.0.1), RPMA_TEST_SCALE (1), RPMA_TEST_PATIENCE (factor on the time allowed, 1),
 * RPMA_TEST_SERVER_LIB and RPMA_TEST_CLIENT_LIB (folder of the library for that side instead of LD_LIBRARY_PATH).
 * RPMA_TEST_ROLE, RPMA_TEST_CHANNELS and RPMA_TEST_SERVER carry a side's part from the starter to it.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HARNESS_IMPLEMENTATION
#include "harness.h"

static const char *
setting(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value != NULL && *value != '\0' ? value : otherwise;
}

unsigned long
scaled(unsigned long n, unsigned long least)
{
	unsigned long result = (unsigned long)((double)n * atof(setting("RPMA_TEST_SCALE", "1")));

	return result > least ? result : least;
}

static double
patience(void)
{
	double factor = atof(setting("RPMA_TEST_PATIENCE", "1"));

	return factor > 0 ? factor : 1;
}

double
seconds_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void
check_within(const char *what, double start, double seconds)
{
	double took = seconds_now() - start;

	if (took > seconds * patience())
		check_fail("%s took %.1f s, more than %.0f s", what, took, seconds * patience());
}

bool
is_loopback(const char *addr)
{
	return strncmp(addr, "127.", 4) == 0 || strcmp(addr, "::1") == 0 || strcmp(addr, "localhost") == 0;
}

static void
out_of_time(int signo)
{
	char line[256];

	(void)signo;
	check_place(line, sizeof(line) - 16);
	strcat(line, ": out of time\n");
	if (write(STDOUT_FILENO, line, strlen(line)) < 0)
		_exit(1);
	_exit(1);
}

static void
limit_time(const struct test *test)
{
	unsigned seconds = test->seconds ? test->seconds : DEFAULT_SECONDS;

	signal(SIGALRM, out_of_time);
	alarm((unsigned)(seconds * patience()));
}

void
say(struct side *side, int who, const char *word)
{
	give(side, who, word, strlen(word) + 1);
}

void
hear(struct side *side, int who, const char *word)
{
	char got[64] = "";
	ssize_t len = recv(side->channel[who], got, sizeof(got) - 1, 0);

	if (len <= 0)
		check_fail("the other side ended instead of saying \"%s\"", word);
	if (strcmp(got, word) != 0)
		check_fail("the other side said \"%s\", not \"%s\"", got, word);
}

bool
has_said(struct side *side, int who)
{
	char byte;
	ssize_t len = recv(side->channel[who], &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	if (len == 0)
		check_fail("the other side ended");
	return len > 0;
}

void
give(struct side *side, int who, const void *data, size_t len)
{
	if (send(side->channel[who], data, len, MSG_NOSIGNAL) != (ssize_t)len)
		check_fail("the other side ended instead of taking %zu bytes", len);
}

void
take(struct side *side, int who, void *data, size_t len)
{
	ssize_t got = recv(side->channel[who], data, len, 0);

	if (got != (ssize_t)len)
		check_fail("the other side gave %zd bytes, not %zu", got, len);
}

void
kill_server(struct side *side)
{
	char byte;

	if (kill(side->server, SIGKILL) != 0)
		check_fail("cannot kill the server: %s", strerror(errno));
	/* The channel ends when the kernel closes the dead process's descriptors. */
	while (recv(side->channel[0], &byte, 1, 0) > 0)
		;
}

/* Becomes a side of the pair: runs the program again, with its part in the environment. */
static void
become(const char *program, const struct test *test, const char *role, int *channels, int count, pid_t server)
{
	const char *lib = getenv(strcmp(role, "server") == 0 ? "RPMA_TEST_SERVER_LIB" : "RPMA_TEST_CLIENT_LIB");
	char list[CLIENTS_MAX * 8] = "", number[32];

	for (int i = 0; i < count; i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%d ", channels[i]);
	snprintf(number, sizeof(number), "%d", (int)server);
	setenv("RPMA_TEST_ROLE", role, 1);
	setenv("RPMA_TEST_CHANNELS", list, 1);
	setenv("RPMA_TEST_SERVER", number, 1);
	if (lib != NULL && *lib != '\0')
		setenv("LD_LIBRARY_PATH", lib, 1);
	execl(program, program, test->name, (char *)NULL);
	perror(program);
	_exit(1);
}

/* Plays a side in the process that become() made. */
static void
play(const struct test *test, const char *role)
{
	struct side side = {.addr = setting("RPMA_TEST_ADDR", "127.0.0.1"), .clients = test->clients};
	const char *list = setting("RPMA_TEST_CHANNELS", "");
	char *end;

	for (int i = 0; i < CLIENTS_MAX; i++, list = end) {
		side.channel[i] = (int)strtol(list, &end, 10);
		if (end == list)
			break;
	}
	side.server = (pid_t)atoi(setting("RPMA_TEST_SERVER", "0"));
	if (strcmp(role, "server") == 0) {
		snprintf(check_role, sizeof(check_role), "server");
		limit_time(test);
		test->server(&side);
	} else {
		side.index = atoi(role);
		snprintf(check_role, sizeof(check_role), test->clients > 1 ? "client %d" : "client", side.index);
		limit_time(test);
		test->client(&side);
	}
}

static int
judge(const struct test *test, bool is_server, int status)
{
	const char *who = is_server ? "server" : "client";

	if (WIFSIGNALED(status)) {
		if (is_server && test->server_is_killed && WTERMSIG(status) == SIGKILL)
			return 0;
		printf("%s: ended by signal %d (%s)\n", who, WTERMSIG(status), strsignal(WTERMSIG(status)));
		return 1;
	}
	if (is_server && test->server_is_killed && WEXITSTATUS(status) == 0) {
		printf("server: ended by itself, though it should have been killed\n");
		return 1;
	}
	if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != STATUS_SKIP)
		printf("%s: ended with status %d\n", who, WEXITSTATUS(status));
	return WEXITSTATUS(status);
}

static int
run_pair(const char *program, const struct test *test)
{
	int near[CLIENTS_MAX], far[CLIENTS_MAX], result = 0;
	pid_t pids[CLIENTS_MAX + 1];

	for (int i = 0; i < test->clients; i++) {
		int pair[2];

		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
			perror("socketpair");
			return 1;
		}
		near[i] = pair[0];
		far[i] = pair[1];
	}
	fflush(NULL);
	for (int p = 0; p <= test->clients; p++) {
		pids[p] = fork();
		if (pids[p] < 0) {
			perror("fork");
			return 1;
		}
		if (pids[p] > 0)
			continue;
		/* Whoever ends must end its channel with it, so each side holds its own ends alone. */
		for (int i = 0; i < test->clients; i++) {
			if (p != 0)
				close(near[i]);
			if (p != i + 1)
				close(far[i]);
		}
		char role[16] = "server";

		if (p > 0)
			snprintf(role, sizeof(role), "%d", p - 1);
		become(program, test, role, p > 0 ? &far[p - 1] : near, p > 0 ? 1 : test->clients, pids[0]);
	}
	for (int i = 0; i < test->clients; i++) {
		close(near[i]);
		close(far[i]);
	}
	for (int left = test->clients + 1; left > 0; left--) {
		int status, p = 0;
		pid_t pid = wait(&status);

		while (p <= test->clients && pids[p] != pid)
			p++;
		if (p > test->clients)
			break;
		pids[p] = 0;
		/* The first to fail is the reason; the others would only fail for want of it. */
		if (result == 0) {
			result = judge(test, p == 0, status);
			if (result != 0)
				for (int i = 0; i <= test->clients; i++)
					if (pids[i] > 0)
						kill(pids[i], SIGKILL);
		} else if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_SKIP) {
			/* That was the reason then. */
			result = STATUS_SKIP;
		}
	}
	return result;
}

static int
run_test(const char *program, const struct test *test)
{
	if (test->local == NULL)
		return run_pair(program, test);
	limit_time(test);
	test->local(setting("RPMA_TEST_ADDR", "127.0.0.1"));
	alarm(0);
	return 0;
}

int
run_tests(const struct test *tests, int argc, char **argv)
{
	const char *role = getenv("RPMA_TEST_ROLE");
	char program[4096];
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
	int result = 0;

	if (len < 0) {
		perror("/proc/self/exe");
		return 1;
	}
	program[len] = '\0';
	if (argc > 2) {
		fprintf(stderr, "usage: %s [--list | NAME]\n", argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (const struct test *test = tests; test->name != NULL; test++) {
		if (argc == 2 && strcmp(argv[1], "--list") == 0) {
			printf("%s\n", test->name);
			continue;
		}
		if (argc == 2 && strcmp(argv[1], test->name) != 0)
			continue;
		if (role != NULL) {
			play(test, role);
			return 0;
		}
		if (argc == 2)
			return run_test(program, test);
		/* All of them: each in a process of its own, as the runner does it. */
		printf("%s\n", test->name);
		pid_t pid = fork();

		if (pid == 0)
			_exit(run_test(program, test));
		int status = 0;

		if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
				(WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != STATUS_SKIP))
			result = 1;
	}
	if (argc == 2 && strcmp(argv[1], "--list") != 0) {
		fprintf(stderr, "%s: no test %s\n", argv[0], argv[1]);
		return 2;
	}
	return result;
}
