//! A look at one server: the connection for it, the query and its reply.

use weir_engine::Stream;
use weir_postgres_codec::{
    backend::{self, DataRow, ErrorFields},
    frame, frontend, sqlstate,
};
use weir_upstream::pooled::LoginError;

use crate::{server::PostgresServer, service::PostgresUpstream};

/// Longest reply to a look: four short columns.
const REPLY_BYTES_MAX: usize = 16 * 1024;

/// Whether the server is in recovery; how far it has written or replayed; the file of a primary, whose name begins with the timeline; and the
/// timeline of a standby. The last is that of the log that it receives, which only members of `pg_monitor` see, or else that of its last
/// restartpoint: `pg_walfile_name` is refused there.
const QUERY: &[u8] = b"SELECT pg_catalog.pg_is_in_recovery(), \
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() \
    ELSE pg_catalog.pg_current_wal_insert_lsn() END, \
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL \
    ELSE pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()) END, \
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN (SELECT GREATEST(c.timeline_id, r.min_recovery_end_timeline, \
    (SELECT w.received_tli FROM pg_catalog.pg_stat_wal_receiver w LIMIT 1)) \
    FROM pg_catalog.pg_control_checkpoint() c, pg_catalog.pg_control_recovery() r) END";
/// For servers that keep their control file from the user: timelines of standbys stay unknown.
const POSITIONS_QUERY: &[u8] = b"SELECT pg_catalog.pg_is_in_recovery(), \
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() \
    ELSE pg_catalog.pg_current_wal_insert_lsn() END, \
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL \
    ELSE pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()) END";
/// For servers without these functions: their positions stay unknown.
const SHORT_QUERY: &[u8] = b"SELECT pg_catalog.pg_is_in_recovery()";
/// From the longest to the shortest. A connection whose server lacks a part of one goes on with the next.
const QUERIES: [&[u8]; 3] = [QUERY, POSITIONS_QUERY, SHORT_QUERY];
/// SQLSTATEs of a server that lacks a function, or keeps it from the user. Any other error is one of the moment.
const LACKING: [&str; 3] =
    [sqlstate::UNDEFINED_FUNCTION, sqlstate::FEATURE_NOT_SUPPORTED, sqlstate::INSUFFICIENT_PRIVILEGE];

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Primary { timeline: Option<u32>, position: Option<u64> },
    Standby { timeline: Option<u32>, replayed: Option<u64> },
    Silent,
}

/// A connection for looks.
#[derive(Default)]
pub(super) struct Look {
    pub(super) kept: Option<Stream>,
    /// The first of [`QUERIES`] that the server of the connection has all functions for.
    length: usize,
}

impl Look {
    pub(super) async fn at(&mut self, upstream: &PostgresUpstream, number: usize) -> Result<Looked, LoginError> {
        // A connection that was idle may be gone for reasons of its own.
        if let Some(mut stream) = self.kept.take()
            && let Ok(looked) = self.query(&mut stream).await
        {
            self.kept = Some(stream);
            return Ok(looked);
        }
        let opened = upstream.connect_aside(number).await;
        let (mut stream, target) = opened.map_err(|refusal| std::io::Error::other(refusal.name()))?;
        upstream.protocol().log_in_aside(&mut stream, &target).await?;
        // Perhaps another server, or another version of it.
        self.length = 0;
        let looked = self.query(&mut stream).await?;
        self.kept = Some(stream);
        Ok(looked)
    }

    async fn query(&mut self, stream: &mut Stream) -> std::io::Result<Looked> {
        let mut length = self.length;
        loop {
            let is_last = length + 1 == QUERIES.len();
            match ask(stream, QUERIES[length]).await? {
                Reply::Looked(looked) => return Ok(looked),
                Reply::Failed { is_lacking } if !is_last => {
                    length += 1;
                    // An error of the moment, as a timeout, makes this look alone shorter.
                    if is_lacking {
                        self.length = length;
                    }
                }
                Reply::Failed { .. } => {
                    return Err(std::io::Error::other("the server does not say whether it is in recovery"));
                }
            }
        }
    }
}

/// The reply to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Looked(Looked),
    /// An error, or a row that says nothing. `is_lacking`: the server does not have what the query asks for.
    Failed {
        is_lacking: bool,
    },
}

async fn ask(stream: &mut Stream, query: &[u8]) -> std::io::Result<Reply> {
    stream.output.with(|out| frontend::query(out, query));
    let (mut input, mut reply) = (Vec::new(), Reply::Failed { is_lacking: false });
    loop {
        if let Some(reply) = take_reply(&mut input, &mut reply)? {
            return Ok(reply);
        }
        match stream.reader.receive().await? {
            Some(chunk) if input.len() + chunk.len() <= REPLY_BYTES_MAX => input.extend_from_slice(&chunk),
            _ => return Err(broken()),
        }
    }
}

fn broken() -> std::io::Error {
    std::io::Error::other("the server breaks the protocol")
}

/// Takes whole messages from the front of `input`. `Some`: the reply is over.
fn take_reply(input: &mut Vec<u8>, reply: &mut Reply) -> std::io::Result<Option<Reply>> {
    while let Some(head) = frame::head(input).map_err(|_| broken())? {
        if input.len() < head.whole() {
            break;
        }
        let body = &input[frame::HEAD_BYTES..head.whole()];
        match head.tag {
            backend::tag::DATA_ROW => {
                let looked = read(DataRow::read(body).map_err(|_| broken())?);
                *reply = looked.map_or(Reply::Failed { is_lacking: true }, Reply::Looked);
            }
            backend::tag::ERROR => {
                let fields = ErrorFields::read(body).map_err(|_| broken())?;
                let is_lacking = fields.sqlstate().is_some_and(|code| LACKING.contains(&code));
                *reply = Reply::Failed { is_lacking };
            }
            backend::tag::READY_FOR_QUERY => return Ok(Some(*reply)),
            _ => {}
        }
        input.drain(..head.whole());
    }
    Ok(None)
}

fn read(row: DataRow<'_>) -> Option<Looked> {
    let mut values = row.iter();
    let is_standby = values.next()?? == b"t";
    let position = values.next().flatten().and_then(position);
    let file = values.next().flatten().and_then(|name| std::str::from_utf8(name.get(..8)?).ok());
    let timeline = values.next().flatten().and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
    Some(match is_standby {
        true => Looked::Standby { timeline, replayed: position },
        false => {
            let position = position.map(end_of_last_record);
            let timeline = file.and_then(|text| u32::from_str_radix(text, 16).ok());
            Looked::Primary { timeline, position }
        }
    })
}

/// The position up to which a standby replays when `insert` is the next position to be written. At the begin of a page that is behind
/// the head of the page (24 bytes, 40 in the first page of a segment), which belongs to no record (`XLogBytePosToRecPtr`,
/// `SizeOfXLogShortPHD`, `SizeOfXLogLongPHD`). An idle primary would be ahead of its standbys for ever.
fn end_of_last_record(insert: u64) -> u64 {
    const PAGE_BYTES: u64 = 8 * 1024;
    const SEGMENT_BYTES_MIN: u64 = 1024 * 1024;
    match (insert % PAGE_BYTES, insert % SEGMENT_BYTES_MIN) {
        (24, _) => insert - 24,
        (40, 40) => insert - 40,
        _ => insert,
    }
}

/// The number of a position as PostgreSQL prints it: `16/B374D848`.
fn position(text: &[u8]) -> Option<u64> {
    let (high, low) = std::str::from_utf8(text).ok()?.split_once('/')?;
    Some(u64::from_str_radix(high, 16).ok()? << 32 | u64::from(u32::from_str_radix(low, 16).ok()?))
}

impl PostgresServer {
    /// Logs a connection for looks in.
    async fn log_in_aside(
        &self,
        stream: &mut Stream,
        target: &weir_upstream::pooled::LoginTarget,
    ) -> Result<(), LoginError> {
        crate::server::log_in(stream, target, self.own_identity(), self.keys()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use weir_postgres_codec::{TransactionStatus, backend::ErrorReport};

    use super::*;

    #[test]
    fn only_an_error_of_a_missing_function_makes_looks_shorter() {
        let reply = |code: &str| {
            let mut bytes = Vec::new();
            backend::error(&mut bytes, &ErrorReport::error(code, "no"));
            let mut reply = Reply::Failed { is_lacking: false };
            assert_eq!(take_reply(&mut bytes, &mut reply).expect("whole messages"), None, "the end is to come");
            backend::ready_for_query(&mut bytes, TransactionStatus::Idle);
            take_reply(&mut bytes, &mut reply).expect("whole messages")
        };
        for (code, is_lacking) in
            [("42883", true), ("0A000", true), ("42501", true), ("57014", false), ("53200", false), ("40001", false)]
        {
            assert_eq!(reply(code), Some(Reply::Failed { is_lacking }), "{code}");
        }
    }

    #[test]
    fn the_head_of_a_page_is_no_record() {
        assert_eq!(end_of_last_record(0x0300_0028), 0x0300_0000);
        assert_eq!(end_of_last_record(0x0300_2018), 0x0300_2000);
        assert_eq!(end_of_last_record(0x0300_2028), 0x0300_2028, "only the first page of a segment has the long head");
        assert_eq!(end_of_last_record(0x0300_0148), 0x0300_0148);
    }

    #[test]
    fn positions_and_timelines_are_read() {
        assert_eq!(position(b"16/B374D848"), Some(0x16_B374_D848));
        assert_eq!((position(b"16"), position(b"x/1"), position(b"1/100000000")), (None, None, None));
        let row = |values: [Option<&[u8]>; 4]| {
            let mut bytes = Vec::new();
            backend::data_row(&mut bytes, values);
            read(DataRow::read(&bytes[frame::HEAD_BYTES..]).expect("a row"))
        };
        let primary = row([Some(b"f"), Some(b"0/10"), Some(b"0000000A0000000000000001"), None]);
        assert_eq!(primary, Some(Looked::Primary { timeline: Some(10), position: Some(16) }));
        let standby = row([Some(b"t"), Some(b"0/20"), None, Some(b"11")]);
        assert_eq!(standby, Some(Looked::Standby { timeline: Some(11), replayed: Some(32) }));
        assert_eq!(row([Some(b"t"), None, None, None]), Some(Looked::Standby { timeline: None, replayed: None }));
    }
}
