//! Close: the end of a statement's name, or of a portal.

use weir_postgres_codec::{backend, frame::Head, frontend, frontend::Kind};

use crate::client::Turn;
use crate::io::Io;
use crate::outstanding::{Expected, Note, Request};
use crate::server::ServerState;
use crate::session::{Attachment, Next, Session};
use crate::simple::whole;
use crate::statements::Meaning;

impl Session {
    pub(crate) fn on_close<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> Option<Next> {
        let Some(body) = whole(head, turn.feed.rest()) else { return Some(Next::More) };
        let close = match frontend::Close::read(body) {
            Ok(close) => close,
            Err(error) => return self.refuse_body(error, head, turn, server),
        };
        if !self.is_multiplexed() {
            return self.pass_unchanged(Request::Close, head, turn, server);
        }
        let server = server.filter(|_| self.attachment == Attachment::Used);
        match server {
            // Without a server there is no portal, and the names are here.
            None => {
                if close.kind == Kind::Statement {
                    self.names.remove(close.name);
                    if close.name.is_empty() {
                        self.unnamed = None;
                    }
                }
                turn.feed.skip(head.whole(), &mut self.retry, turn.io);
                turn.io.encode_to_client(backend::close_complete);
            }
            Some(server) if close.kind == Kind::Portal => {
                server.queue.push(Expected::forward(Request::Close, Note::None));
                turn.feed.pass(head.whole());
            }
            Some(server) if close.name.is_empty() => {
                if Self::is_unnamed_uncertain(server) {
                    return Some(self.wait_for_replies(turn, server));
                }
                let note = self.note_unnamed(server);
                if server.queue.push(Expected::forward(Request::Close, note)).is_none() {
                    self.unnamed = None;
                    server.unnamed = None;
                }
                turn.feed.pass(head.whole());
            }
            Some(server) if self.are_names_uncertain(server) => return Some(self.wait_for_replies(turn, server)),
            Some(server) => self.close_name(close.name, head, turn, server),
        }
        None
    }

    /// A statement stays at the server for others, and for this client if it comes back. One of SQL's PREPARE is known there by
    /// this name, and ends.
    fn close_name<I: Io>(&mut self, name: &[u8], head: Head, turn: &mut Turn<'_, '_, I>, server: &mut ServerState) {
        if server.queue.is_skipping() {
            return turn.feed.skip(head.whole(), &mut self.retry, turn.io);
        }
        let note = self.names.remove(name).map_or(Note::None, Note::Closed);
        self.names_since = Some(server.queue.batch());
        let is_sql = matches!(&note, Note::Closed(named) if matches!(named.meaning, Meaning::Sql(_)));
        if is_sql && server.sql_names.remove(name).is_some() {
            server.queue.push(Expected::forward(Request::Close, note));
            return turn.feed.pass(head.whole());
        }
        server.queue.push(Expected::fake(Request::Close, note));
        turn.feed.skip(head.whole(), &mut self.retry, turn.io);
        self.emit_due(server, turn.io);
    }
}
