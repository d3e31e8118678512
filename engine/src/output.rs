//! The output side of a connection: appended during a loop turn, sent once at its end.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    io,
    net::Shutdown,
    ops::Range,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use compio_executor::JoinHandle;

use crate::{
    account::Account,
    batch::{Batch, OutgoingBatch},
    before_send,
    chunk::{CHUNK_BYTES, SEGMENT_BYTES, give_output, take_output, take_segment},
    flush,
    settings::Watermarks,
    socket::DataSocket,
    stream::{TlsLink, write_loop},
    traffic::Tally,
};

/// An output with less than this is charged to no account: most messages fit in it. Without room in the budget an output holds one
/// receive more, which is not charged. Worst case with 16,384 connections and an origin behind each, all of bulk (64 KiB): 2.5 GiB.
const CHARGED_BYTES_MIN: usize = CHUNK_BYTES;

/// How often it is looked whether an output is empty: at first, and later.
const DRAIN_PAUSE_MIN: Duration = Duration::from_millis(1);
const DRAIN_PAUSE_MAX: Duration = Duration::from_millis(50);

/// The way to the peer.
type Way = (Rc<DataSocket>, Rc<TlsLink>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// No more appends; what is buffered is sent, then the write side is shut down.
    Finishing,
    /// Nothing is sent any more.
    Closed,
}

/// The task that sends what takes longer than one call. Most connections never need it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// It has not been needed yet.
    None,
    /// It is at work.
    Busy,
    /// It has nothing to do, and has left its waker.
    Idle,
}

struct Inner {
    /// Plain bytes appended and not yet handed to the kernel: full segments, and what is behind them.
    segments: RefCell<VecDeque<Vec<u8>>>,
    segments_bytes: Cell<usize>,
    buffer: RefCell<Vec<u8>>,
    /// TLS records that must leave before anything sealed later.
    wire: RefCell<Vec<u8>>,
    in_flight: Cell<usize>,
    phase: Cell<Phase>,
    congested: Cell<bool>,
    marks: Watermarks,
    /// Where it goes, until it is closed: who holds an output must not keep the socket open.
    way: RefCell<Option<Way>>,
    writer: Cell<Writer>,
    /// The waker of an idle writer.
    idle_writer: Cell<Option<Waker>>,
    /// The writer's task; dropped, it is cancelled.
    task: Cell<Option<JoinHandle<()>>>,
    /// It is sent at the end of this turn.
    is_due: Cell<bool>,
    /// The part of a send at the end of a turn that is left to the writer's task. In a box: a peer that reads leaves none.
    rest: Cell<Option<Box<io::Result<OutgoingBatch>>>>,
    /// A waiter for room: the connection itself, and the lane whose reply it takes.
    relieved: RefCell<Vec<Waker>>,
    on_flush: RefCell<Option<Box<dyn Fn()>>>,
    progress: Cell<u64>,
    appended: Cell<u64>,
    tally: Tally,
    account: RefCell<Option<Rc<dyn Account>>>,
    /// Bytes that the account has been charged.
    charged: Cell<usize>,
}

/// The append side of a connection's output queue. Cheap to clone; all clones share one queue; lives on one core.
///
/// `append` never blocks and never fails: the caller looks at [`Output::is_congested`] and stops reading its source,
/// and awaits [`Output::relieved`] before it goes on. All that one loop turn appends leaves in one send, at its end
/// (`flush.rs`); a writer's task has what the socket does not take at once.
#[derive(Clone)]
pub struct Output(Rc<Inner>);

impl Output {
    /// Bytes of the queue without what it holds.
    pub(crate) const BYTES: usize = size_of::<Inner>();

    pub(crate) fn new(marks: Watermarks, socket: Rc<DataSocket>, link: Rc<TlsLink>) -> Self {
        Self(Rc::new(Inner {
            segments: RefCell::default(),
            segments_bytes: Cell::new(0),
            buffer: RefCell::new(Vec::new()),
            wire: RefCell::new(Vec::new()),
            in_flight: Cell::new(0),
            phase: Cell::new(Phase::Open),
            congested: Cell::new(false),
            marks,
            way: RefCell::new(Some((socket, link))),
            writer: Cell::new(Writer::None),
            idle_writer: Cell::new(None),
            task: Cell::new(None),
            is_due: Cell::new(false),
            rest: Cell::new(None),
            relieved: RefCell::default(),
            on_flush: RefCell::new(None),
            progress: Cell::new(0),
            appended: Cell::new(0),
            tally: Tally::default(),
            account: RefCell::new(None),
            charged: Cell::new(0),
        }))
    }

    /// Appends bytes. After [`Output::finish`] or [`Output::abort`] they are dropped.
    #[inline]
    pub fn append(&self, bytes: &[u8]) {
        self.with(|buffer| buffer.extend_from_slice(bytes));
    }

    /// Encodes in place at the end of the buffer.
    #[inline]
    pub fn with<R>(&self, encode: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let mut buffer = self.0.buffer.borrow_mut();
        if buffer.capacity() == 0 {
            *buffer = take_output();
        }
        let before = buffer.len();
        let result = encode(&mut buffer);
        if self.0.phase.get() != Phase::Open {
            buffer.truncate(before);
            return result;
        }
        self.0.appended.set(self.0.appended.get() + (buffer.len() - before) as u64);
        if buffer.len() >= SEGMENT_BYTES {
            self.begin_segment(&mut buffer);
        }
        let queued = buffer.len() + self.0.segments_bytes.get() + self.0.in_flight.get();
        drop(buffer);
        let has_room = queued < CHARGED_BYTES_MIN || self.charge(queued);
        if !has_room || queued >= self.0.marks.high {
            self.0.congested.set(true);
        }
        // A writer that is at work comes round to it.
        if !self.is_writer_busy() && !self.0.is_due.replace(true) {
            flush::at_end_of_turn(self.clone());
        }
        result
    }

    /// Charges the bytes that the output holds after its next append to `account`, and to no other. An output is congested when its
    /// account has no room for more, until it has sent below its low-water mark.
    pub fn charge_to(&self, account: Option<Rc<dyn Account>>) {
        self.discharge();
        *self.0.account.borrow_mut() = account;
    }

    /// Charges `queued` bytes; false if the account has no room for them.
    fn charge(&self, queued: usize) -> bool {
        let account = self.0.account.borrow();
        account.as_ref().is_none_or(|account| {
            let has_room = account.charge(self.0.charged.get(), queued);
            if has_room {
                self.0.charged.set(queued);
            }
            has_room
        })
    }

    /// Gives back what is charged for bytes that have left.
    fn discharge_sent(&self) {
        let charged = self.0.charged.get();
        if charged == 0 {
            return;
        }
        let buffered = self.buffered();
        if charged > buffered
            && let Some(account) = &*self.0.account.borrow()
        {
            account.charge(charged, buffered);
            self.0.charged.set(buffered);
        }
    }

    /// Gives back all that is charged.
    fn discharge(&self) {
        if let (charged @ 1.., Some(account)) = (self.0.charged.take(), &*self.0.account.borrow()) {
            account.charge(charged, 0);
        }
    }

    /// The buffer is full: it waits as a segment, or as several, if one append brought much.
    #[cold]
    fn begin_segment(&self, buffer: &mut Vec<u8>) {
        self.0.segments_bytes.set(self.0.segments_bytes.get() + buffer.len());
        let mut segments = self.0.segments.borrow_mut();
        // More follows more often than not, at once and of this size.
        let full = std::mem::replace(buffer, take_segment());
        if full.len() < 2 * SEGMENT_BYTES {
            segments.push_back(full);
        } else {
            segments.extend(full.chunks(SEGMENT_BYTES).map(<[u8]>::to_vec));
        }
    }

    /// Sends what is buffered; what the socket does not take is left to the writer's task.
    pub(crate) fn flush(&self) {
        self.0.is_due.set(false);
        let Some((socket, link)) = self.0.way.borrow().clone() else { return };
        // Bytes buffered during a handshake leave when it is over.
        if self.is_writer_busy() || self.unsent() == 0 || link.is_handshaking() {
            return;
        }
        // It may append more, and begin a segment with it.
        before_send::run();
        if link.is_tls() || self.0.segments_bytes.get() > 0 {
            return self.flush_batch(&socket, &link);
        }
        // One plain buffer, as most batches are.
        let bytes = std::mem::take(&mut *self.0.buffer.borrow_mut());
        let plain_bytes = bytes.len();
        self.0.in_flight.set(plain_bytes);
        self.call_hook();
        self.0.tally.batch_begins(plain_bytes);
        match socket.send_some(&bytes).inspect(|count| self.note_progress(*count)) {
            Ok(count) if count == plain_bytes => {
                give_output(bytes);
                self.note_sent(plain_bytes);
            }
            rest => self.leave(rest.map(|at| OutgoingBatch { bytes, at, plain_bytes, later: VecDeque::new() })),
        }
    }

    fn flush_batch(&self, socket: &DataSocket, link: &TlsLink) {
        let sent = self.seal(self.take_batch(true), link).and_then(|mut outgoing| {
            outgoing.at = socket.send_some(&outgoing.bytes)?;
            self.note_progress(outgoing.at);
            Ok(outgoing)
        });
        match sent {
            Ok(outgoing) if outgoing.is_sent() => {
                // Nothing is left of it that could fail to be sealed.
                let _ = self.sent(outgoing, link);
            }
            rest => self.leave(rest),
        }
    }

    /// Leaves the rest of a send to the writer's task.
    #[cold]
    fn leave(&self, rest: io::Result<OutgoingBatch>) {
        self.0.rest.set(Some(Box::new(rest)));
        self.wake_writer();
    }

    /// Bytes appended and not yet taken by the peer's socket.
    pub fn buffered(&self) -> usize {
        self.unsent() + self.0.in_flight.get()
    }

    /// Bytes appended and not yet handed to the kernel: provably unseen by the peer.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.0.buffer.borrow().len() + self.0.segments_bytes.get()
    }

    /// Takes the bytes that were never handed to the kernel, to be sent elsewhere.
    pub fn take_unsent(&self) -> Vec<u8> {
        let mut segments = self.0.segments.take();
        let last = std::mem::take(&mut *self.0.buffer.borrow_mut());
        let unsent = match self.0.segments_bytes.take() {
            0 => last,
            _ => {
                segments.push_back(last);
                segments.make_contiguous().concat()
            }
        };
        self.note_removed();
        unsent
    }

    /// Takes these out of the bytes that were never handed to the kernel, counted from the first of them, in order. Bytes in
    /// other segments stay where they are.
    pub fn remove_unsent(&self, ranges: &[Range<usize>]) {
        let mut segments = self.0.segments.borrow_mut();
        let mut buffer = self.0.buffer.borrow_mut();
        let mut end = 0;
        for piece in segments.iter_mut().chain([&mut *buffer]) {
            let start = end;
            end += piece.len();
            let inside = ranges.iter().filter(|range| range.start < end && range.end > start);
            remove(piece, inside.map(|range| range.start.max(start) - start..range.end.min(end) - start));
        }
        segments.retain(|segment| !segment.is_empty());
        self.0.segments_bytes.set(segments.iter().map(Vec::len).sum());
        drop((segments, buffer));
        self.note_removed();
    }

    /// There is less to send than before.
    fn note_removed(&self) {
        self.discharge_sent();
        if self.0.congested.get() && self.buffered() < self.0.marks.low {
            self.relieve();
        }
    }

    /// Drops the bytes that were never handed to the kernel.
    pub fn discard_unsent(&self) {
        self.0.segments_bytes.set(0);
        drop(self.0.segments.take());
        drop(self.0.buffer.take());
        self.note_removed();
    }

    /// True from the high-water mark until the low-water mark is passed again.
    pub fn is_congested(&self) -> bool {
        self.0.congested.get()
    }

    /// True once nothing appended here will be sent any more.
    pub fn is_closed(&self) -> bool {
        self.0.phase.get() == Phase::Closed
    }

    /// Total bytes appended so far.
    pub fn appended(&self) -> u64 {
        self.0.appended.get()
    }

    /// Where the connection counts its bytes.
    pub(crate) fn tally(&self) -> &Tally {
        &self.0.tally
    }

    /// Bytes that the socket has taken so far, which it does only while the peer reads.
    pub fn progress(&self) -> u64 {
        self.0.progress.get()
    }

    /// Waits until all is handed to the kernel; false if the connection is gone, or its peer has taken nothing for `idle`.
    pub async fn drained(&self, idle: Duration) -> bool {
        let (mut pause, mut waited, mut progress) = (DRAIN_PAUSE_MIN, Duration::ZERO, self.progress());
        while self.buffered() > 0 {
            if self.is_closed() || waited >= idle {
                return false;
            }
            crate::sleep(pause).await;
            waited = if self.progress() == progress { waited + pause } else { Duration::ZERO };
            (pause, progress) = ((pause * 2).min(DRAIN_PAUSE_MAX), self.progress());
        }
        true
    }

    /// Ready when the output is below its low-water mark or closed.
    pub fn poll_relieved(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_congested() || self.is_closed() {
            return Poll::Ready(());
        }
        let mut waiting = self.0.relieved.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// See [`Output::poll_relieved`].
    pub async fn relieved(&self) {
        poll_fn(|context| self.poll_relieved(context)).await;
    }

    /// Calls `hook` when a batch is handed to the kernel, once per loop turn with output, and again when it has left.
    pub fn on_flush(&self, hook: impl Fn() + 'static) {
        *self.0.on_flush.borrow_mut() = Some(Box::new(hook));
    }

    /// Sends what is buffered, then shuts the write side down.
    pub fn finish(&self) {
        if self.0.phase.get() != Phase::Open {
            return;
        }
        self.0.phase.set(Phase::Finishing);
        let is_plain = self.0.way.borrow().as_ref().is_some_and(|(_, link)| !link.is_tls());
        let is_unused = self.0.writer.get() == Writer::None;
        match is_unused && is_plain && self.buffered() == 0 {
            true => self.abort(),
            false => self.wake_writer(),
        }
    }

    /// Ends the writer: nothing more is sent. Buffered bytes stay and can still be taken.
    pub fn abort(&self) {
        let way = self.close();
        let before = self.0.writer.replace(Writer::Busy);
        match (before, way) {
            (Writer::Idle, _) => self.wake_idle_writer(),
            (Writer::None, Some((socket, _))) => socket.shut_down(Shutdown::Write),
            (Writer::None, None) | (Writer::Busy, _) => {}
        }
    }

    pub(crate) fn append_wire(&self, bytes: &[u8]) {
        if self.0.phase.get() != Phase::Closed {
            self.0.wire.borrow_mut().extend_from_slice(bytes);
            self.wake_writer();
        }
    }

    #[inline]
    fn is_writer_busy(&self) -> bool {
        self.0.writer.get() == Writer::Busy
    }

    /// The writer has something to do.
    fn wake_writer(&self) {
        match self.0.writer.replace(Writer::Busy) {
            Writer::Idle => self.wake_idle_writer(),
            Writer::Busy => {}
            Writer::None => {
                let Some((socket, link)) = self.0.way.borrow().clone() else { return };
                let task = crate::spawn(write_loop(socket, self.clone(), link));
                self.0.task.set(Some(task));
            }
        }
    }

    fn wake_idle_writer(&self) {
        if let Some(waker) = self.0.idle_writer.take() {
            waker.wake();
        }
    }

    /// The writer's task, if there is one. The caller waits for its end, or cancels it.
    pub(crate) fn take_writer(&self) -> Option<JoinHandle<()>> {
        self.0.task.take()
    }

    /// The next batch for the writer's task to send, or `None` when the output is finished or closed.
    ///
    /// # Errors
    /// The connection is gone, or TLS cannot go on.
    pub(crate) async fn next_outgoing(&self, link: &TlsLink) -> Option<io::Result<OutgoingBatch>> {
        poll_fn(|context| {
            self.0.writer.set(Writer::Busy);
            drop(self.0.idle_writer.take());
            if self.is_closed() {
                return Poll::Ready(None);
            }
            if let Some(rest) = self.0.rest.take() {
                return Poll::Ready(Some(*rest));
            }
            let is_sealable = !link.is_handshaking();
            let is_plain_ready = is_sealable && self.unsent() > 0;
            if is_plain_ready || !self.0.wire.borrow().is_empty() {
                return Poll::Ready(Some(self.seal(self.take_batch(is_sealable), link)));
            }
            if self.0.phase.get() == Phase::Finishing && (is_sealable || self.unsent() == 0) {
                return Poll::Ready(None);
            }
            self.0.idle_writer.set(Some(context.waker().clone()));
            self.0.writer.set(Writer::Idle);
            Poll::Pending
        })
        .await
    }

    /// `with_plain` is false while a TLS handshake runs.
    fn take_batch(&self, with_plain: bool) -> Batch {
        before_send::run();
        let (mut plain, mut later) = (Vec::new(), VecDeque::new());
        if with_plain {
            self.0.in_flight.set(self.unsent());
            plain = std::mem::take(&mut *self.0.buffer.borrow_mut());
            if self.0.segments_bytes.take() > 0 {
                later = self.0.segments.take();
                later.push_back(plain);
                plain = later.pop_front().unwrap_or_default();
            }
        }
        self.call_hook();
        Batch { plain, later, wire: std::mem::take(&mut *self.0.wire.borrow_mut()) }
    }

    fn seal(&self, batch: Batch, link: &TlsLink) -> io::Result<OutgoingBatch> {
        let outgoing = OutgoingBatch::seal(batch, link)?;
        self.0.tally.batch_begins(outgoing.plain_bytes);
        Ok(outgoing)
    }

    /// The sealed part of the batch has left; its buffer may be used again. Returns the rest, with its next part sealed.
    ///
    /// # Errors
    /// TLS cannot go on.
    pub(crate) fn sent(&self, mut outgoing: OutgoingBatch, link: &TlsLink) -> io::Result<Option<OutgoingBatch>> {
        give_output(outgoing.bytes);
        self.note_sent(outgoing.plain_bytes);
        let Some(plain) = outgoing.later.pop_front() else { return Ok(None) };
        // Records of TLS itself were sealed before this.
        let wire = std::mem::take(&mut *self.0.wire.borrow_mut());
        self.seal(Batch { plain, later: outgoing.later, wire }, link).map(Some)
    }

    /// So many plain bytes of a batch have left.
    fn note_sent(&self, plain_bytes: usize) {
        self.0.tally.batch_ends();
        self.0.in_flight.set(self.0.in_flight.get() - plain_bytes);
        self.note_removed();
        self.call_hook();
    }

    fn call_hook(&self) {
        if let Some(hook) = &*self.0.on_flush.borrow() {
            hook();
        }
    }

    /// So many bytes have left: proof of life of a slow peer.
    pub(crate) fn note_progress(&self, count: usize) {
        self.0.progress.set(self.0.progress.get() + count as u64);
        self.0.tally.socket_took(count);
    }

    /// Nothing more is sent. Returns its way to the peer, once.
    pub(crate) fn close(&self) -> Option<Way> {
        self.0.phase.set(Phase::Closed);
        self.0.wire.borrow_mut().clear();
        let way = self.0.way.take();
        drop(self.0.rest.take());
        self.charge_to(None);
        self.relieve();
        way
    }

    fn relieve(&self) {
        self.0.congested.set(false);
        for waker in self.0.relieved.take() {
            waker.wake();
        }
    }
}

/// Takes `ranges`, which are in order and apart, out of `bytes`.
pub fn remove(bytes: &mut Vec<u8>, ranges: impl IntoIterator<Item = Range<usize>>) {
    let (mut kept, mut at) = (0, 0);
    for range in ranges {
        if kept < at {
            bytes.copy_within(at..range.start, kept);
        }
        kept += range.start - at;
        at = range.end;
    }
    if kept < at {
        bytes.copy_within(at.., kept);
        bytes.truncate(bytes.len() - (at - kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_leaves_the_rest_in_order() {
        for (ranges, left) in [
            (&[][..], "abcdefgh"),
            (&[(0, 2)], "cdefgh"),
            (&[(6, 8)], "abcdef"),
            (&[(1, 2), (4, 6)], "acdgh"),
            (&[(0, 1), (1, 2), (3, 8)], "c"),
            (&[(0, 8)], ""),
        ] {
            let mut bytes = b"abcdefgh".to_vec();
            remove(&mut bytes, ranges.iter().map(|(start, end)| *start..*end));
            assert_eq!(bytes, left.as_bytes(), "{ranges:?}");
        }
    }
}
