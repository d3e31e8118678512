//! Subscribers on one thread, and a publisher on another: every message is looked at.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// Bytes of a message.
const PAYLOAD_BYTES: usize = 64;
/// Room for one read from a subscriber.
const READ_BYTES: usize = 64 << 10;
/// How long a confirmation, or the rest of the messages, may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Messages that are published together.
const BURST: Duration = Duration::from_millis(1);

/// Channel number `number`; all names are of one length, so that all frames are.
pub(super) fn channel(number: usize) -> String {
    format!("channel:{number:04}")
}

/// A message, up to its number: `prefix` and 20 digits begin the payload of every frame.
fn head(number: usize) -> Vec<u8> {
    let name = channel(number);
    format!("*3\r\n$7\r\nmessage\r\n${}\r\n{name}\r\n${PAYLOAD_BYTES}\r\n", name.len()).into_bytes()
}

fn payload(sequence: u64) -> String {
    format!("{sequence:020}{}", "x".repeat(PAYLOAD_BYTES - 20))
}

struct Subscriber {
    socket: TcpStream,
    channel: usize,
    /// The number of the next message.
    next: u64,
    buffer: Vec<u8>,
}

/// Connected subscribers, spread evenly over the channels.
pub(super) struct Audience {
    epoll: OwnedFd,
    subscribers: Vec<Subscriber>,
    heads: Vec<Vec<u8>>,
    frame_bytes: usize,
    /// Messages heard.
    pub(super) heard: u64,
}

impl Audience {
    /// Connects and subscribes all of them at `port`.
    pub(super) fn gather(port: u16, subscribers: usize, channels: usize) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let heads: Vec<Vec<u8>> = (0..channels).map(head).collect();
        let frame_bytes = heads[0].len() + PAYLOAD_BYTES + 2;
        let mut all = Vec::with_capacity(subscribers);
        for number in 0..subscribers {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).context("a subscriber cannot connect")?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            let name = channel(number % channels);
            write!(socket, "*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{name}\r\n", name.len())?;
            let wanted = format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{name}\r\n:1\r\n", name.len());
            let mut came = vec![0; wanted.len()];
            socket.read_exact(&mut came).context("a confirmation")?;
            ensure!(came == wanted.as_bytes(), "subscribe: {}", came.escape_ascii());
            socket.set_nonblocking(true)?;
            epoll::add(&epoll, &socket, EventData::new_u64(number as u64), EventFlags::IN)?;
            all.push(Subscriber { socket, channel: number % channels, next: 0, buffer: Vec::new() });
        }
        Ok(Self { epoll, subscribers: all, heads, frame_bytes, heard: 0 })
    }

    /// Reads until `total` messages were heard in all. Each must be the next of its channel, whole and unchanged.
    pub(super) fn hear(&mut self, total: u64) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(1024);
        let mut last = Instant::now();
        while self.heard < total {
            events.clear();
            let pause = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let before = self.heard;
            for event in &events {
                self.read(event.data.u64() as usize)?;
            }
            if self.heard > before {
                last = Instant::now();
            }
            ensure!(last.elapsed() < PATIENCE, "{} of {total} messages came, then none", self.heard);
        }
        ensure!(self.heard == total, "{} messages came, {total} were due", self.heard);
        Ok(())
    }

    fn read(&mut self, number: usize) -> Result<()> {
        let subscriber = &mut self.subscribers[number];
        subscriber.buffer.reserve(READ_BYTES);
        match recv(&subscriber.socket, spare_capacity(&mut subscriber.buffer), RecvFlags::empty()) {
            Ok((0, _)) => bail!("a subscriber was closed"),
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error).context("a subscriber was cut off"),
        }
        let head = &self.heads[subscriber.channel];
        let mut at = 0;
        while let Some(frame) = subscriber.buffer.get(at..at + self.frame_bytes) {
            let wanted = payload(subscriber.next);
            let is_right = frame.starts_with(head) && frame[head.len()..].starts_with(wanted.as_bytes());
            ensure!(is_right, "message {} was due, came {}", subscriber.next, frame.escape_ascii());
            subscriber.next += 1;
            self.heard += 1;
            at += self.frame_bytes;
        }
        subscriber.buffer.drain(..at);
        Ok(())
    }
}

/// Publishes `per_channel` messages on each channel, numbered from `first`, at `rate` messages per second in all.
pub(super) fn publish(port: u16, channels: usize, first: u64, per_channel: u64, rate: f64) -> Result<()> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).context("the publisher cannot connect")?;
    socket.set_nodelay(true)?;
    let mut replies = socket.try_clone()?;
    let total = per_channel * channels as u64;
    let reader = std::thread::spawn(move || -> Result<()> {
        replies.set_read_timeout(Some(PATIENCE))?;
        let (mut lines, mut chunk) = (0, vec![0; 64 << 10]);
        while lines < total {
            let count = replies.read(&mut chunk).context("a reply to PUBLISH")?;
            ensure!(count > 0, "the server closed the publisher");
            ensure!(!chunk[..count].contains(&b'-'), "PUBLISH: {}", chunk[..count].escape_ascii());
            lines += chunk[..count].iter().filter(|&&byte| byte == b'\n').count() as u64;
        }
        Ok(())
    });
    let begun = Instant::now();
    let mut sent = 0u64;
    let mut wire = Vec::new();
    while sent < total {
        let due = ((begun.elapsed().as_secs_f64() * rate) as u64).min(total);
        wire.clear();
        while sent < due {
            let name = channel((sent % channels as u64) as usize);
            let payload = payload(first + sent / channels as u64);
            write!(wire, "*3\r\n$7\r\nPUBLISH\r\n${}\r\n{name}\r\n${PAYLOAD_BYTES}\r\n{payload}\r\n", name.len())?;
            sent += 1;
        }
        socket.write_all(&wire).context("PUBLISH")?;
        std::thread::sleep(BURST);
    }
    reader.join().map_err(|_| anyhow::anyhow!("the publisher's reader failed"))?
}

/// How many connections are subscribed to each channel at the server: the fewest, and the most.
pub(super) fn subscriptions(port: u16, channels: usize) -> Result<(u64, u64)> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut wire = format!("*{}\r\n$6\r\nPUBSUB\r\n$6\r\nNUMSUB\r\n", channels + 2);
    for number in 0..channels {
        let name = channel(number);
        wire += &format!("${}\r\n{name}\r\n", name.len());
    }
    socket.write_all(wire.as_bytes())?;
    let (mut text, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let counts: Vec<u64> = String::from_utf8_lossy(&text)
            .split_inclusive("\r\n")
            .filter_map(|line| line.strip_prefix(':')?.strip_suffix("\r\n")?.parse().ok())
            .collect();
        if counts.len() == channels {
            let bounds = counts.iter().min().zip(counts.iter().max());
            return bounds.map(|(least, most)| (*least, *most)).context("no channel");
        }
        let count = socket.read(&mut chunk).context("PUBSUB NUMSUB")?;
        ensure!(count > 0, "the server closed");
        text.extend_from_slice(&chunk[..count]);
    }
}
