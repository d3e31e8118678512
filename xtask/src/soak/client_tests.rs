//! The judge is judged: clients against servers that misbehave in one known way.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, Habits, Pulse};
use super::tally::{Tally, total};

/// What the server does at the command with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Executes, answers nothing, closes.
    LoseReply,
    /// Neither executes nor answers, closes.
    CloseBefore,
    /// Executes, answers with the first byte, closes.
    CutReply,
    /// Answers a read with an older value.
    OldValue,
    /// Answers a read with the value of another client.
    ForeignValue,
    /// Answers with an error and does not execute.
    Refuse,
    /// Answers twice.
    AnswerTwice,
}

const AT: u64 = 40;
const END: u64 = 400;

struct Server {
    fault: Fault,
    commands: AtomicU64,
    is_done: AtomicBool,
    store: Mutex<HashMap<Vec<u8>, Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        // Replies that wait for acknowledgements would only make the test slow.
        stream.set_nodelay(true)?;
        let mut writer = stream;
        while let Some(words) = read_command(&mut reader)? {
            let count = self.commands.fetch_add(1, Ordering::Relaxed) + 1;
            self.stop.fetch_or(count >= END, Ordering::Relaxed);
            let is_read = words[0] == b"GET";
            let needs_read = matches!(self.fault, Fault::OldValue | Fault::ForeignValue);
            let is_due = self.fault != Fault::None && count >= AT && is_read == needs_read;
            let fault = if is_due && !self.is_done.swap(true, Ordering::Relaxed) { self.fault } else { Fault::None };
            match fault {
                Fault::CloseBefore => return Ok(()),
                Fault::Refuse => writer.write_all(b"-ERR not now\r\n")?,
                Fault::ForeignValue => write_bulk(&mut writer, b"99:1:")?,
                Fault::LoseReply => {
                    self.execute(&words, false);
                    return Ok(());
                }
                _ => {
                    let reply = self.execute(&words, fault == Fault::OldValue);
                    if fault == Fault::CutReply {
                        return writer.write_all(&reply[..1]);
                    }
                    writer.write_all(&reply)?;
                    if fault == Fault::AnswerTwice {
                        writer.write_all(&reply)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn execute(&self, words: &[Vec<u8>], wants_old: bool) -> Vec<u8> {
        let mut store = self.store.lock().unwrap();
        let versions = store.entry(words[1].clone()).or_default();
        if words[0] == b"SET" {
            versions.push(words[2].clone());
            return b"+OK\r\n".to_vec();
        }
        let mut reply = Vec::new();
        match versions.len().checked_sub(1 + usize::from(wants_old)) {
            Some(index) => write_bulk(&mut reply, &versions[index]).unwrap(),
            None => reply.extend_from_slice(b"$-1\r\n"),
        }
        reply
    }
}

fn write_bulk(out: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    let mut reply = format!("${}\r\n", bytes.len()).into_bytes();
    reply.extend_from_slice(bytes);
    reply.extend_from_slice(b"\r\n");
    out.write_all(&reply)
}

fn read_command(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Vec<Vec<u8>>>> {
    let Some(count) = read_number(reader)? else { return Ok(None) };
    let mut words = Vec::new();
    for _ in 0..count {
        let Some(length) = read_number(reader)? else { return Ok(None) };
        let mut word = vec![0; length + 2];
        reader.read_exact(&mut word)?;
        word.truncate(length);
        words.push(word);
    }
    Ok(Some(words))
}

fn read_number(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<usize>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line.trim_end().get(1..).and_then(|digits| digits.parse().ok()))
}

/// Runs one client against a server with this fault until the server has seen enough commands.
fn tally_of(fault: Fault, think: Duration) -> Tally {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = Arc::new(AtomicBool::new(false));
    let server = Arc::new(Server {
        fault,
        commands: AtomicU64::new(0),
        is_done: AtomicBool::new(false),
        store: Mutex::default(),
        stop: Arc::clone(&stop),
    });
    let accepting = Arc::clone(&server);
    // It ends with the test process: nothing it holds outlives that.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&accepting);
            thread::spawn(move || server.serve(stream));
        }
    });
    let habits = Habits { port, think, forgets: false };
    let tally = Client::new(3, habits, &Pulse::default(), Instant::now()).run(&stop);
    assert!(tally.right > 100, "{tally:?}");
    assert!(fault == Fault::None || server.is_done.load(Ordering::Relaxed));
    tally
}

#[test]
fn a_good_server_gives_nothing_to_complain_about() {
    let tally = tally_of(Fault::None, Duration::ZERO);
    assert_eq!((tally.visible_errors(), tally.closed, tally.crossed), (0, 0, 0));
}

#[test]
fn a_write_that_was_executed_without_a_reply_is_lost() {
    let tally = tally_of(Fault::LoseReply, Duration::ZERO);
    assert_eq!((tally.lost, tally.cut, total(&tally.wrong)), (1, 0, 0), "{tally:?}");
}

#[test]
fn a_request_that_was_neither_executed_nor_answered_only_crossed_the_close() {
    let tally = tally_of(Fault::CloseBefore, Duration::ZERO);
    assert_eq!((tally.visible_errors(), tally.closed), (0, 1), "{tally:?}");
    assert!(tally.crossed >= 1);
}

#[test]
fn a_reply_that_stops_in_the_middle_is_cut() {
    let tally = tally_of(Fault::CutReply, Duration::ZERO);
    assert_eq!((tally.cut, tally.lost, total(&tally.wrong)), (1, 0, 0), "{tally:?}");
}

#[test]
fn old_and_foreign_values_are_wrong() {
    for fault in [Fault::OldValue, Fault::ForeignValue] {
        let tally = tally_of(fault, Duration::ZERO);
        assert_eq!((total(&tally.wrong), tally.lost, tally.cut), (1, 0, 0), "{fault:?}: {tally:?}");
    }
}

#[test]
fn an_error_reply_is_counted_by_its_text() {
    let tally = tally_of(Fault::Refuse, Duration::ZERO);
    assert_eq!(tally.errors.get("ERR not now"), Some(&1));
    assert_eq!((tally.broken(), tally.closed), (0, 0), "{tally:?}");
}

#[test]
fn one_reply_too_many_does_not_pass() {
    for think in [Duration::ZERO, Duration::from_millis(1)] {
        let tally = tally_of(Fault::AnswerTwice, think);
        assert!(tally.broken() >= 1, "{tally:?}");
    }
}
