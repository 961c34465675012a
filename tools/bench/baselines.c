/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * baselines.c - what a machine gives without any library between: the floor that the fabric is compared with.
 *
 * usage: baselines KIND BYTES COUNT
 *
 *   tcp-write-poll, tcp-write-wait   32 B + BYTES one way over TCP, 32 B back; spinning on the sockets, or sleeping in epoll
 *   tcp-read-poll, tcp-read-wait     32 B one way, 32 B + BYTES back
 *   tcp-echo-poll, tcp-echo-wait     32 B + BYTES both ways
 *   cma-write-small, cma-write-huge  process_vm_writev into another process, with 4 KiB or transparent huge pages
 *   cma-read-small, cma-read-huge    process_vm_readv
 *   cma-write-many-4, -256           process_vm_writev, each time from and to another one of so many places, with 4 KiB pages
 *   memcpy                           in one process
 *   shm                              a flag and BYTES through shared memory and a flag back, both processes spinning
 *
 * Prints "MIN P50 P99" in microseconds.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HEADER 32
#define HUGE_PAGE ((size_t)2 << 20)
#define CHECK(cond) do { \
		if (!(cond)) { \
			fprintf(stderr, "baselines: %s: %s\n", #cond, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

static size_t bytes, count, warmup;
static uint64_t *samples;

static uint64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *
memory(size_t size, int advice, int sharing)
{
	size_t whole = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
	char *base = mmap(NULL, whole, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);

	CHECK(base != MAP_FAILED);
	base += (HUGE_PAGE - (uintptr_t)base % HUGE_PAGE) % HUGE_PAGE;
	if (advice != 0)
		CHECK(madvise(base, whole - HUGE_PAGE, advice) == 0);
	memset(base, 1, size);
	return base;
}

/* A socket, and how this process waits for it: epoll's descriptor, or -1 to spin. */
struct end {
	int fd, epoll;
};

static void
send_all(struct end end, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(end.fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0) {
			/* Room comes when the other side has read; this is rare enough to spin. */
			CHECK(errno == EAGAIN);
			continue;
		}
		data += n;
		len -= (size_t)n;
	}
}

static void
receive_all(struct end end, char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = recv(end.fd, data, len, MSG_DONTWAIT);
		struct epoll_event event;

		if (n == 0)
			exit(0);
		if (n < 0) {
			CHECK(errno == EAGAIN);
			if (end.epoll >= 0)
				CHECK(epoll_wait(end.epoll, &event, 1, -1) >= 0 || errno == EINTR);
			continue;
		}
		data += n;
		len -= (size_t)n;
	}
}

static struct end
end_of(int fd, bool wait)
{
	struct end end = {fd, -1};
	struct epoll_event event = {.events = EPOLLIN};
	int one = 1;

	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
	if (wait) {
		end.epoll = epoll_create1(EPOLL_CLOEXEC);
		CHECK(end.epoll >= 0 && epoll_ctl(end.epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	}
	return end;
}

static void
tcp(size_t there, size_t back, bool wait)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	char *out = memory(HEADER + bytes, 0, MAP_PRIVATE), *in = memory(HEADER + bytes, 0, MAP_PRIVATE);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	struct end end;

	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&addr, len) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&addr, &len) == 0);
	if (fork() == 0) {
		fd = accept(listener, NULL, NULL);
		CHECK(fd >= 0);
		for (end = end_of(fd, wait);;) {
			receive_all(end, in, there);
			send_all(end, out, back);
		}
	}
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&addr, len) == 0);
	end = end_of(fd, wait);
	for (size_t i = 0; i < warmup + count; i++) {
		uint64_t begin = now();

		send_all(end, out, there);
		receive_all(end, in, back);
		if (i >= warmup)
			samples[i - warmup] = now() - begin;
	}
	close(fd);
}

static void
cma(bool is_write, int advice, size_t places)
{
	char *mine = memory(places * bytes, advice, MAP_PRIVATE), *theirs;
	int ready[2];
	pid_t child;

	CHECK(pipe(ready) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* Made here: pages that a fork shares are split when one of the two writes. */
		theirs = memory(places * bytes, advice, MAP_PRIVATE);
		CHECK(write(ready[1], &theirs, sizeof(theirs)) == (ssize_t)sizeof(theirs));
		for (;;)
			pause();
	}
	CHECK(read(ready[0], &theirs, sizeof(theirs)) == (ssize_t)sizeof(theirs));
	for (size_t i = 0; i < warmup + count; i++) {
		size_t at = i % places * bytes;
		struct iovec local = {mine + at, bytes}, remote = {theirs + at, bytes};
		uint64_t begin = now();
		ssize_t n = is_write ? process_vm_writev(child, &local, 1, &remote, 1, 0) :
			process_vm_readv(child, &local, 1, &remote, 1, 0);

		CHECK(n == (ssize_t)bytes);
		if (i >= warmup)
			samples[i - warmup] = now() - begin;
	}
	kill(child, SIGKILL);
}

static void
copy(void)
{
	char *from = memory(bytes, 0, MAP_PRIVATE), *to = memory(bytes, 0, MAP_PRIVATE);

	for (size_t i = 0; i < warmup + count; i++) {
		uint64_t begin = now();

		memcpy(to, from, bytes);
		/* The compiler must not see that nobody reads it. */
		__asm__ volatile("" : : "r"(to) : "memory");
		if (i >= warmup)
			samples[i - warmup] = now() - begin;
	}
}

struct flags {
	_Alignas(128) _Atomic size_t there;
	_Alignas(128) _Atomic size_t back;
};

static void
shm(void)
{
	struct flags *flags = memory(sizeof(*flags), 0, MAP_SHARED);
	char *from = memory(bytes, 0, MAP_PRIVATE), *to = memory(bytes, 0, MAP_SHARED);
	size_t last = warmup + count;

	atomic_store(&flags->there, 0);
	atomic_store(&flags->back, 0);
	if (fork() == 0) {
		for (size_t i = 1; i <= last; i++) {
			while (atomic_load_explicit(&flags->there, memory_order_acquire) != i)
				;
			atomic_store_explicit(&flags->back, i, memory_order_release);
		}
		exit(0);
	}
	for (size_t i = 1; i <= last; i++) {
		uint64_t begin = now();

		memcpy(to, from, bytes);
		atomic_store_explicit(&flags->there, i, memory_order_release);
		while (atomic_load_explicit(&flags->back, memory_order_acquire) != i)
			;
		if (i > warmup)
			samples[i - 1 - warmup] = now() - begin;
	}
}

static int
compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int
main(int argc, char **argv)
{
	if (argc != 4 || (bytes = strtoul(argv[2], NULL, 10)) == 0 || (count = strtoul(argv[3], NULL, 10)) == 0) {
		fprintf(stderr, "usage: baselines KIND BYTES COUNT\n");
		return 2;
	}
	const char *kind = argv[1];
	bool wait = strstr(kind, "-wait") != NULL;
	int advice = strstr(kind, "-huge") != NULL ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;

	warmup = count / 10;
	samples = calloc(count, sizeof(*samples));
	CHECK(samples != NULL);
	if (strncmp(kind, "tcp-write-", 10) == 0)
		tcp(HEADER + bytes, HEADER, wait);
	else if (strncmp(kind, "tcp-read-", 9) == 0)
		tcp(HEADER, HEADER + bytes, wait);
	else if (strncmp(kind, "tcp-echo-", 9) == 0)
		tcp(HEADER + bytes, HEADER + bytes, wait);
	else if (strncmp(kind, "cma-write-many-", 15) == 0 && strtoul(kind + 15, NULL, 10) > 0)
		cma(true, advice, strtoul(kind + 15, NULL, 10));
	else if (strncmp(kind, "cma-write-", 10) == 0)
		cma(true, advice, 1);
	else if (strncmp(kind, "cma-read-", 9) == 0)
		cma(false, advice, 1);
	else if (strcmp(kind, "memcpy") == 0)
		copy();
	else if (strcmp(kind, "shm") == 0)
		shm();
	else {
		fprintf(stderr, "baselines: there is no \"%s\"\n", kind);
		return 2;
	}
	while (waitpid(-1, NULL, 0) > 0)
		;
	qsort(samples, count, sizeof(*samples), compare);
	printf("%.3f %.3f %.3f\n", (double)samples[0] / 1000, (double)samples[count / 2] / 1000,
		(double)samples[count * 99 / 100] / 1000);
	free(samples);
	return 0;
}
