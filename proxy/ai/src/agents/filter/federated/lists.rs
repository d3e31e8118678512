//! The lists of several servers as one.

use std::{collections::VecDeque, time::Duration};

use weir_base::{
    BytesPermit,
    time::{Time, turn},
};
use weir_http::filter::{FilterRequestOutcome, OwnResponse, SeenBody};
use weir_http_codec::RequestHead;
use weir_mcp_session::federation::{self, ListKind, PrefixedList};

use super::{
    AgentFilter, Done, LeftOut, SERVER_TIMEOUT, Work, WorkKind, error_word, json, message_word, request::ServerRequest,
};
use crate::agents::{admission, refusal::AgentRefusal, response::is_event_stream, settings::AgentServer};

/// For the list of all servers. Default 20 s, twice the time of one: servers that are slow one after the other do not add up.
const ALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Pages of one list. Default 64; the servers of SDKs have one page.
const PAGES_MAX: u32 = 64;

/// Bytes of the list of one server, and of each response with a page of it. Default 2 MiB: several hundred tools with long schemas.
/// Worst case 32 MiB for 16 servers, and as much for the joint list, from `limits.buffered_bytes`.
const SERVER_LIST_BYTES_MAX: usize = 2 << 20;

/// Lists while they are read.
pub(super) struct Lists {
    kind: ListKind,
    lists: Vec<ServerList>,
    /// Responses that are not read yet.
    done: VecDeque<Done>,
    pages: u32,
    ends: Time,
    /// The right to the lists, and to the joint one.
    permit: Option<BytesPermit>,
}

/// The list of one server.
struct ServerList {
    number: usize,
    list: PrefixedList,
    /// That of the next page.
    cursor: Option<Box<[u8]>>,
    /// The time of its requests so far.
    took: Duration,
}

impl AgentFilter {
    /// The first page of each server's list.
    pub(super) fn send_lists(
        &mut self,
        head: &RequestHead,
        kind: ListKind,
        id: &[u8],
    ) -> Result<OwnResponse, AgentRefusal> {
        let ends = turn::now().saturating_add(ALL_TIMEOUT);
        let mut all = Lists { kind, lists: Vec::new(), done: VecDeque::new(), pages: 0, ends, permit: None };
        for (number, part) in self.session_servers() {
            let has_list = if kind == ListKind::Tools { part.has_tools } else { part.has_prompts };
            let Some(server) = self.worker.settings.agents.get(number).filter(|_| has_list) else { continue };
            let list = PrefixedList::new(kind, &server.name);
            all.lists.push(ServerList { number, list, cursor: None, took: Duration::ZERO });
        }
        if all.lists.is_empty() {
            return Ok(json(federation::joint_list(kind, id, []), None));
        }
        self.send_pages(head, Box::new(all))
    }

    /// Takes responses with pages. One is read in each turn of the worker, so that others are served between them.
    pub(super) fn add_pages(
        &mut self,
        head: &RequestHead,
        seen: SeenBody<'_>,
        mut all: Box<Lists>,
        done: Vec<Done>,
    ) -> Result<OwnResponse, AgentRefusal> {
        let parts = self.session_servers();
        let has_session =
            |number: usize| parts.iter().any(|(one, part)| *one == number && !part.session.own_id.is_empty());
        let has_forgotten = |((number, _), outcome): &&Done| {
            outcome.as_ref().is_ok_and(|response| response.status == 404) && has_session(*number)
        };
        if let Some(((number, _), _)) = done.iter().find(has_forgotten) {
            return self.forget(head, *number);
        }
        all.done.extend(done);
        if let Some(((number, id), outcome)) = all.done.pop_front() {
            self.add_page(&mut all, (number, &id), outcome);
            let bytes: usize = all.lists.iter().map(|one| one.list.memory() + one.list.bytes()).sum();
            all.permit = None;
            all.permit = Some(seen.room(bytes as u64).ok_or(AgentRefusal::NO_ROOM)?);
            self.keep(Work { kind: WorkKind::List(all), sent: Vec::new(), _permit: None });
            return Ok(OwnResponse::Wait(Box::pin(weir_engine::yield_now())));
        }
        if all.lists.is_empty() {
            return Err(AgentRefusal::ALL_DOWN);
        }
        if all.lists.iter().any(|one| one.cursor.is_some()) {
            return self.send_pages(head, all);
        }
        let id = self.message.as_ref().and_then(|message| message.id.as_deref()).unwrap_or_default();
        Ok(json(federation::joint_list(all.kind, id, all.lists.iter().map(|one| &one.list)), None))
    }

    /// Adds one page to the list of its server, or leaves the server out.
    fn add_page(&self, all: &mut Lists, (number, id): (usize, &[u8]), outcome: FilterRequestOutcome) {
        let Some(server) = self.worker.settings.agents.get(number) else { return };
        let Some(list) = all.lists.iter_mut().find(|one| one.number == number) else { return };
        let next = self.page(list, server, all.kind, id, outcome);
        let next = next.and_then(|next| if next.is_some() && all.pages >= PAGES_MAX { Err("pages") } else { Ok(next) });
        match next {
            Ok(cursor) => list.cursor = cursor,
            Err(reason) => self.without(all, number, reason),
        }
    }

    /// Reads one page. Returns the cursor of the next one.
    fn page(
        &self,
        one: &mut ServerList,
        server: &AgentServer,
        kind: ListKind,
        id: &[u8],
        outcome: FilterRequestOutcome,
    ) -> Result<Option<Box<[u8]>>, LeftOut> {
        let response = outcome.map_err(error_word)?;
        one.took += response.took;
        if !(200..300).contains(&response.status) {
            return Err("status");
        }
        let is_tools = kind == ListKind::Tools;
        let may_use = |name: &str| !is_tools || admission::may_list(self.key.as_deref(), &server.name, name);
        let is_stream = is_event_stream(&response.fields);
        let next = one.list.add_response(&response.body, is_stream, id, &may_use).map_err(message_word)?;
        if one.list.bytes() > SERVER_LIST_BYTES_MAX { Err("too_long") } else { Ok(next) }
    }

    /// The next page of each server that has one, or the first. A server that has used up its time is left out.
    fn send_pages(&mut self, head: &RequestHead, mut all: Box<Lists>) -> Result<OwnResponse, AgentRefusal> {
        let own_id = self.own_id();
        let parts = self.session_servers();
        let (mut requests, mut sent, mut late) = (Vec::new(), Vec::new(), Vec::new());
        let left = all.ends.since(turn::now());
        let is_first = all.pages == 0;
        for one in &mut all.lists {
            let cursor = one.cursor.take();
            let Some((_, part)) = parts.iter().find(|(number, _)| *number == one.number) else { continue };
            if cursor.is_none() && !is_first {
                continue;
            }
            let timeout = SERVER_TIMEOUT.saturating_sub(one.took).min(left);
            if timeout.is_zero() {
                late.push(one.number);
                continue;
            }
            let request = ServerRequest {
                method: b"POST",
                part: Some(part),
                body: all.kind.request(&own_id, cursor.as_deref()).into(),
                timeout,
                response_bytes_max: SERVER_LIST_BYTES_MAX,
            };
            requests.push(self.server_request(head, one.number, request).ok_or(AgentRefusal::NO_SESSION)?);
            sent.push((one.number, own_id.clone()));
        }
        late.into_iter().for_each(|number| self.without(&mut all, number, "timeout"));
        if requests.is_empty() {
            // Without a further page, what is here is the list.
            self.keep(Work { kind: WorkKind::List(all), sent: Vec::new(), _permit: None });
            return Ok(OwnResponse::Wait(Box::pin(weir_engine::yield_now())));
        }
        all.pages += 1;
        let word = all.kind.method();
        Ok(self.send(WorkKind::List(all), (sent, None), requests, word))
    }

    /// Leaves a server out of the list.
    fn without(&self, all: &mut Lists, number: usize, reason: LeftOut) {
        all.lists.retain(|one| one.number != number);
        if let Some(server) = self.worker.settings.agents.get(number) {
            self.left_out(server, reason);
        }
    }
}
