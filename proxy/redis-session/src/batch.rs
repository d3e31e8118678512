//! Plain commands that a client pipelines leave as one: they share a lane, an instant and a fate.

use weir_analysis::redis::{self, Args, Class, Command, Resolved};

use crate::{
    io::{Io, Sample, Ticket},
    ordering::ReplyMode,
    refusal,
    request::Request,
    state::State,
};

/// Commands next to each other in the input that wait to be sent together.
#[derive(Default)]
pub(crate) struct Batch {
    begin: usize,
    end: usize,
    count: u64,
    /// How many it may hold; with none, every command is judged alone.
    most: u64,
    /// The last of them, and how many there are of it in a row: not counted yet.
    last: Option<(&'static Command, u64)>,
}

impl Batch {
    /// An empty one at `begin` of the input.
    pub(crate) fn new(begin: usize, most: u64) -> Self {
        Self { begin, end: begin, count: 0, most, last: None }
    }

    /// It takes no more.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.count == self.most
    }

    /// Adds the command, if it needs no look of its own.
    #[inline]
    pub(crate) fn try_add(&mut self, resolved: Resolved, request: &Request<'_>, state: &State, io: &impl Io) -> bool {
        let Resolved::Known(command) = resolved else { return false };
        let is_plain = matches!(command.class, Class::Shared | Class::Cluster)
            && !request.is_inline
            && redis::check_arity(command, request.argc());
        if self.is_full() || !is_plain || !state.may_join(command, request) {
            return false;
        }
        self.count += 1;
        self.end += request.bytes.len();
        match &mut self.last {
            Some((last, times)) if last.id == command.id => *times += 1,
            last => Self::count(last.replace((command, 1)), io),
        }
        true
    }

    #[inline]
    fn count(commands: Option<(&'static Command, u64)>, io: &impl Io) {
        if let Some((command, times)) = commands {
            io.count(Some(command), times);
        }
    }
}

impl State {
    /// A batch for the commands from `begin` on, as large as may be.
    pub(crate) fn begin_batch(&mut self, begin: usize, io: &impl Io) -> Batch {
        self.is_sharded = io.is_sharded();
        let is_simple = self.follow_primary(io)
            && self.is_authenticated
            && !self.is_sharded
            && self.transaction.is_none()
            && self.tunnel.is_none()
            && self.subscriptions.is_none()
            && self.tracking.is_none()
            && io.cache().is_none()
            && self.pins.is_none()
            && self.streaming.is_none()
            && self.order.mode == ReplyMode::On
            && !self.has_waited()
            && !self.has_own_rate()
            && io.share().is_none_or(|share| !share.pause.is_on(io.now()))
            && !self.is_held_whole;
        if !is_simple {
            return Batch::new(begin, 0);
        }
        debug_assert!(!self.is_deep(), "no commands are taken then");
        let depth = u64::from(self.settings.pipeline_max) - self.order.outstanding();
        Batch::new(begin, io.batch_room(self.key()).min(depth))
    }

    /// Sends what the batch holds, and ends it.
    pub(crate) fn send_batch(&mut self, batch: &mut Batch, input: &[u8], io: &impl Io) {
        let Batch { begin, end, count, last, .. } = std::mem::take(batch);
        if count == 0 {
            return;
        }
        io.begin_command(Sample::default());
        Batch::count(last, io);
        // `batch_room` was not above what the rate of the listener leaves, and no other request was admitted since.
        if !io.admit(count) {
            return (0..count).for_each(|_| {
                io.count_shed(refusal::KNEE_REASON);
                self.error(io, refusal::KNEE);
            });
        }
        let ticket = Ticket { count, ..Ticket::new(self.order.next_number()) };
        match io.forward(self.key(), &input[begin..end], ticket) {
            Ok(()) => self.order.sent_many(count),
            Err(refusal) => (0..count).for_each(|_| {
                self.refuse(refusal, io);
            }),
        }
    }
}
