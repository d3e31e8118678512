//! Which command may run, and the function that runs it.

use std::sync::atomic::Ordering;

use weir_base::Time;
use weir_mongodb_codec::bson::{Kind, Value, Writer};

use super::failure::{Failure, code};
use super::request::Request;
use super::session::Client;
use super::state::Core;
use super::transactions::Place;
use super::{
    administration, batches, control, fail_point::Strike, hello, login, read, sessions, stored, stored_writes, write,
};

/// A command that runs.
pub(super) struct Context<'c> {
    pub core: &'c Core,
    pub client: &'c mut Client,
    pub request: &'c Request<'c>,
    pub now: Time,
    /// The command has waited before, until this time at most.
    pub until: Option<Time>,
    /// The version of the topology that the client has seen in the stream of replies that this one belongs to.
    pub seen: Option<u64>,
    /// The write was carried out before.
    pub is_repeated: bool,
}

impl Context<'_> {
    /// The command has waited as long as it may.
    pub fn is_late(&self) -> bool {
        self.until.is_some_and(|until| self.now >= until)
    }

    /// Whether the connection keeps its cursors and transactions for itself.
    pub fn connection(&self) -> Option<u64> {
        self.client.is_load_balanced.then_some(self.client.id)
    }
}

/// The end of a command that succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its reply is written.
    Done,
    /// Its reply is written, and another follows without a request.
    More,
    /// Nothing is written: it runs again after a moment, and at this time at the latest.
    Wait(Time),
}

/// A function that writes the fields of a reply in front of `ok`.
type Run = fn(&mut Context<'_>, &mut Writer<'_>) -> Result<Fate, Failure>;

/// The needs of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Nothing, not even a login.
    Open,
    /// A member that may be read.
    Read,
    /// The primary.
    Write,
    /// A login.
    Other,
    /// The same, outside of transactions.
    Alone,
}

/// The commands that differ where documents are stored.
fn stored_command(name: &[u8]) -> Option<(Class, Run)> {
    Some(match name {
        b"find" => (Class::Read, stored::find),
        b"aggregate" => (Class::Read, stored::aggregate),
        b"count" => (Class::Read, stored::count),
        b"distinct" => (Class::Read, stored::distinct),
        b"insert" => (Class::Write, stored_writes::insert),
        b"update" => (Class::Write, stored_writes::update),
        b"delete" => (Class::Write, stored_writes::delete),
        b"findAndModify" | b"findandmodify" => (Class::Write, stored_writes::find_and_modify),
        b"create" => (Class::Write, stored::create),
        b"drop" | b"dropDatabase" => (Class::Write, stored::drop_collections),
        b"listCollections" => (Class::Alone, stored::list_collections),
        _ => return None,
    })
}

fn command(name: &[u8]) -> Option<(Class, Run)> {
    use Class::{Alone, Open, Other, Read, Write};
    Some(match name {
        b"find" => (Read, read::find),
        b"getMore" => (Other, batches::get_more),
        b"killCursors" => (Other, batches::kill_cursors),
        b"aggregate" => (Read, read::aggregate),
        b"count" => (Read, read::count),
        b"distinct" => (Read, read::distinct),
        b"insert" => (Write, write::insert),
        b"update" => (Write, write::update),
        b"delete" => (Write, write::delete),
        b"findAndModify" | b"findandmodify" => (Write, write::find_and_modify),
        b"bulkWrite" => (Write, write::bulk_write),
        b"hello" | b"isMaster" | b"ismaster" => (Open, hello::hello),
        b"saslStart" => (Open, login::sasl_start),
        b"saslContinue" => (Open, login::sasl_continue),
        b"logout" => (Open, login::logout),
        b"ping" => (Open, administration::nothing),
        b"buildInfo" | b"buildinfo" => (Open, administration::build_info),
        b"connectionStatus" => (Open, administration::connection_status),
        b"commitTransaction" => (Other, sessions::commit),
        b"abortTransaction" => (Other, sessions::abort),
        b"startSession" => (Alone, sessions::start),
        b"endSessions" | b"killSessions" => (Alone, sessions::end),
        b"killAllSessions" | b"killAllSessionsByPattern" => (Alone, sessions::kill_all),
        b"refreshSessions" => (Alone, administration::nothing),
        b"configureFailPoint" => (Alone, control::configure_fail_point),
        b"weirOrigin" => (Open, control::weir_origin),
        b"replSetStepDown" => (Alone, control::step_down),
        b"create" | b"createIndexes" => (Write, administration::create),
        b"drop" | b"dropDatabase" | b"dropIndexes" | b"collMod" | b"renameCollection" => {
            (Write, administration::nothing)
        }
        b"listDatabases" => (Alone, administration::list_databases),
        b"listCollections" => (Alone, administration::list_collections),
        b"listIndexes" => (Alone, administration::list_indexes),
        b"serverStatus" => (Alone, administration::server_status),
        b"getParameter" | b"setParameter" | b"hostInfo" => (Alone, administration::nothing),
        b"getCmdLineOpts" => (Alone, administration::command_line),
        b"getLog" => (Alone, administration::log),
        b"whatsmyuri" => (Open, administration::nothing),
        _ => return None,
    })
}

/// Whether a fail point may strike it: MongoDB spares the commands that set and unset them.
pub(super) fn can_fail(name: &[u8]) -> bool {
    !matches!(name, b"configureFailPoint" | b"weirOrigin")
}

/// Runs a command; `strike` is what a fail point does to its reply.
pub(super) fn run(at: &mut Context<'_>, strike: &Strike, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let name = at.request.command.name;
    let stored = if at.core.settings.stores { stored_command(name) } else { None };
    let Some((class, run)) = stored.or_else(|| command(name)) else {
        let text = format!("no such command: '{}'", at.request.name());
        return Err(Failure::new(code::COMMAND_NOT_FOUND, text));
    };
    if at.until.is_none() {
        at.core.state.counts.note(name);
    }
    admit(at, class)?;
    let fate = run(at, body)?;
    if !matches!(fate, Fate::Wait(_)) {
        finish(at, strike, body);
    }
    Ok(fate)
}

fn admit(at: &mut Context<'_>, class: Class) -> Result<(), Failure> {
    let (request, state) = (at.request, &at.core.state);
    if class != Class::Open && at.core.has_password() && at.client.user.is_none() {
        let text = format!("Command {} requires authentication", request.name());
        return Err(Failure::new(code::UNAUTHORIZED, text));
    }
    if class == Class::Alone && request.is_in_transaction() {
        let text = format!("Cannot run '{}' in a multi-document transaction.", request.name());
        return Err(Failure::new(code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION, text));
    }
    if request.is_end() && request.command.db != b"admin" {
        let text = format!("{} may only be run against the admin database.", request.name());
        return Err(Failure::new(code::UNAUTHORIZED, text));
    }
    if !state.is_writable.load(Ordering::Relaxed) {
        if class == Class::Write || request.is_in_transaction() {
            return Err(Failure::new(code::NOT_WRITABLE_PRIMARY, "not primary"));
        }
        if class == Class::Read && matches!(request.command.read_mode(), b"primary") {
            let text = "not primary and secondaryOk=false";
            return Err(Failure::new(code::NOT_PRIMARY_NO_SECONDARY_OK, text));
        }
    }
    let command = &request.command;
    // Most commands have none of the three, and need no lock.
    if command.txn_number.is_some() || command.is_in_transaction || command.is_transaction_start {
        let has_cluster = state.has_cluster.load(Ordering::Relaxed);
        let place = Place { has_cluster, connection: at.connection(), now: at.now };
        at.is_repeated = at.until.is_none() && state.transactions().admit(request, place)?;
    }
    Ok(())
}

/// The fields of every reply that succeeds.
fn finish(at: &Context<'_>, strike: &Strike, body: &mut Writer<'_>) {
    let state = &at.core.state;
    if let Some(error) = &strike.write_concern_error {
        body.value("writeConcernError", Value { kind: Kind::Document, bytes: error });
        let code = Value { kind: Kind::Document, bytes: error }.as_document().ok().flatten();
        let code = code.and_then(|error| error.get(b"code").ok()??.as_integer()).unwrap_or_default() as i32;
        let labels = match strike.labels.is_empty() {
            true => labels(at.request, code),
            false => strike.labels.clone(),
        };
        if !labels.is_empty() {
            body.array("errorLabels", labels, |body, name, label| body.string(name, label));
        }
    }
    body.double("ok", 1.0);
    if let Some(mark) = at.request.mark() {
        body.value("request", mark);
    }
    if state.is_mongos.load(Ordering::Relaxed) && at.request.is_in_transaction() && !at.request.is_end() {
        body.document("recoveryToken", |token| token.object_id("recoveryShardId", state.process));
    }
    write_times(at.core, body);
}

/// The time of the deployment, where it has one.
pub(super) fn write_times(core: &Core, body: &mut Writer<'_>) {
    if !core.state.has_cluster.load(Ordering::Relaxed) {
        return;
    }
    let time = core.state.cluster_time();
    let time = Value { kind: Kind::Timestamp, bytes: &time };
    body.document("$clusterTime", |cluster| {
        cluster.value("clusterTime", time);
        cluster.document("signature", |signature| {
            signature.binary("hash", 0, &[0; 20]);
            signature.int64("keyId", 0);
        });
    });
    body.value("operationTime", time);
}

/// The labels of an error of a command.
pub(super) fn labels(request: &Request<'_>, code: i32) -> Vec<String> {
    let has_number = request.command.txn_number.is_some();
    super::failure::labels(code, request.is_in_transaction(), has_number, request.is_end())
}
