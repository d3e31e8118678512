//! INFO: the server's, and a section of the gateway's own that only a client that names it gets.
//!
//! `INFO weir` is answered here. With other sections beside it (`INFO server weir`, `INFO everything weir`) the server gets the command
//! for those, and the section is put behind its reply. Without the word, `everything` included, the reply is the
//! server's, byte by byte: tools that parse it must see what they would see without a gateway. Replies of several shards are
//! formatted as that of one server ([`merge`]).

pub(crate) mod merge;

use std::fmt::Write;

use weir_analysis::redis::{Args, Command};
use weir_resp::{RequestParser, Step, encode};

use crate::{
    io::Io,
    ordering::ReplyMode,
    request::Request,
    state::{CommandStatus, State},
};

/// The name of the section, in any case.
const SECTION: &[u8] = b"weir";

impl State {
    /// Replies to INFO, or sends it on.
    pub(crate) fn info(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let others: Vec<&[u8]> = (1..request.argc())
            .map(|index| request.text(index))
            .filter(|section| !section.eq_ignore_ascii_case(SECTION))
            .collect();
        // After MONITOR nothing of the gateway's own can stand between frames.
        if others.len() + 1 == request.argc() || self.tunnel.is_some() {
            return self.forward(command, request, io);
        }
        if others.is_empty() {
            io.count(Some(command), 1);
            let version = self.version;
            let section = self.info_section(io);
            self.local(io, |out| encode::verbatim(out, *b"txt", section.as_bytes(), version));
            return CommandStatus::Done;
        }
        self.info_of_both(command, &others, io)
    }

    /// Asks the server for its sections; the gateway's comes behind them.
    fn info_of_both(&mut self, command: &'static Command, sections: &[&[u8]], io: &impl Io) -> CommandStatus {
        let mut wire = Vec::new();
        encode::command(&mut wire, [&[&b"INFO"[..]], sections].concat());
        let mut parser = RequestParser::new();
        let Ok(Step::Command { len, .. }) = parser.parse(&wire, &self.limits) else {
            // It is shorter than the command that it was made of.
            return self.error(io, "ERR weir: INFO cannot be sent on");
        };
        let request = Request { parser: &parser, bytes: &wire[..len], is_inline: false };
        let is_heard = self.order.mode == ReplyMode::On;
        let number = self.order.next_number();
        let taken = self.forward(command, &request, io);
        let is_under_way = self.order.next_number() > number && self.order.oldest() < self.order.next_number();
        if is_heard && is_under_way {
            let section = self.info_section(io);
            self.order.append_to_last(section);
        }
        taken
    }

    /// The section, in the form of those of Redis (`genRedisInfoString`).
    fn info_section(&self, io: &impl Io) -> String {
        let mut out = String::from("# Weir\r\n");
        let _ = write!(out, "weir_version:{}\r\n", env!("CARGO_PKG_VERSION"));
        let _ = write!(out, "uptime_in_seconds:{}\r\n", io.now().as_nanos() / 1_000_000_000);
        // Other users' keys are not for everybody.
        io.write_info(&mut out, !self.is_watched);
        out
    }
}

#[cfg(test)]
mod tests {
    use weir_base::exchange::FrameKind;

    use crate::gather::{Gather, Merge};

    fn appended(reply: &str) -> String {
        let mut gather = Gather::new(3, 1, Merge::Info { section: "# Weir\r\na:1\r\n".to_owned() });
        let kind = if reply.starts_with('-') { FrameKind::Error } else { FrameKind::Reply };
        let (head, tail) = reply.split_at(reply.len() / 2);
        gather.take(3, head.as_bytes(), None);
        gather.take(3, tail.as_bytes(), Some(kind));
        String::from_utf8(gather.merged()).expect("text")
    }

    #[test]
    fn the_section_comes_behind_those_of_the_server() {
        let server = "# Server\r\nx:y\r\n";
        let resp2 = appended(&format!("${}\r\n{server}\r\n", server.len()));
        assert_eq!(resp2, "$30\r\n# Server\r\nx:y\r\n\r\n# Weir\r\na:1\r\n\r\n");
        let resp3 = appended(&format!("={}\r\ntxt:{server}\r\n", server.len() + 4));
        assert_eq!(resp3, "=34\r\ntxt:# Server\r\nx:y\r\n\r\n# Weir\r\na:1\r\n\r\n");
    }

    #[test]
    fn an_empty_reply_is_the_section_and_an_error_stays() {
        assert_eq!(appended("$0\r\n\r\n"), "$13\r\n# Weir\r\na:1\r\n\r\n");
        assert_eq!(appended("-LOADING x\r\n"), "-LOADING x\r\n");
    }
}
