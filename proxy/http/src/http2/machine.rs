//! The codec of one connection, which the task that reads the connection and the tasks of its streams share.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    ops::Deref,
    rc::Rc,
    task::{Context, Waker},
};

use weir_base::time::{Time, turn};
use weir_engine::{Deadline, Output, before_send};
use weir_http_codec::ResponseHead;
use weir_http2_codec::{Connection, Event, ProtocolError, StreamId};

use super::flow::FlowAccount;

/// Places of streams that an idle connection keeps.
const PLACES_KEPT: usize = 4;

/// The tasks that wait for one stream, and the heads that wait for them.
#[derive(Default)]
struct StreamWaiters {
    reader: Option<Waker>,
    writer: Option<Waker>,
    heads: VecDeque<ReceivedHead>,
}

/// A head of a response.
pub(super) struct ReceivedHead {
    pub(super) head: ResponseHead,
    /// Neither a body nor trailers follow.
    pub(super) is_end: bool,
}

/// The connection as its task has it. Dropped, it ends: the last frames are sent, as far as there is room, and all streams are over. A task
/// that panics leaves none of them behind.
pub(super) struct DrivenMachine(Rc<Machine>);

impl DrivenMachine {
    pub(super) fn new(machine: Rc<Machine>) -> Self {
        Self(machine)
    }
}

impl Deref for DrivenMachine {
    type Target = Rc<Machine>;

    fn deref(&self) -> &Rc<Machine> {
        &self.0
    }
}

impl Drop for DrivenMachine {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// One connection. The frames of all streams that become ready in a turn leave in one send, at its end.
///
/// No borrow is held while a waker is woken or dropped: that may end a task, and with it a stream.
pub(super) struct Machine {
    codec: RefCell<Connection>,
    output: Output,
    pub(super) account: Rc<FlowAccount>,
    /// By [`StreamId::slot`].
    waiters: RefCell<Vec<StreamWaiters>>,
    /// Frames are sent before the next byte leaves the worker.
    is_due: Cell<bool>,
    /// When the codec has to look at its deadlines.
    deadline: Deadline,
    deadline_at: Cell<Option<Time>>,
    /// The rule by which the peer has ended the connection, until it is counted.
    pub(super) uncounted: Cell<Option<ProtocolError>>,
}

impl Machine {
    /// The machine of a connection with this output.
    pub(super) fn new(codec: Connection, output: Output) -> Rc<Self> {
        let machine = Self {
            codec: RefCell::new(codec),
            output,
            account: Rc::default(),
            waiters: RefCell::default(),
            is_due: Cell::new(false),
            deadline: weir_engine::deadline(),
            deadline_at: Cell::new(None),
            uncounted: Cell::new(None),
        };
        let machine = Rc::new(machine);
        machine.send_later();
        machine
    }

    /// Looks at the codec.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Connection) -> R) -> R {
        look(&self.codec.borrow())
    }

    /// Calls the codec. Frames that the call makes leave at the end of the turn.
    pub(super) fn with<R>(self: &Rc<Self>, call: impl FnOnce(&mut Connection) -> R) -> R {
        let result = call(&mut self.codec.borrow_mut());
        self.send_later();
        result
    }

    /// Takes received bytes. [`Machine::next_event`] tells what came of them.
    pub(super) fn receive(self: &Rc<Self>, bytes: &[u8]) {
        self.account.received(bytes.len());
        self.with(|codec| codec.receive(bytes, turn::now()));
    }

    /// Frames wait that the output of the connection has no room for.
    pub(super) fn is_waiting(&self) -> bool {
        self.output.is_congested() && !self.output.is_closed() && self.look(Connection::has_output)
    }

    /// So many frames wait that the peer has to take some of them first.
    pub(super) fn is_congested(&self) -> bool {
        self.is_waiting() && self.look(Connection::is_congested)
    }

    /// The next event of the connection. Tasks of streams are woken by theirs.
    pub(super) fn next_event(&self) -> Option<Event> {
        loop {
            let event = self.codec.borrow_mut().next_event()?;
            match event {
                Event::Readable(stream) => self.wake(stream, |waiters| waiters.reader.take()),
                Event::Writable(stream) => self.wake(stream, |waiters| waiters.writer.take()),
                Event::Response { stream, head, is_end } => self.wake(stream, |waiters| {
                    waiters.heads.push_back(ReceivedHead { head, is_end });
                    waiters.reader.take()
                }),
                Event::Reset(stream, _) => {
                    self.wake(stream, |waiters| waiters.reader.take());
                    self.wake(stream, |waiters| waiters.writer.take());
                    return Some(event);
                }
                event => return Some(event),
            }
        }
    }

    /// Moves frames to the output of the connection, as far as that has room.
    pub(super) fn send(&self) {
        let moves = |codec: &mut Connection| codec.has_output() && self.output.with(|into| codec.take_output(into));
        while !self.output.is_congested() && moves(&mut self.codec.borrow_mut()) {}
        let event = self.next_event();
        debug_assert!(event.is_none(), "sending makes streams writable, and no other event");
        if self.output.is_congested() {
            // The task of the connection waits for room.
            self.account.wake();
        }
    }

    fn send_later(self: &Rc<Self>) {
        if !self.is_due.get() && self.look(Connection::has_output) {
            self.is_due.set(true);
            let machine = self.clone();
            before_send(move || {
                machine.is_due.set(false);
                machine.send();
            });
        }
    }

    /// Sends frames that waited for room. The task of the connection does this first in each poll, and is woken for it.
    pub(super) fn poll_driven(&self, context: &mut Context<'_>) {
        self.account.register(context);
        if self.output.poll_relieved(context).is_ready() {
            self.send();
        }
    }

    /// Looks at the codec's deadlines. The task of the connection does this behind what it has received: that may be what they wait for.
    pub(super) fn poll_deadlines(self: &Rc<Self>, context: &mut Context<'_>) {
        while let Some(due) = self.look(Connection::next_deadline) {
            if self.deadline_at.replace(Some(due)) != Some(due) {
                self.deadline.set(due);
            }
            if self.deadline.poll_expired(context).is_pending() {
                return;
            }
            // One that is due at once begins to count with this.
            self.with(|codec| codec.expire(turn::now()));
            self.deadline_at.set(None);
        }
        if self.deadline_at.take().is_some() {
            self.deadline.clear();
        }
    }

    /// No stream is left and none will come, and all is sent.
    pub(super) fn is_over(&self) -> bool {
        self.look(|codec| codec.is_over() && !codec.has_output())
    }

    fn close(&self) {
        if !std::thread::panicking() {
            self.send();
        }
        self.codec.borrow_mut().close();
        let wakers = |waiters: &mut StreamWaiters| [waiters.reader.take(), waiters.writer.take()];
        let wakers: Vec<_> = self.waiters.borrow_mut().iter_mut().flat_map(wakers).flatten().collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes the task that reads a stream.
    pub(super) fn wake_reader(&self, stream: StreamId) {
        self.wake(stream, |waiters| waiters.reader.take());
    }

    fn wake(&self, stream: StreamId, take: impl FnOnce(&mut StreamWaiters) -> Option<Waker>) {
        let waker = self.waiters.borrow_mut().get_mut(stream.slot()).and_then(take);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes the task of `context` when something has arrived on the stream, or the stream has ended early.
    pub(super) fn register_reader(&self, stream: StreamId, context: &Context<'_>) {
        self.register(stream, context, |waiters| &mut waiters.reader);
    }

    /// Wakes the task of `context` when queued data of the stream has left, or the stream has ended early.
    pub(super) fn register_writer(&self, stream: StreamId, context: &Context<'_>) {
        self.register(stream, context, |waiters| &mut waiters.writer);
    }

    fn register(
        &self,
        stream: StreamId,
        context: &Context<'_>,
        place: impl FnOnce(&mut StreamWaiters) -> &mut Option<Waker>,
    ) {
        let mut all = self.waiters.borrow_mut();
        let Some(waiters) = all.get_mut(stream.slot()) else { return };
        let waker = place(waiters);
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            let before = waker.replace(context.waker().clone());
            drop(all);
            drop(before);
        }
    }

    /// The next head of a response that has arrived.
    pub(super) fn take_head(&self, stream: StreamId) -> Option<ReceivedHead> {
        self.waiters.borrow_mut().get_mut(stream.slot())?.heads.pop_front()
    }

    /// The stream is the shell's from now on.
    pub(super) fn enter(&self, stream: StreamId) {
        let mut all = self.waiters.borrow_mut();
        if all.len() <= stream.slot() {
            all.resize_with(stream.slot() + 1, StreamWaiters::default);
        }
    }

    /// Gives the stream up, with a reset if it is not over.
    pub(super) fn forget(self: &Rc<Self>, stream: StreamId) {
        let waiters = self.waiters.borrow_mut().get_mut(stream.slot()).map(std::mem::take);
        drop(waiters);
        let (held, is_idle) = self.with(|codec| {
            let held = codec.held_by(stream);
            codec.forget(stream);
            (held, codec.open_streams() == 0)
        });
        self.account.dropped(held);
        if is_idle {
            let mut all = self.waiters.borrow_mut();
            all.truncate(PLACES_KEPT);
            all.shrink_to(PLACES_KEPT);
        }
    }
}
