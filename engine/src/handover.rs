//! Messages with open descriptors between two processes on one machine.
//!
//! A pair of Unix sockets of type `SOCK_SEQPACKET`: each message stays one, and descriptors ride along (`SCM_RIGHTS`,
//! unix(7)). The other end is handed to a child as its standard input, so nothing has to be inherited by number, no
//! close-on-exec flag has to be taken away (which a child started at the same time would inherit too), and nothing lies
//! in the file system for others to open.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};

/// Descriptors that one message may carry. Default 64: a quarter of what the kernel takes (`SCM_MAX_FD`, 253).
pub const DESCRIPTORS_MAX: usize = 64;

/// Bytes of one message. Default 64 KiB: below the default send buffer of a Unix socket (`net.core.wmem_default`).
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The received message.
#[derive(Debug)]
pub enum Received {
    /// A message and the descriptors that came with it.
    Message(Vec<u8>, Vec<OwnedFd>),
    /// The other end is closed: its process has ended, or has nothing more to say.
    End,
    /// Nothing within the time set by [`Channel::set_patience`].
    Nothing,
}

/// One end of the pair.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// The second end of [`Channel::pair`], for who stays in this process.
impl From<OwnedFd> for Channel {
    fn from(end: OwnedFd) -> Self {
        Self(end)
    }
}

impl Channel {
    /// A pair: this process keeps the first end, the second is for the standard input of another.
    ///
    /// # Errors
    /// As `socketpair(2)`.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// The end that this process got as its standard input, which is `/dev/null` from then on.
    ///
    /// # Errors
    /// Standard input is something else.
    pub fn from_stdin() -> io::Result<Self> {
        let stdin = io::stdin();
        let is_channel = sockopt::socket_domain(&stdin).is_ok_and(|family| family == AddressFamily::UNIX)
            && sockopt::socket_type(&stdin).is_ok_and(|kind| kind == SocketType::SEQPACKET);
        if !is_channel {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "standard input is not an upgrade channel"));
        }
        let channel = Self(stdin.as_fd().try_clone_to_owned()?);
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Ok(channel)
    }

    /// How long [`send`](Self::send) and [`receive`](Self::receive) wait.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn set_patience(&self, limit: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Recv, limit)?;
        sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Send, limit)?;
        Ok(())
    }

    /// Sends one message with at most [`DESCRIPTORS_MAX`] descriptors, of which the receiver gets copies.
    ///
    /// # Errors
    /// `InvalidInput` for a message that is too large; `WouldBlock` when the patience is over and the other end has not read;
    /// else as `sendmsg(2)`: `BrokenPipe` if the other end is closed, `ConnectionReset` if it was closed with messages unread.
    pub fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if message.len() > MESSAGE_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too large"));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let parts = [IoSlice::new(message)];
        rustix::io::retry_on_intr(|| sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// `InvalidData` if the message or its descriptors did not fit (no room for more open files, for example); else as
    /// `recvmsg(2)`.
    pub fn receive(&self) -> io::Result<Received> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut is_reset = false;
        let got = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(Received::Nothing),
                // It ended with messages unread. The kernel says so once, in front of what it had sent before its end.
                Err(rustix::io::Errno::CONNRESET) if !is_reset => is_reset = true,
                Err(rustix::io::Errno::CONNRESET) => return Ok(Received::End),
                other => break other?,
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of the upgrade channel was cut"));
        }
        // No message is empty, so this is the end.
        if got.bytes == 0 {
            return Ok(Received::End);
        }
        bytes.truncate(got.bytes);
        Ok(Received::Message(bytes, descriptors))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (ours, theirs) = Channel::pair().expect("a pair");
        (ours, Channel(theirs))
    }

    #[test]
    fn a_listening_socket_crosses_with_its_queue() {
        let (ours, theirs) = pair();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("waits in the queue");
        client.write_all(b"early").expect("sent before anybody accepts");
        ours.send(b"one", &[listener.as_fd()]).expect("sent");
        drop(listener);
        let Ok(Received::Message(message, mut descriptors)) = theirs.receive() else { panic!("a message") };
        assert_eq!((message.as_slice(), descriptors.len()), (b"one".as_slice(), 1));
        let listener = TcpListener::from(descriptors.remove(0));
        let (mut accepted, _) = listener.accept().expect("what waited is still there");
        let mut bytes = [0; 5];
        accepted.read_exact(&mut bytes).expect("its bytes too");
        assert_eq!(&bytes, b"early");
    }

    #[test]
    fn messages_stay_apart_and_the_end_is_reported() {
        let (ours, theirs) = pair();
        theirs.set_patience(Some(Duration::from_millis(10))).expect("set");
        assert!(matches!(theirs.receive(), Ok(Received::Nothing)));
        ours.send(b"a", &[]).expect("sent");
        ours.send(&[7; MESSAGE_BYTES_MAX], &[]).expect("sent");
        assert!(matches!(theirs.receive(), Ok(Received::Message(message, _)) if message == b"a"));
        assert!(matches!(theirs.receive(), Ok(Received::Message(message, _)) if message.len() == MESSAGE_BYTES_MAX));
        drop(ours);
        assert!(matches!(theirs.receive(), Ok(Received::End)));
        assert_eq!(theirs.send(b"x", &[]).expect_err("nobody there").kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn last_words_arrive_from_an_end_that_did_not_read_everything() {
        let null = std::fs::File::open("/dev/null").expect("there");
        let (ours, theirs) = pair();
        ours.send(b"never read", &[]).expect("sent");
        theirs.send(b"why", &[null.as_fd()]).expect("sent");
        drop(theirs);
        let Ok(Received::Message(message, descriptors)) = ours.receive() else { panic!("its last words") };
        assert_eq!((message.as_slice(), descriptors.len()), (b"why".as_slice(), 1));
        assert!(matches!(ours.receive(), Ok(Received::End)));
        // The peer that sends first sees the reset, and then the same.
        let (ours, theirs) = pair();
        ours.send(b"never read", &[]).expect("sent");
        theirs.send(b"why", &[]).expect("sent");
        drop(theirs);
        assert_eq!(ours.send(b"more", &[]).expect_err("nobody there").kind(), io::ErrorKind::ConnectionReset);
        assert!(matches!(ours.receive(), Ok(Received::Message(message, _)) if message == b"why"));
        assert!(matches!(ours.receive(), Ok(Received::End)));
    }

    #[test]
    fn as_many_descriptors_as_are_allowed_cross_and_no_more() {
        let (ours, theirs) = pair();
        let null = std::fs::File::open("/dev/null").expect("there");
        let many = vec![null.as_fd(); DESCRIPTORS_MAX + 1];
        ours.send(b"full", &many[1..]).expect("sent");
        assert!(matches!(theirs.receive(), Ok(Received::Message(_, got)) if got.len() == DESCRIPTORS_MAX));
        assert_eq!(ours.send(b"more", &many).expect_err("too many").kind(), io::ErrorKind::InvalidInput);
        let long = vec![0; MESSAGE_BYTES_MAX + 1];
        assert_eq!(ours.send(&long, &[]).expect_err("too long").kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_reader_that_does_not_read_holds_up_nobody_for_ever() {
        let (ours, _theirs) = pair();
        ours.set_patience(Some(Duration::from_millis(10))).expect("set");
        let message = vec![0; MESSAGE_BYTES_MAX];
        let refusal = (0..1_000).find_map(|_| ours.send(&message, &[]).err()).expect("the buffer is finite");
        assert_eq!(refusal.kind(), io::ErrorKind::WouldBlock);
    }
}
