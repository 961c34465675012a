// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Both ends of connections in one process, through the functions that C programs call.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use rdma_sys::*;

use super::wire::{self, Greeting, GreetingKind, Header, Kind, Params, PrivateData};
use super::{addrinfo, provider};
use crate::sys::errno;

mod abuse;
mod connections;
pub mod feed;
pub mod handshake;
pub mod settings;
mod traffic;

const ALL_RIGHTS: u32 = 0b111 | 0x300;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn fabric() -> &'static crate::verbs::provider::Provider {
    provider()
}

/// Sizes and options of one end.
#[derive(Clone, Copy)]
struct Options {
    cqe: i32,
    send: u32,
    recv: u32,
    sge: u32,
    inline: u32,
    rnr_retry: u8,
    reads: u8,
    shared: *mut ibv_srq,
    channel: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cqe: 100,
            send: 20,
            recv: 20,
            sge: 2,
            inline: 32,
            rnr_retry: 7,
            reads: 0xff,
            shared: null_mut(),
            channel: false,
        }
    }
}

/// A device context with a protection domain.
#[derive(Clone, Copy)]
struct Home {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
}

impl Home {
    fn new() -> Self {
        // SAFETY: plain calls with valid arguments, here and in all of this module.
        unsafe {
            let context = super::verbs::ibv_open_device(super::device::device());
            assert!(!context.is_null());
            let pd = (fabric().ibv_alloc_pd)(context);
            assert!(!pd.is_null());
            Home { context, pd }
        }
    }

    /// A shared receive queue with so many places.
    fn shared_queue(self, max: u32) -> *mut ibv_srq {
        // SAFETY: a domain of ours.
        let srq = unsafe {
            let mut attr: ibv_srq_init_attr = std::mem::zeroed();
            (attr.attr.max_wr, attr.attr.max_sge) = (max, 1);
            (fabric().ibv_create_srq)(self.pd, &mut attr)
        };
        assert!(!srq.is_null());
        srq
    }

    fn close(self) {
        // SAFETY: made by `new`.
        unsafe {
            assert_eq!((fabric().ibv_dealloc_pd)(self.pd), 0);
            super::verbs::ibv_close_device(self.context);
        }
    }
}

/// Registered memory.
struct Memory {
    bytes: Vec<u8>,
    mr: *mut ibv_mr,
}

impl Memory {
    fn new(home: Home, len: usize, rights: u32) -> Self {
        let mut bytes = vec![0; len];
        // SAFETY: the vector's memory, which stays in place.
        let mr = unsafe {
            (fabric().ibv_reg_mr)(home.pd, bytes.as_mut_ptr().cast(), len, rights as i32)
        };
        assert!(!mr.is_null(), "errno {}", errno::get());
        Memory { bytes, mr }
    }

    fn filled(home: Home, len: usize, seed: u8) -> Self {
        let mut this = Memory::new(home, len, ALL_RIGHTS);
        for (i, byte) in this.bytes.iter_mut().enumerate() {
            *byte = (i as u8).wrapping_mul(31).wrapping_add(seed) ^ (i >> 8) as u8;
        }
        this
    }

    fn key(&self) -> u32 {
        // SAFETY: registered.
        unsafe { (*self.mr).rkey }
    }

    fn addr(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    fn sge(&self, offset: usize, len: usize) -> ibv_sge {
        ibv_sge {
            addr: self.addr() + offset as u64,
            length: len as u32,
            lkey: self.key(),
        }
    }

    /// The bytes as another thread has left them.
    fn read(&self) -> Vec<u8> {
        // SAFETY: inside the vector.
        (0..self.bytes.len())
            .map(|i| unsafe { self.bytes.as_ptr().add(i).read_volatile() })
            .collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: registered.
        unsafe { assert_eq!((fabric().ibv_dereg_mr)(self.mr), 0) };
    }
}

/// An event channel.
#[derive(Clone, Copy)]
struct Events(*mut rdma_event_channel);

/// What the tests look at in an event.
struct Seen {
    kind: u32,
    status: i32,
    id: *mut rdma_cm_id,
    private: Vec<u8>,
}

impl Events {
    fn new() -> Self {
        // SAFETY: no arguments.
        let channel = unsafe { (fabric().rdma_create_event_channel)() };
        assert!(!channel.is_null());
        Events(channel)
    }

    fn next(self) -> Seen {
        let mut event = null_mut();
        // SAFETY: a valid channel; the event is read before it is acknowledged.
        unsafe {
            // The fuzzer has a clock that sends signals.
            while (fabric().rdma_get_cm_event)(self.0, &mut event) != 0 {
                assert_eq!(errno::get(), libc::EINTR);
            }
            let conn = (*event).param.conn;
            let seen = Seen {
                kind: (*event).event,
                status: (*event).status,
                id: (*event).id,
                private: if conn.private_data.is_null() {
                    Vec::new()
                } else {
                    std::slice::from_raw_parts(
                        conn.private_data.cast(),
                        conn.private_data_len.into(),
                    )
                    .to_vec()
                },
            };
            assert_eq!((fabric().rdma_ack_cm_event)(event), 0);
            seen
        }
    }

    fn expect(self, kind: u32) -> Seen {
        let seen = self.next();
        assert_eq!((seen.kind, seen.status), (kind, 0));
        seen
    }

    fn is_readable(self, timeout_ms: i32) -> bool {
        let mut poll = libc::pollfd {
            // SAFETY: a valid channel.
            fd: unsafe { (*self.0).fd },
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut poll, 1, timeout_ms) == 1 }
    }

    fn close(self) {
        // SAFETY: made by `new`.
        unsafe { (fabric().rdma_destroy_event_channel)(self.0) };
    }
}

fn sockaddr(address: SocketAddr) -> libc::sockaddr_storage {
    addrinfo::to_storage(&address)
}

fn new_id(events: Events) -> *mut rdma_cm_id {
    let mut id = null_mut();
    // SAFETY: a valid channel and variable.
    let result = unsafe {
        (fabric().rdma_create_id)(events.0, &mut id, null_mut(), rdma_port_space::RDMA_PS_TCP)
    };
    assert_eq!(result, 0, "errno {}", errno::get());
    id
}

fn destroy_id(id: *mut rdma_cm_id) {
    // SAFETY: an id of ours.
    unsafe { assert_eq!((fabric().rdma_destroy_id)(id), 0) };
}

/// A listening id.
struct Listener {
    events: Events,
    id: *mut rdma_cm_id,
    address: SocketAddr,
}

impl Listener {
    fn new() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), 0)
    }

    fn at(address: SocketAddr, backlog: i32) -> Self {
        let events = Events::new();
        let id = new_id(events);
        let mut storage = sockaddr(address);
        // SAFETY: an id of ours and a valid address.
        unsafe {
            let bound = (fabric().rdma_bind_addr)(id, (&raw mut storage).cast());
            assert_eq!(bound, 0, "errno {}", errno::get());
            assert_eq!((fabric().rdma_listen)(id, backlog), 0);
            let shown = addrinfo::read_address(&raw const (*id).route.addr.src_addr_union.src_addr);
            Listener {
                events,
                id,
                address: shown.unwrap(),
            }
        }
    }

    fn close(self) {
        destroy_id(self.id);
        self.events.close();
    }
}

/// One end of a connection.
struct End {
    home: Home,
    events: Events,
    id: *mut rdma_cm_id,
    qp: *mut ibv_qp,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    options: Options,
}

impl End {
    fn new(home: Home, events: Events, id: *mut rdma_cm_id, options: Options) -> Self {
        // SAFETY: objects of ours.
        unsafe {
            let channel = if options.channel {
                (fabric().ibv_create_comp_channel)(home.context)
            } else {
                null_mut()
            };
            let cq = || {
                let cq =
                    (fabric().ibv_create_cq)(home.context, options.cqe, null_mut(), channel, 0);
                assert!(!cq.is_null());
                cq
            };
            let (send_cq, recv_cq) = (cq(), cq());
            let mut attr: ibv_qp_init_attr_ex = std::mem::zeroed();
            attr.send_cq = send_cq;
            attr.recv_cq = recv_cq;
            attr.srq = options.shared;
            attr.cap.max_send_wr = options.send;
            attr.cap.max_recv_wr = options.recv;
            attr.cap.max_send_sge = options.sge;
            attr.cap.max_recv_sge = options.sge;
            attr.cap.max_inline_data = options.inline;
            attr.qp_type = ibv_qp_type::IBV_QPT_RC;
            attr.pd = home.pd;
            attr.comp_mask = (ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD
                | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
                .0;
            attr.send_ops_flags = u64::from(
                (ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_FLUSH
                    | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE
                    | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE)
                    .0,
            );
            let made = (fabric().rdma_create_qp_ex)(id, &mut attr);
            assert_eq!(made, 0, "errno {}", errno::get());
            End {
                home,
                events,
                id,
                qp: (*id).qp,
                send_cq,
                recv_cq,
                channel,
                options,
            }
        }
    }

    fn params<'a>(&self, private: &'a [u8]) -> (rdma_conn_param, std::marker::PhantomData<&'a ()>) {
        (
            rdma_conn_param {
                private_data: if private.is_empty() {
                    null()
                } else {
                    private.as_ptr().cast()
                },
                private_data_len: private.len() as u8,
                responder_resources: self.options.reads,
                initiator_depth: self.options.reads,
                flow_control: 1,
                retry_count: 7,
                rnr_retry_count: self.options.rnr_retry,
                srq: 0,
                qp_num: 0,
            },
            std::marker::PhantomData,
        )
    }

    fn connect(&self, private: &[u8]) -> i32 {
        let (mut params, _) = self.params(private);
        // SAFETY: an id of ours.
        unsafe { (fabric().rdma_connect)(self.id, &mut params) }
    }

    fn accept(&self, private: &[u8]) -> i32 {
        let (mut params, _) = self.params(private);
        // SAFETY: an id of ours.
        unsafe { (fabric().rdma_accept)(self.id, &mut params) }
    }

    fn disconnect(&self) -> i32 {
        // SAFETY: an id of ours.
        unsafe { (fabric().rdma_disconnect)(self.id) }
    }

    fn post(&self, wr: &mut ibv_send_wr) -> i32 {
        let mut bad = null_mut();
        // SAFETY: a queue pair of ours and a valid request.
        unsafe { (*self.home.context).ops.post_send.unwrap()(self.qp, wr, &mut bad) }
    }

    fn post_recv(&self, wr_id: u64, sges: &mut [ibv_sge]) -> i32 {
        let mut wr = ibv_recv_wr {
            wr_id,
            next: null_mut(),
            sg_list: sges.as_mut_ptr(),
            num_sge: sges.len() as i32,
        };
        let mut bad = null_mut();
        // SAFETY: as above.
        unsafe { (*self.home.context).ops.post_recv.unwrap()(self.qp, &mut wr, &mut bad) }
    }

    fn poll(&self, cq: *mut ibv_cq, max: usize) -> Result<Vec<ibv_wc>, i32> {
        // SAFETY: all zeros is a valid completion.
        let mut wcs = vec![unsafe { std::mem::zeroed::<ibv_wc>() }; max];
        // SAFETY: a queue of ours and room for `max`.
        let n =
            unsafe { (*self.home.context).ops.poll_cq.unwrap()(cq, max as i32, wcs.as_mut_ptr()) };
        if n < 0 {
            return Err(n);
        }
        wcs.truncate(n as usize);
        Ok(wcs)
    }

    fn wait(&self, cq: *mut ibv_cq) -> ibv_wc {
        let start = Instant::now();
        loop {
            if let Some(wc) = self.poll(cq, 1).unwrap().pop() {
                return wc;
            }
            assert!(start.elapsed() < PATIENCE, "no completion");
        }
    }

    /// The next `n` completions of requests, as id and status.
    fn sent(&self, n: usize) -> Vec<(u64, u32)> {
        (0..n)
            .map(|_| self.wait(self.send_cq))
            .map(|wc| (wc.wr_id, wc.status))
            .collect()
    }

    fn received(&self, n: usize) -> Vec<(u64, u32)> {
        (0..n)
            .map(|_| self.wait(self.recv_cq))
            .map(|wc| (wc.wr_id, wc.status))
            .collect()
    }

    /// Releases everything but the home and the event channel.
    fn close(self) {
        // SAFETY: objects of ours, released in order.
        unsafe {
            (fabric().rdma_destroy_qp)(self.id);
            assert_eq!((fabric().ibv_destroy_cq)(self.send_cq), 0);
            assert_eq!((fabric().ibv_destroy_cq)(self.recv_cq), 0);
            if !self.channel.is_null() {
                assert_eq!((fabric().ibv_destroy_comp_channel)(self.channel), 0);
            }
        }
        destroy_id(self.id);
    }
}

/// A work request.
fn request(wr_id: u64, opcode: u32, sges: &mut [ibv_sge]) -> ibv_send_wr {
    // SAFETY: all zeros is a valid request.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.sg_list = sges.as_mut_ptr();
    wr.num_sge = sges.len() as i32;
    wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
    wr
}

fn remote(mut wr: ibv_send_wr, addr: u64, rkey: u32) -> ibv_send_wr {
    wr.wr.rdma = rdma_t {
        remote_addr: addr,
        rkey,
    };
    wr
}

/// Resolves and leaves the id ready for a queue pair.
fn resolve(events: Events, address: SocketAddr) -> *mut rdma_cm_id {
    let id = new_id(events);
    let mut storage = sockaddr(address);
    // SAFETY: an id of ours and a valid address.
    unsafe {
        let resolved =
            (fabric().rdma_resolve_addr)(id, null_mut(), (&raw mut storage).cast(), 10_000);
        assert_eq!(resolved, 0);
        events.expect(rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_eq!((fabric().rdma_resolve_route)(id, 10_000), 0);
        events.expect(rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED);
    }
    id
}

/// Two connected ends in one process, each with an own protection domain.
struct Pair {
    listener: Listener,
    client: End,
    server: End,
}

impl Pair {
    fn new() -> Self {
        Self::with(Options::default(), Options::default())
    }

    fn with(client: Options, server: Options) -> Self {
        Self::prepared(client, server, |_| ())
    }

    /// `prepare` gets the server's end before it accepts.
    fn prepared(client: Options, server: Options, prepare: impl FnOnce(&End)) -> Self {
        let home = Home::new();
        Self::at_home(client, home, server, prepare)
    }

    fn at_home(client: Options, home: Home, server: Options, prepare: impl FnOnce(&End)) -> Self {
        use rdma_cm_event_type::*;
        let listener = Listener::new();
        let events = Events::new();
        let id = resolve(events, listener.address);
        let client = End::new(Home::new(), events, id, client);
        assert_eq!(client.connect(b"hello"), 0);
        let seen = listener.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(seen.private, b"hello");
        let own = Events::new();
        let server = End::new(home, own, seen.id, server);
        prepare(&server);
        assert_eq!(server.accept(b"welcome"), 0);
        // SAFETY: an id and a channel of ours.
        unsafe { assert_eq!((fabric().rdma_migrate_id)(seen.id, own.0), 0) };
        let seen = client.events.expect(RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!(seen.private, b"welcome");
        server.events.expect(RDMA_CM_EVENT_ESTABLISHED);
        Pair {
            listener,
            client,
            server,
        }
    }

    fn close(self) {
        for end in [self.client, self.server] {
            let (home, events) = (end.home, end.events);
            end.close();
            home.close();
            events.close();
        }
        self.listener.close();
    }
}

/// A client that speaks the protocol by hand.
struct Raw(TcpStream);

impl Raw {
    fn dial(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw(stream)
    }

    fn request() -> Vec<u8> {
        let mut bytes = Vec::new();
        Greeting {
            kind: GreetingKind::Request,
            params: Params {
                responder_resources: 16,
                initiator_depth: 16,
                rnr_retry_count: 7,
                qp_num: 77,
                ..Params::default()
            },
            reason: 0,
            private: PrivateData::default(),
            meeting: None,
        }
        .encode(&mut bytes);
        bytes
    }

    /// Connects to a listener, whose side is accepted with `options`.
    fn connect(listener: &Listener, home: Home, options: Options) -> (Self, End) {
        use rdma_cm_event_type::*;
        let mut raw = Raw::dial(listener.address);
        raw.0.write_all(&Raw::request()).unwrap();
        let seen = listener.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        let own = Events::new();
        let end = End::new(home, own, seen.id, options);
        assert_eq!(end.accept(&[]), 0);
        // SAFETY: an id and a channel of ours.
        unsafe { assert_eq!((fabric().rdma_migrate_id)(seen.id, own.0), 0) };
        assert_eq!(raw.greeting().kind, GreetingKind::Received);
        assert_eq!(raw.greeting().kind, GreetingKind::Reply);
        raw.send(&Header::bare(Kind::ReadyToUse, 0));
        own.expect(RDMA_CM_EVENT_ESTABLISHED);
        (raw, end)
    }

    fn greeting(&mut self) -> Greeting {
        let mut bytes = vec![0; wire::GREETING_LEN];
        self.0.read_exact(&mut bytes).unwrap();
        let len = Greeting::full_len(bytes.first_chunk().unwrap()).unwrap();
        bytes.resize(len, 0);
        self.0.read_exact(&mut bytes[wire::GREETING_LEN..]).unwrap();
        Greeting::decode(&bytes).unwrap()
    }

    fn send(&mut self, header: &Header) {
        self.0.write_all(&header.encode()).unwrap();
    }

    fn frame(&mut self) -> (Header, Vec<u8>) {
        let mut bytes = [0; wire::HEADER_LEN];
        self.0.read_exact(&mut bytes).unwrap();
        let header = Header::decode(&bytes).unwrap();
        let mut payload = vec![0; header.payload_len() as usize];
        self.0.read_exact(&mut payload).unwrap();
        (header, payload)
    }

    /// Whether the other side has ended the stream, now or soon.
    fn is_ended(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.0.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}
