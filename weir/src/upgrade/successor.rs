//! The new process as the old one sees it.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use weir_engine::handover::Channel;

use super::{
    VARIABLE,
    connection::MovedConnection,
    message::{Message, PeerEvent, SocketOf, in_messages, receive},
    orders::{Order, order_to_serve},
    program::Program,
};

/// Between two looks whether the new process has ended or is no longer wanted.
const LOOK: Duration = Duration::from_millis(50);
/// How long a process that has closed its channel may take to end before it is killed.
const END_TIME: Duration = Duration::from_secs(1);

/// Addresses of listeners, as this process's configuration has them.
pub struct RequiredListeners {
    /// It does not have these.
    pub untaken: Vec<String>,
    /// It goes on with the connections of these.
    pub movable: Vec<String>,
    /// It opens the journal of budgets in this directory.
    pub state: Option<String>,
}

/// A process on its way to serve. Dropped before [`Successor::serves`] it is killed.
pub struct Successor<'a> {
    child: Option<Child>,
    channel: Arc<Channel>,
    deadline: Instant,
    limit: Duration,
    is_cancelled: &'a AtomicBool,
    /// It has the order to serve.
    is_let: bool,
    /// Its process id as it says itself: what was started may be a wrapper.
    pid: u32,
}

impl<'a> Successor<'a> {
    /// Starts `program` and gives it `sockets`. It has to serve within `limit`.
    ///
    /// # Errors
    /// In words.
    pub fn start(
        program: &Program,
        hello: Message,
        sockets: &[(SocketOf, OwnedFd)],
        limit: Duration,
        is_cancelled: &'a AtomicBool,
    ) -> Result<Self, String> {
        let no_channel = |error: io::Error| format!("cannot make a channel to the new process: {error}");
        let (channel, theirs) = Channel::pair().map_err(no_channel)?;
        channel.set_patience(Some(LOOK)).map_err(no_channel)?;
        let own = std::process::id();
        let child = Command::new(program.path())
            .arg0(&program.name)
            .args(&program.arguments)
            .env(VARIABLE, own.to_string())
            .stdin(Stdio::from(theirs))
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.path().display()))?;
        let deadline = Instant::now() + limit;
        let pid = child.id();
        let channel = Arc::new(channel);
        let mut new = Self { child: Some(child), channel, deadline, limit, is_cancelled, is_let: false, pid };
        new.say(&hello, &[])?;
        let sockets: Vec<_> = sockets.iter().map(|(of, socket)| (of.clone(), socket.as_fd())).collect();
        for (message, descriptors) in in_messages(&sockets) {
            new.say(&message, &descriptors)?;
        }
        Ok(new)
    }

    /// Waits until it could serve: what it wants.
    ///
    /// # Errors
    /// In words: it failed, ended, took too long, or the upgrade was called off.
    pub fn wait_ready(&mut self) -> Result<RequiredListeners, String> {
        match self.wait()? {
            Message::Ready { pid, untaken, movable, state } => {
                self.pid = pid;
                Ok(RequiredListeners { untaken, movable, state })
            }
            other => Err(format!("the new process said {other:?} before it was ready")),
        }
    }

    /// Lets it serve, with the orders of operators that hold, and waits until it does: from then on it is on its own. Its process id, and the channel,
    /// whose end will tell it that this process has ended.
    ///
    /// Once it was let serve the upgrade cannot be called off any more: it may have accepted clients.
    ///
    /// # Errors
    /// As [`wait_ready`](Self::wait_ready).
    pub fn serves(mut self, orders: Vec<Order>) -> Result<(u32, Arc<Channel>), String> {
        self.look()?;
        let (take, rest) = order_to_serve(orders);
        self.say(&take, &[])?;
        self.is_let = true;
        for message in rest {
            self.say(&message, &[])?;
        }
        match self.wait()? {
            Message::Serving => {}
            other => return Err(format!("the new process said {other:?} and was to serve")),
        }
        // This process does not wait for it any more; when it ends, the new one is whoever's who takes in orphans.
        self.child = None;
        Ok((self.pid, self.channel.clone()))
    }

    fn say(&mut self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
        loop {
            match message.send(&self.channel, descriptors) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.look()?,
                Err(error) if is_gone(&error) => return Err(self.last_words()),
                Err(error) => return Err(format!("cannot speak to the new process: {error}")),
            }
        }
    }

    fn wait(&mut self) -> Result<Message, String> {
        loop {
            match receive(&self.channel) {
                Ok(PeerEvent::Message(Message::Failed { reason }, _)) => return Err(reason),
                Ok(PeerEvent::Message(message, _)) => return Ok(message),
                Ok(PeerEvent::Nothing) => self.look()?,
                Ok(PeerEvent::End) => return Err(self.ended()),
                Err(error) => return Err(format!("cannot hear the new process: {error}")),
            }
        }
    }

    /// Whether it is worth while to go on waiting.
    fn look(&mut self) -> Result<(), String> {
        // Sequentially consistent, as the gateway's flag of being under way: of a drain and an upgrade that begin at the same
        // moment one sees the other.
        if !self.is_let && self.is_cancelled.load(Ordering::SeqCst) {
            return Err("this process got a signal to stop meanwhile".to_owned());
        }
        if Instant::now() >= self.deadline {
            let limit = self.limit;
            return Err(format!("the new process did not serve within {limit:?} (upgrade.timeout) and was killed"));
        }
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(Some(_))) => Err(self.last_words()),
            _ => Ok(()),
        }
    }

    /// The reason that it left in the channel, if it had the time to.
    fn last_words(&mut self) -> String {
        loop {
            match receive(&self.channel) {
                Ok(PeerEvent::Message(Message::Failed { reason }, _)) => return reason,
                Ok(PeerEvent::Message(..)) => {}
                Ok(PeerEvent::End | PeerEvent::Nothing) | Err(_) => return self.ended(),
            }
        }
    }

    fn ended(&mut self) -> String {
        let begun = Instant::now();
        let Some(child) = &mut self.child else { return "the new process has ended".to_owned() };
        while begun.elapsed() < END_TIME {
            match child.try_wait() {
                Ok(Some(status)) => {
                    return format!(
                        "the new process ended with {status} before it served; its standard error may say why"
                    );
                }
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        "the new process closed its channel; is it a Weir that supports upgrades?".to_owned()
    }
}

/// The other process has closed its end, with or without messages unread.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Sends one connection to the process that serves now, and waits for that until `is_over`.
///
/// # Errors
/// That process has ended; `WouldBlock`: it is over.
pub fn send_connection(
    channel: &Channel,
    connection: MovedConnection,
    socket: &OwnedFd,
    is_over: &AtomicBool,
) -> io::Result<()> {
    let message = Message::Connection(Box::new(connection));
    loop {
        match message.send(channel, &[socket.as_fd()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_over.load(Ordering::Relaxed) => {}
            other => return other,
        }
    }
}

impl Drop for Successor<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended, and then it is only to be waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the end of a channel whose other end the test has.
    fn successor(is_cancelled: &AtomicBool) -> (Successor<'_>, Channel) {
        let (channel, theirs) = Channel::pair().expect("a pair");
        channel.set_patience(Some(Duration::from_millis(1))).expect("set");
        let limit = Duration::from_secs(60);
        let deadline = Instant::now() + limit;
        let channel = Arc::new(channel);
        let new = Successor { child: None, channel, deadline, limit, is_cancelled, is_let: false, pid: 1 };
        (new, Channel::from(theirs))
    }

    fn ready() -> Message {
        Message::Ready { pid: 7, untaken: Vec::new(), movable: Vec::new(), state: None }
    }

    #[test]
    fn a_process_that_is_ready_is_not_let_serve_after_the_order_to_stop() {
        let is_cancelled = AtomicBool::new(false);
        let (mut new, theirs) = successor(&is_cancelled);
        ready().send(&theirs, &[]).expect("sent");
        new.wait_ready().expect("ready");
        is_cancelled.store(true, Ordering::SeqCst);
        assert!(new.serves(Vec::new()).is_err_and(|reason| reason.contains("signal to stop")));
        assert!(matches!(receive(&theirs), Ok(PeerEvent::End)), "the order to take over was sent");
    }

    #[test]
    fn a_process_that_was_let_serve_is_waited_for_whatever_is_ordered_then() {
        let is_cancelled = AtomicBool::new(false);
        let (mut new, theirs) = successor(&is_cancelled);
        ready().send(&theirs, &[]).expect("sent");
        new.wait_ready().expect("ready");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(receive(&theirs), Ok(PeerEvent::Message(Message::Take { .. }, _))));
                is_cancelled.store(true, Ordering::SeqCst);
                // Longer than between two looks.
                std::thread::sleep(Duration::from_millis(20));
                Message::Serving.send(&theirs, &[]).expect("sent");
            });
            assert_eq!(new.serves(Vec::new()).map(|(pid, _)| pid), Ok(7));
        });
    }

    #[test]
    fn the_reason_arrives_from_a_process_that_did_not_read_everything() {
        let is_cancelled = AtomicBool::new(false);
        for speaks_again in [false, true] {
            let (mut new, theirs) = successor(&is_cancelled);
            new.say(&Message::Take { pauses: Vec::new(), more: 0 }, &[]).expect("sent");
            Message::failed("not today").send(&theirs, &[]).expect("sent");
            drop(theirs);
            let result = if speaks_again {
                new.say(&Message::Take { pauses: Vec::new(), more: 0 }, &[])
            } else {
                new.wait().map(drop)
            };
            assert_eq!(result, Err("not today".to_owned()));
        }
    }
}
