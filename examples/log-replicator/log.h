/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright 2026, The rpma developers */

/*
 * log.h - what the server, the client and the verifier have to agree on.
 *
 * The log is a file that the server maps and registers; a client writes to it from afar. It begins with a page of its own for the
 * head; the records follow, one after another, each padded to a multiple of 8 bytes:
 *
 *	0            8            16                LOG_START                                        tail
 *	| magic      | tail       | ...             | record 1     | record 2  | ... | record n     | not valid
 *
 * The tail decides what is in the log: bytes beyond it mean nothing, whatever they are. So a record is appended by writing it
 * behind the tail, making it durable, and only then moving the tail over it in one indivisible step. Whatever stops in between,
 * nobody ever sees half a record.
 *
 * Numbers are stored as a little-endian machine has them in memory.
 */

#ifndef LOG_H
#define LOG_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LOG_MAGIC "rpma-log" /* 8 bytes, without the final zero */
#define LOG_START 4096       /* where the first record is */
#define LOG_DATA_MAX 1024    /* no record has more bytes of data */

/* At the start of the file. */
struct log_head {
	char magic[8];
	uint64_t tail; /* where the next record goes; 8-byte aligned, as an atomic write needs it */
};

/* Before each record's data. */
struct log_record {
	uint64_t seq; /* 1 for the first, and so on */
	uint32_t len; /* bytes of data */
	uint32_t checksum;
};

/* What the server tells a client when it connects. It travels in the private data of the connection, which is small. */
struct log_offer {
	uint64_t tail; /* append here... */
	uint64_t seq;  /* ...the successor of this record */
	uint8_t mr_desc_size;
	uint8_t pcfg_desc_size;
	uint8_t descs[64]; /* descriptor of the log as a memory region, then the one of the server's peer configuration */
};

/* How many bytes a record with len bytes of data takes. */
static inline size_t
log_record_size(uint32_t len)
{
	return (sizeof(struct log_record) + len + 7) & ~(size_t)7;
}

/* CRC-32, four bits at a time. */
static inline uint32_t
log_crc32(uint32_t crc, const void *data, size_t len)
{
	static const uint32_t table[16] = {
		0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
		0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
	};
	const unsigned char *byte = data;

	crc = ~crc;
	while (len-- > 0) {
		crc ^= *byte++;
		crc = (crc >> 4) ^ table[crc & 15];
		crc = (crc >> 4) ^ table[crc & 15];
	}
	return ~crc;
}

/* The checksum of a record: of its number and length too, so that no record passes for another one. */
static inline uint32_t
log_checksum(const struct log_record *record, const void *data)
{
	uint32_t crc = log_crc32(0, record, offsetof(struct log_record, checksum));

	return log_crc32(crc, data, record->len);
}

/* What log_walk() finds. */
struct log_found {
	uint64_t tail;
	uint64_t records; /* as many as the sequence number of the last one */
	uint64_t bytes;   /* of data */
};

/*
 * Walks through a whole log of size bytes at base. Returns NULL if all is well, else what is wrong with the record that comes after
 * those counted in found.
 */
static inline const char *
log_walk(const char *base, size_t size, struct log_found *found)
{
	const struct log_head *head = (const struct log_head *)base;
	size_t at = LOG_START;

	memset(found, 0, sizeof(*found));
	if (size < LOG_START || memcmp(head->magic, LOG_MAGIC, sizeof(head->magic)) != 0)
		return "this is not a log";
	found->tail = head->tail;
	if (head->tail < LOG_START || head->tail > size || head->tail % 8 != 0)
		return "the tail is not a place where a record could end";

	while (at < head->tail) {
		const struct log_record *record = (const struct log_record *)(base + at);

		if (head->tail - at < sizeof(*record) || record->len > LOG_DATA_MAX ||
				head->tail - at < log_record_size(record->len))
			return "its length reaches beyond the tail";
		if (record->seq != found->records + 1)
			return "its sequence number is not the next one";
		if (record->checksum != log_checksum(record, record + 1))
			return "its checksum is wrong";
		at += log_record_size(record->len);
		found->records++;
		found->bytes += record->len;
	}
	return NULL;
}

#endif /* LOG_H */
