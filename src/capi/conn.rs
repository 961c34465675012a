// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Connection.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use super::handle::{self, Handle, Out, object, object_or_none};
use super::log::enum_number;
use super::{answer, operation, rpma_cq, rpma_mr_local, rpma_mr_remote, rpma_peer_cfg};
use crate::conn::{Connection, Transfer};
use crate::error::Error;
use crate::flush::FlushType;
use crate::mr::LocalRange;

super::symbols::versioned! {
    rpma_conn_get_event_fd
    rpma_conn_next_event
    rpma_conn_get_private_data
    rpma_conn_apply_remote_peer_cfg
    rpma_conn_get_qp_num
    rpma_conn_get_cq
    rpma_conn_get_rcq
    rpma_conn_disconnect
    rpma_conn_delete
    rpma_conn_get_compl_fd
    rpma_conn_wait
    rpma_read
    rpma_write
    rpma_write_with_imm
    rpma_atomic_write
    rpma_flush
    rpma_send
    rpma_send_with_imm
    rpma_recv
}

/// A connection.
pub struct rpma_conn {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `Out::give` with this object.
unsafe impl Handle for rpma_conn {
    type Object = Connection;
}

/// What happened to a connection.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum rpma_conn_event {
    /// no event
    RPMA_CONN_UNDEFINED = -1,
    /// the connection is there
    RPMA_CONN_ESTABLISHED,
    /// the connection has ended: either side asked for it, or the other side or the way to it is gone
    RPMA_CONN_CLOSED,
    /// the connection could not be set up, or the device was removed
    RPMA_CONN_LOST,
    /// the other side, or the fabric, refused the connection
    RPMA_CONN_REJECTED,
    /// the other side did not answer
    RPMA_CONN_UNREACHABLE,
}

/// Private data: what a side sends along with its connect request or its answer.
#[repr(C)]
pub struct rpma_conn_private_data {
    /// the data
    pub ptr: *mut c_void,
    /// how many bytes it has
    pub len: u8,
}

impl rpma_conn_private_data {
    /// The C form of private data that the library keeps.
    pub(super) fn of(bytes: &[u8]) -> Self {
        rpma_conn_private_data {
            ptr: if bytes.is_empty() {
                null_mut()
            } else {
                bytes.as_ptr().cast_mut().cast()
            },
            len: u8::try_from(bytes.len()).unwrap_or(u8::MAX),
        }
    }
}

/// What a flush guarantees when it completes.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum rpma_flush_type {
    /// the data survives a loss of power
    RPMA_FLUSH_TYPE_PERSISTENT,
    /// the data is visible to every observer on the other side
    RPMA_FLUSH_TYPE_VISIBILITY,
}

/// Completion flag of an operation: a completion if it fails.
pub const RPMA_F_COMPLETION_ON_ERROR: c_int = 1 << 0;
/// Completion flag of an operation: a completion in any case.
pub const RPMA_F_COMPLETION_ALWAYS: c_int = (1 << 1) | RPMA_F_COMPLETION_ON_ERROR;

/// Offsets of atomic writes are multiples of this.
pub const RPMA_ATOMIC_WRITE_ALIGNMENT: usize = 8;

/// A part of a local region; none for a null region with offset and length 0, else INVAL.
///
/// # Safety
/// The C contract.
#[inline(always)]
pub(super) unsafe fn local_range<'a>(
    region: *const rpma_mr_local,
    offset: usize,
    len: usize,
) -> Result<Option<LocalRange<'a>>, Error> {
    // SAFETY: the C contract.
    match unsafe { object_or_none(region) } {
        Some(region) => Ok(Some(region.range(offset, len))),
        None if offset == 0 && len == 0 => Ok(None),
        None => Err(Error::Inval),
    }
}

/// The two ends of a read or a write; none if both regions are null and all numbers 0.
///
/// # Safety
/// The C contract.
#[inline(always)]
unsafe fn transfer<'a>(
    local: *const rpma_mr_local,
    local_offset: usize,
    remote: *const rpma_mr_remote,
    remote_offset: usize,
    len: usize,
) -> Result<Option<Transfer<'a>>, Error> {
    // SAFETY: the C contract.
    match unsafe { (object_or_none(local), object_or_none(remote)) } {
        (Some(local), Some(remote)) => Ok(Some(Transfer {
            local: local.range(local_offset, len),
            remote,
            remote_offset,
        })),
        (None, None) if local_offset == 0 && remote_offset == 0 && len == 0 => Ok(None),
        _ => Err(Error::Inval),
    }
}

/// Gives the descriptor that becomes readable when an event is there. It belongs to the library;
/// the program may poll it and make it non-blocking.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_event_fd(conn: *const rpma_conn, fd: *mut c_int) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (connection, out) = unsafe { (object(conn)?, Out::new(fd)?) };
        out.set(connection.event_fd());
        Ok(())
    })
}

/// Takes the connection's next event, or waits for one unless the descriptor is non-blocking.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL; RPMA_E_NO_EVENT if there is none;
/// RPMA_E_UNKNOWN for an event without meaning here, which is taken; RPMA_E_PROVIDER if the
/// provider fails (errno says why); RPMA_E_NOMEM.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_next_event(
    conn: *mut rpma_conn,
    event: *mut rpma_conn_event,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract; an enumeration of C is an `int`.
        let (connection, out) = unsafe { (object(conn)?, Out::new(event.cast::<c_int>())?) };
        out.set(connection.next_event()?.number());
        Ok(())
    })
}

/// Gives the private data that the other side sent: pdata->ptr and pdata->len, NULL and 0 if
/// there is none. On the side that asked for the connection it is there once the connection is
/// established. It belongs to the library and stays valid until the connection is deleted.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_private_data(
    conn: *const rpma_conn,
    pdata: *mut rpma_conn_private_data,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (connection, out) = unsafe { (object(conn)?, Out::new(pdata)?) };
        out.set(rpma_conn_private_data::of(connection.private_data()));
        Ok(())
    })
}

/// Takes over what the other side says about itself, which decides whether its memory can be
/// flushed to persistence. The configuration stays the caller's.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_apply_remote_peer_cfg(
    conn: *mut rpma_conn,
    pcfg: *const rpma_peer_cfg,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (connection, config) = unsafe { (object(conn)?, object(pcfg)?) };
        connection.apply_remote_peer_config(config);
        Ok(())
    })
}

/// Tells the number of the connection's queue pair, which its completions carry.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_qp_num(conn: *const rpma_conn, qp_num: *mut u32) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (connection, out) = unsafe { (object(conn)?, Out::new(qp_num)?) };
        out.set(connection.qp_num());
        Ok(())
    })
}

/// Gives the connection's main completion queue. It belongs to the connection.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_cq(
    conn: *const rpma_conn,
    cq_ptr: *mut *mut rpma_cq,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (connection, out) = unsafe { (object(conn)?, Out::new(cq_ptr)?) };
        out.set(rpma_cq::borrowed(Some(connection.cq())));
        Ok(())
    })
}

/// Gives the connection's separate receive completion queue; NULL if it has none. It belongs to
/// the connection.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_rcq(
    conn: *const rpma_conn,
    rcq_ptr: *mut *mut rpma_cq,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (connection, out) = unsafe { (object(conn)?, Out::new(rcq_ptr)?) };
        out.set(rpma_cq::borrowed(connection.rcq()));
        Ok(())
    })
}

/// Starts to end the connection. Both sides get the event RPMA_CONN_CLOSED; operations that are
/// outstanding complete with an error.
///
/// Returns 0; RPMA_E_INVAL if conn is NULL; RPMA_E_PROVIDER if the provider refuses (errno says
/// why).
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_disconnect(conn: *mut rpma_conn) -> c_int {
    // SAFETY: the C contract.
    answer(|| unsafe { object(conn) }?.disconnect())
}

/// Deletes a connection with its queues; *conn_ptr becomes NULL, also on failure. A NULL
/// *conn_ptr is success.
///
/// Returns 0; RPMA_E_INVAL if conn_ptr is NULL or the private memory for flushing cannot be
/// unmapped; RPMA_E_PROVIDER if the provider fails on the way, in which case the rest is released
/// all the same (errno says why).
///
/// Thread safety: safe on different connections.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_delete(conn_ptr: *mut *mut rpma_conn) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        match unsafe { handle::take(conn_ptr) }? {
            Some(connection) => connection.delete(),
            None => Ok(()),
        }
    })
}

/// Gives the descriptor of the shared completion channel, which becomes readable when a
/// completion of either queue is announced. It belongs to the library; the program may poll it
/// and make it non-blocking, and then calls rpma_conn_wait().
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL; RPMA_E_NOT_SHARED_CHNL if the connection was
/// not configured to share its channel.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_compl_fd(conn: *const rpma_conn, fd: *mut c_int) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (connection, out) = unsafe { (object(conn)?, Out::new(fd)?) };
        out.set(connection.completion_fd()?);
        Ok(())
    })
}

/// Waits until a completion is announced on the shared channel and asks for the next
/// announcement. *cq becomes the queue to fetch from, *is_rcq, which may be NULL, whether it is
/// the receive completion queue. flags is not used.
///
/// Returns 0; RPMA_E_INVAL if conn or cq is NULL; RPMA_E_NOT_SHARED_CHNL if the connection was
/// not configured to share its channel; RPMA_E_NO_COMPLETION if nothing is announced (the
/// descriptor is non-blocking, or the wait was interrupted); RPMA_E_UNKNOWN if the announcement
/// is of no queue of this connection; RPMA_E_PROVIDER if the next announcement cannot be asked
/// for, and *cq is NULL then (errno says why).
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_wait(
    conn: *mut rpma_conn,
    flags: c_int,
    cq: *mut *mut rpma_cq,
    is_rcq: *mut bool,
) -> c_int {
    let _ = flags;
    answer(|| {
        // SAFETY: the C contract.
        let (connection, out) = unsafe { (object(conn)?, Out::new(cq)?) };
        let announced = connection.wait()?;
        // SAFETY: the C contract.
        if let Some(is_rcq) = unsafe { Out::optional(is_rcq) } {
            is_rcq.set(announced.is_rcq());
        }
        match announced.request_next() {
            Ok(queue) => {
                out.set(rpma_cq::borrowed(Some(queue)));
                Ok(())
            }
            Err(error) => {
                out.set(null_mut());
                Err(error)
            }
        }
    })
}

/// Reads len bytes at src_offset of the remote region src to dst_offset of the local region dst.
/// src needs the usage RPMA_MR_USAGE_READ_SRC, dst RPMA_MR_USAGE_READ_DST. Both may be NULL, with
/// all numbers 0, for an operation that moves nothing. flags is RPMA_F_COMPLETION_ON_ERROR or
/// RPMA_F_COMPLETION_ALWAYS; op_context comes back as wr_id of the completion.
///
/// Returns 0 once the operation is posted; RPMA_E_INVAL if conn is NULL, flags is 0, one of src
/// and dst is NULL, both are NULL with a number that is not 0, or len is above 4 GiB - 1;
/// RPMA_E_PROVIDER if the provider refuses, as it does when the queue is full. The outcome of the
/// operation is in its completion.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_read(
    conn: *mut rpma_conn,
    dst: *mut rpma_mr_local,
    dst_offset: usize,
    src: *const rpma_mr_remote,
    src_offset: usize,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let connection = unsafe { object(conn) }?;
        let operation = operation(flags, op_context)?;
        // SAFETY: the C contract.
        let transfer = unsafe { transfer(dst, dst_offset, src, src_offset, len) }?;
        connection.read(transfer, operation)
    })
}

/// Writes len bytes at src_offset of the local region src to dst_offset of the remote region dst.
/// src needs the usage RPMA_MR_USAGE_WRITE_SRC, dst RPMA_MR_USAGE_WRITE_DST. Both may be NULL,
/// with all numbers 0, for an operation that moves nothing. flags and op_context are as in
/// rpma_read(). A completion says that src may be used again; that the data is visible or
/// persistent takes rpma_flush().
///
/// Returns 0 once the operation is posted; RPMA_E_INVAL if conn is NULL, flags is 0, one of src
/// and dst is NULL, both are NULL with a number that is not 0, or len is above 4 GiB - 1;
/// RPMA_E_PROVIDER if the provider refuses, as it does when the queue is full.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_write(
    conn: *mut rpma_conn,
    dst: *mut rpma_mr_remote,
    dst_offset: usize,
    src: *const rpma_mr_local,
    src_offset: usize,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let connection = unsafe { object(conn) }?;
        let operation = operation(flags, op_context)?;
        // SAFETY: the C contract.
        let transfer = unsafe { transfer(src, src_offset, dst, dst_offset, len) }?;
        connection.write(transfer, operation)
    })
}

/// Writes as rpma_write() does, and then completes a receive request of the other side, which
/// gets imm as its immediate data.
///
/// Returns 0 once the operation is posted; RPMA_E_INVAL if conn is NULL, flags is 0, one of src
/// and dst is NULL, both are NULL with a number that is not 0, or len is above 4 GiB - 1;
/// RPMA_E_PROVIDER if the provider refuses, as it does when the queue is full.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_write_with_imm(
    conn: *mut rpma_conn,
    dst: *mut rpma_mr_remote,
    dst_offset: usize,
    src: *const rpma_mr_local,
    src_offset: usize,
    len: usize,
    flags: c_int,
    imm: u32,
    op_context: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let connection = unsafe { object(conn) }?;
        let operation = operation(flags, op_context)?;
        // SAFETY: the C contract.
        let transfer = unsafe { transfer(src, src_offset, dst, dst_offset, len) }?;
        connection.write_with_imm(transfer, imm, operation)
    })
}

/// Writes the 8 bytes at src to dst_offset of the remote region dst so that no observer sees only
/// some of them, and after all earlier operations. dst needs the usage RPMA_MR_USAGE_WRITE_DST;
/// dst_offset is a multiple of RPMA_ATOMIC_WRITE_ALIGNMENT. src may be reused at once. flags and
/// op_context are as in rpma_read().
///
/// Returns 0 once the operation is posted; RPMA_E_INVAL if conn, dst or src is NULL, flags is 0,
/// or dst_offset is not a multiple of 8; RPMA_E_PROVIDER if the provider refuses, as it does when
/// the queue is full.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_atomic_write(
    conn: *mut rpma_conn,
    dst: *mut rpma_mr_remote,
    dst_offset: usize,
    src: *const c_char,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (connection, dst) = unsafe { (object(conn)?, object(dst)?) };
        // SAFETY: the C contract: `src` is an array of 8 bytes.
        let value = unsafe { src.cast::<[u8; 8]>().as_ref() }.ok_or(Error::Inval)?;
        let operation = operation(flags, op_context)?;
        if !dst_offset.is_multiple_of(RPMA_ATOMIC_WRITE_ALIGNMENT) {
            return Err(Error::Inval);
        }
        connection.atomic_write(dst, dst_offset, value, operation)
    })
}

/// Makes all earlier writes to len bytes at dst_offset of the remote region dst visible or
/// persistent, as type says: they are when this operation completes. dst needs the matching
/// usage, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY or RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT. flags and
/// op_context are as in rpma_read().
///
/// Returns 0 once the operation is posted; RPMA_E_INVAL if conn or dst is NULL, flags is 0, or
/// type is none; RPMA_E_NOSUPP if dst lacks the usage, or type is RPMA_FLUSH_TYPE_PERSISTENT and
/// no remote peer configuration with direct write to persistent memory was applied;
/// RPMA_E_PROVIDER if the provider refuses, as it does when the queue is full.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_flush(
    conn: *mut rpma_conn,
    dst: *mut rpma_mr_remote,
    dst_offset: usize,
    len: usize,
    r#type: MaybeUninit<rpma_flush_type>,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (connection, dst) = unsafe { (object(conn)?, object(dst)?) };
        let operation = operation(flags, op_context)?;
        let kind = FlushType::from_number(enum_number(r#type)).ok_or(Error::Inval)?;
        connection.flush(dst, dst_offset, len, kind, operation)
    })
}

/// Sends a message of len bytes at offset of src, which has the usage RPMA_MR_USAGE_SEND. src may
/// be NULL, with offset and len 0, for a message without bytes. The other side needs a receive
/// request for it. flags and op_context are as in rpma_read().
///
/// Returns 0 once the operation is posted; RPMA_E_INVAL if conn is NULL, flags is 0, src is NULL
/// with offset or len not 0, or len is above 4 GiB - 1; RPMA_E_PROVIDER if the provider refuses,
/// as it does when the queue is full.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_send(
    conn: *mut rpma_conn,
    src: *const rpma_mr_local,
    offset: usize,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let connection = unsafe { object(conn) }?;
        let operation = operation(flags, op_context)?;
        // SAFETY: the C contract.
        let message = unsafe { local_range(src, offset, len) }?;
        connection.send(message, operation)
    })
}

/// Sends a message as rpma_send() does, with imm as immediate data.
///
/// Returns 0 once the operation is posted; RPMA_E_INVAL if conn is NULL, flags is 0, src is NULL
/// with offset or len not 0, or len is above 4 GiB - 1; RPMA_E_PROVIDER if the provider refuses,
/// as it does when the queue is full.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_send_with_imm(
    conn: *mut rpma_conn,
    src: *const rpma_mr_local,
    offset: usize,
    len: usize,
    flags: c_int,
    imm: u32,
    op_context: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let connection = unsafe { object(conn) }?;
        let operation = operation(flags, op_context)?;
        // SAFETY: the C contract.
        let message = unsafe { local_range(src, offset, len) }?;
        connection.send_with_imm(message, imm, operation)
    })
}

/// Posts a receive request for a message of up to len bytes to offset of dst, which has the usage
/// RPMA_MR_USAGE_RECV. dst may be NULL, with offset and len 0, for a message without bytes. The
/// memory may not be used until the request completes; op_context comes back as wr_id of the
/// completion.
///
/// Returns 0 once the request is posted; RPMA_E_INVAL if conn is NULL, dst is NULL with offset or
/// len not 0, or len is above 4 GiB - 1; RPMA_E_PROVIDER if the provider refuses, as it does when
/// the queue is full or the connection uses a shared receive queue.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_recv(
    conn: *mut rpma_conn,
    dst: *mut rpma_mr_local,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (connection, into) = unsafe { (object(conn)?, local_range(dst, offset, len)?) };
        connection.recv(into, op_context as u64)
    })
}
