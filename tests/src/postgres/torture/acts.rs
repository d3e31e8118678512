//! The acts of clients. Each one ends outside of a transaction, or ends the life.

use super::Kind;
use super::client::{Broken, SETTINGS, TortureClient, is};
use super::wire::{self, SYNC, Wire, close, parse, run};

type Body = fn(&mut TortureClient<'_>, &mut Wire) -> Result<(), Broken>;

/// An act.
pub struct Act {
    /// Its name in reports.
    pub name: &'static str,
    /// How often, beside the others.
    pub weight: u64,
    /// The client leaves after it.
    pub is_last: bool,
    /// Its body.
    pub body: Body,
}

const fn act(name: &'static str, weight: u64, body: Body) -> Act {
    Act { name, weight, is_last: false, body }
}

const fn last(name: &'static str, weight: u64, body: Body) -> Act {
    Act { name, weight, is_last: true, body }
}

/// All of them.
pub const ACTS: &[Act] = &[
    act("simple rows", 12, simple_rows),
    act("pipeline", 10, pipeline),
    act("pipeline with an error", 6, failing_pipeline),
    act("named statement", 12, named_statement),
    act("sql prepare", 4, sql_prepare),
    act("set", 8, set),
    act("reset", 3, reset),
    act("settings in a block", 6, settings_in_block),
    act("block", 8, block),
    act("failed block", 6, failed_block),
    act("error", 5, error),
    act("copy in", 5, copy_in),
    act("failed copy in", 4, failed_copy_in),
    act("copy out", 4, copy_out),
    act("cancel", 3, cancel),
    act("late cancel", 2, late_cancel),
    act("random cancel", 2, random_cancel),
    act("statement timeout", 2, statement_timeout),
    act("temporary table", 6, temporary_table),
    act("advisory lock", 5, advisory_lock),
    act("listen and notify", 5, listen),
    act("held cursor", 4, held_cursor),
    act("discard all", 1, discard_all),
    act("probe", 10, |client, wire| client.probe(wire)),
    last("leave idle", 1, |_, _| Ok(())),
    last("leave in a block", 2, leave_in_block),
    last("leave in a copy", 2, leave_in_copy),
    last("leave in a query", 1, leave_in_query),
    last("leave in a message", 1, leave_in_message),
    last("leave with a result unread", 1, leave_unread),
];

fn stuck(text: String) -> Broken {
    (Kind::Stuck, text)
}

fn idle(wire: &Wire) -> Result<(), Broken> {
    is(Kind::WrongStatus, "status", char::from(wire.status), 'I')
}

fn simple_rows(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let (first, count) = (client.next(), 1 + client.rng.below(20));
    client.sequence += count;
    let mark = &client.mark;
    let text = format!("select '{mark}', n from generate_series({first}, {}) n", first + count);
    let reply = client.ask(wire, &text)?;
    client.are_own(&reply.rows, &(first..=first + count).collect::<Vec<_>>())?;
    idle(wire)
}

/// Several unnamed statements at once, with a Sync after each or after all.
fn pipeline(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let (count, many_syncs) = (1 + client.rng.below(12), client.rng.below(2) == 0);
    let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let number = client.next();
        bytes.extend(parse("", &format!("select '{}', $1::text", client.mark)));
        bytes.extend(run("", &[&number.to_string()]));
        if many_syncs {
            bytes.extend(SYNC);
        }
        numbers.push(number);
    }
    if !many_syncs {
        bytes.extend(SYNC);
    }
    wire.send(&bytes).map_err(stuck)?;
    let mut rows = Vec::new();
    for _ in 0..if many_syncs { count } else { 1 } {
        let reply = wire.reply().map_err(stuck)?;
        if reply.state() == "57014" {
            client.may_be_cancelled()?;
            numbers.clear();
        }
        if let Some((state, text)) = reply.errors.first().filter(|(state, _)| state != "57014") {
            return Err((Kind::Unexpected, format!("{state} {text}")));
        }
        rows.extend(reply.rows);
    }
    idle(wire)?;
    if numbers.is_empty() { Ok(()) } else { client.are_own(&rows, &numbers) }
}

/// After an error everything is skipped up to the next Sync, and nothing behind it.
fn failing_pipeline(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let marked = |client: &TortureClient<'_>| parse("", &format!("select '{}', $1::text", client.mark));
    let numbers = [client.next(), client.next(), client.next()].map(|number| number.to_string());
    let mut bytes = [marked(client), run("", &[&numbers[0]])].concat();
    bytes.extend([parse("", "select 1/$1::int"), run("", &["0"])].concat());
    bytes.extend([marked(client), run("", &[&numbers[1]]), SYNC.to_vec()].concat());
    bytes.extend([marked(client), run("", &[&numbers[2]]), SYNC.to_vec()].concat());
    wire.send(&bytes).map_err(stuck)?;
    let (first, second) = (wire.reply().map_err(stuck)?, wire.reply().map_err(stuck)?);
    if [first.state(), second.state()].contains(&"57014") {
        return client.may_be_cancelled();
    }
    is(Kind::Unexpected, "state", first.state(), "22012")?;
    is(Kind::Unexpected, "state of the next", second.state(), "")?;
    idle(wire)?;
    client.are_own(&first.rows, &[client.sequence - 2])?;
    client.are_own(&second.rows, &[client.sequence])
}

/// All clients use the same names for statements that hold their own marks.
fn named_statement(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let (slot, number) = (client.rng.below(6), client.next());
    let (name, is_new) = (format!("statement_{slot}"), !client.model.statements.contains(&slot));
    let mut bytes = Vec::new();
    if is_new {
        bytes.extend(parse(&name, &format!("select '{}', $1::text, {slot}", client.mark)));
    }
    bytes.extend(run(&name, &[&number.to_string()]));
    let closes = client.rng.below(8) == 0;
    if closes {
        bytes.extend(close(&name));
    }
    bytes.extend(SYNC);
    wire.send(&bytes).map_err(stuck)?;
    let reply = wire.reply().map_err(stuck)?;
    if reply.state() == "57014" {
        client.may_be_cancelled()?;
        // How far it came is not known: the name may be there or not.
        wire.send(&[close(&name), SYNC.to_vec()].concat()).map_err(stuck)?;
        wire.reply().map_err(stuck)?;
        client.model.statements.remove(&slot);
        return Ok(());
    }
    if let Some((state, text)) = reply.errors.first() {
        let kind = if state == "26000" { Kind::LostState } else { Kind::ForeignState };
        return Err((kind, format!("{name}: {state} {text}")));
    }
    if closes {
        client.model.statements.remove(&slot);
    } else {
        client.model.statements.insert(slot);
    }
    let own = vec![vec![client.mark.clone(), number.to_string(), slot.to_string()]];
    is(Kind::ForeignRow, &name, reply.rows, own)?;
    idle(wire)
}

fn sql_prepare(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let number = client.next();
    if !client.model.is_prepared {
        client.fails(wire, "execute by_sql (1)", "26000")?;
        client.ask(wire, &format!("prepare by_sql (bigint) as select '{}', $1", client.mark))?;
        client.model.is_prepared = true;
    }
    let reply = client.ask(wire, &format!("execute by_sql ({number})"))?;
    client.are_own(&reply.rows, &[number])?;
    if client.rng.below(3) == 0 {
        client.ask(wire, "deallocate by_sql")?;
        client.model.is_prepared = false;
    }
    idle(wire)
}

/// A value of its own for one of the settings.
fn value(client: &mut TortureClient<'_>) -> (&'static str, String) {
    let (name, _) = SETTINGS[client.rng.below(SETTINGS.len() as u64) as usize];
    let value = match name {
        "work_mem" => format!("{}kB", 5121 + client.number),
        "lock_timeout" => format!("{}ms", 61_001 + client.number),
        "search_path" => format!("{}, public", client.mark),
        "intervalstyle" => ["iso_8601", "sql_standard"][client.number as usize % 2].to_owned(),
        _ => client.mark.clone(),
    };
    (name, value)
}

fn statement_of(name: &str, value: &str, is_local: bool) -> String {
    match name {
        "search_path" => format!("set {}search_path to {value}", if is_local { "local " } else { "" }),
        _ => format!("set {}{name} to '{value}'", if is_local { "local " } else { "" }),
    }
}

fn set(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let (name, value) = value(client);
    let text = match client.rng.below(3) {
        0 if name != "search_path" => format!("select set_config('{name}', '{value}', false)"),
        _ => statement_of(name, &value, false),
    };
    client.ask(wire, &text)?;
    client.model.settings.insert(name, value);
    client.probe(wire)
}

fn reset(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let (name, _) = SETTINGS[client.rng.below(SETTINGS.len() as u64) as usize];
    if client.rng.below(3) == 0 {
        client.ask(wire, "reset all")?;
        client.model.settings.clear();
    } else {
        client.ask(wire, &format!("reset {name}"))?;
        client.model.settings.remove(name);
    }
    client.probe(wire)
}

/// A setting of a block lasts if the block is committed; a local one never.
fn settings_in_block(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let ((name, kept), (local, passing)) = (value(client), value(client));
    let commits = client.rng.below(2) == 0;
    client.ask(wire, "begin")?;
    client.ask(wire, &statement_of(name, &kept, false))?;
    client.ask(wire, &statement_of(local, &passing, true))?;
    let reply = client.ask(wire, &format!("select current_setting('{local}')"))?;
    is(Kind::LostState, local, reply.rows, vec![vec![passing]])?;
    client.ask(wire, if commits { "commit" } else { "rollback" })?;
    if commits {
        client.model.settings.insert(name, kept);
    }
    client.probe(wire)
}

fn block(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let commits = client.rng.below(3) > 0;
    client.ask(wire, "begin")?;
    is(Kind::WrongStatus, "status", char::from(wire.status), 'T')?;
    let mark = client.mark.clone();
    let mut numbers = Vec::new();
    for _ in 0..=client.rng.below(4) {
        let number = client.next();
        client.ask(wire, &format!("insert into public.marked values ('{mark}', {number})"))?;
        numbers.push(number);
    }
    let since = numbers[0];
    let text =
        format!("select owner, number from public.marked where owner = '{mark}' and number >= {since} order by 2");
    let reply = client.ask(wire, &text)?;
    client.are_own(&reply.rows, &numbers)?;
    client.ask(wire, if commits { "commit" } else { "rollback" })?;
    idle(wire)?;
    let reply = client.ask(wire, &text)?;
    client.are_own(&reply.rows, if commits { &numbers } else { &[] })
}

fn failed_block(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    client.ask(wire, "begin")?;
    let number = client.next();
    client.ask(wire, &format!("insert into public.marked values ('{}', {number})", client.mark))?;
    let reply = wire.query("select 1/0").map_err(stuck)?;
    if reply.state() == "57014" {
        client.may_be_cancelled()?;
    } else {
        is(Kind::Unexpected, "state", reply.state(), "22012")?;
    }
    is(Kind::WrongStatus, "status", char::from(wire.status), 'E')?;
    let reply = wire.query("select 1").map_err(stuck)?;
    is(Kind::WrongStatus, "state in a failed block", reply.state(), "25P02")?;
    let end = ["rollback", "commit"][client.rng.below(2) as usize];
    client.ask(wire, end)?;
    idle(wire)?;
    let text = format!("select owner, number from public.marked where owner = '{}' and number = {number}", client.mark);
    let reply = client.ask(wire, &text)?;
    client.are_own(&reply.rows, &[])
}

fn error(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let cases =
        [("select 1/0", "22012"), ("selekt", "42601"), ("select * from nothing.here", "42P01"), ("commit;;x", "42601")];
    let (text, state) = cases[client.rng.below(cases.len() as u64) as usize];
    client.fails(wire, text, state)?;
    idle(wire)
}

fn begins_copy(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<bool, Broken> {
    let reply = wire.query("copy public.copied from stdin").map_err(stuck)?;
    if reply.state() == "57014" {
        client.may_be_cancelled()?;
        return Ok(false);
    }
    is(Kind::Unexpected, "a copy begins", (reply.wants_copy, reply.state()), (true, ""))?;
    Ok(true)
}

fn copied_lines(client: &mut TortureClient<'_>, count: u64) -> (Vec<u8>, Vec<u64>) {
    let numbers: Vec<u64> = (0..count).map(|_| client.next()).collect();
    let lines =
        numbers.iter().flat_map(|number| wire::message(b'd', format!("{}\t{number}\n", client.mark).as_bytes()));
    (lines.collect(), numbers)
}

fn copy_in(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    if !begins_copy(client, wire)? {
        return Ok(());
    }
    let count = 1 + client.rng.below(300);
    let (lines, numbers) = copied_lines(client, count);
    wire.send(&[lines, wire::message(b'c', b"")].concat()).map_err(stuck)?;
    let reply = wire.reply().map_err(stuck)?;
    idle(wire)?;
    if reply.state() == "57014" {
        return client.may_be_cancelled();
    }
    is(Kind::WrongCount, "tags", reply.tags, vec![format!("COPY {count}")])?;
    let text = format!(
        "select owner, number from public.copied where owner = '{}' and number >= {} order by 2",
        client.mark, numbers[0]
    );
    let reply = client.ask(wire, &text)?;
    client.are_own(&reply.rows, &numbers)
}

/// A bad row or a CopyFail. Messages behind the error are no requests.
fn failed_copy_in(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    if !begins_copy(client, wire)? {
        return Ok(());
    }
    let (lines, numbers) = copied_lines(client, 20);
    let (more, _) = copied_lines(client, 200);
    let (bytes, state) = if client.rng.below(2) == 0 {
        let bad = wire::message(b'd', b"no number\tat all\n");
        ([lines, bad, more, wire::message(b'c', b"")].concat(), "22P02")
    } else {
        ([lines, wire::message(b'f', b"given up\0")].concat(), "57014")
    };
    wire.send(&bytes).map_err(stuck)?;
    let reply = wire.reply().map_err(stuck)?;
    if state != "57014" && reply.state() == "57014" {
        client.may_be_cancelled()?;
    } else {
        is(Kind::Unexpected, "state", reply.state(), state)?;
    }
    idle(wire)?;
    let first = numbers[0];
    let text = format!("select owner, number from public.copied where owner = '{}' and number >= {first}", client.mark);
    let reply = client.ask(wire, &text)?;
    client.are_own(&reply.rows, &[])
}

fn copy_out(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let (mark, count) = (client.mark.clone(), 1 + client.rng.below(2000));
    let reply = client.ask(wire, &format!("copy (select '{mark}', n from generate_series(1, {count}) n) to stdout"))?;
    let own: String = (1..=count).map(|number| format!("{mark}\t{number}\n")).collect();
    is(Kind::ForeignRow, "copied lines are its own", reply.copied == own.as_bytes(), true)?;
    idle(wire)
}

fn cancel(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let key = wire.key.clone();
    wire.send(&wire::query("select pg_sleep(20)")).map_err(stuck)?;
    std::thread::sleep(std::time::Duration::from_millis(20 + client.rng.below(30)));
    client.cancels();
    // A client that waits for a server has nothing to cancel yet: it tries again.
    let reply = std::thread::scope(|scope| {
        let (sender, done) = std::sync::mpsc::channel::<()>();
        let twin = Canceller { port: client.port(), key };
        scope.spawn(move || {
            while done.recv_timeout(std::time::Duration::from_millis(300))
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                twin.cancel();
            }
        });
        let reply = wire.reply();
        drop(sender);
        reply
    });
    client.cancels();
    is(Kind::Unexpected, "state", reply.map_err(stuck)?.state(), "57014")?;
    idle(wire)
}

/// Cancels from beside the connection that waits.
struct Canceller {
    port: u16,
    key: Vec<u8>,
}

impl Canceller {
    fn cancel(&self) {
        // A refused connection shows in the query that is not cancelled.
        let _ = wire::cancel(self.port, &self.key);
    }
}

/// A cancel of an idle session hits no other; a late one may hit its own next query.
fn late_cancel(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    client.cancels();
    wire::cancel(client.port(), &wire.key).map_err(stuck)?;
    client.cancels();
    simple_rows(client, wire)
}

/// Keys that no one has.
fn random_cancel(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    for _ in 0..3 {
        let mut key = wire.key.clone();
        // The process is right half of the time, the secret never.
        if client.rng.below(2) == 0 {
            key[..4].copy_from_slice(&(client.rng.next_u64() as u32).to_be_bytes());
        }
        for byte in &mut key[4..] {
            *byte ^= 1 + client.rng.below(255) as u8;
        }
        wire::cancel(client.port(), &key).map_err(stuck)?;
    }
    simple_rows(client, wire)
}

fn statement_timeout(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    client.ask(wire, "begin")?;
    client.ask(wire, "set local statement_timeout = '30ms'")?;
    let reply = wire.query("select pg_sleep(20)").map_err(stuck)?;
    is(Kind::Unexpected, "state", reply.state(), "57014")?;
    is(Kind::WrongStatus, "status", char::from(wire.status), 'E')?;
    client.ask(wire, "rollback")?;
    let reply = client.ask(wire, "show statement_timeout")?;
    is(Kind::ForeignState, "statement_timeout", reply.rows, vec![vec!["0".to_owned()]])
}

fn temporary_table(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let mark = client.mark.clone();
    let Some(rows) = client.model.scratch else {
        client.ask(wire, "create temp table scratch (owner text, number bigint)")?;
        client.model.scratch = Some(0);
        return client.probe(wire);
    };
    if client.rng.below(4) == 0 {
        client.ask(wire, "drop table pg_temp.scratch")?;
        client.model.scratch = None;
        return client.probe(wire);
    }
    client.ask(wire, &format!("insert into pg_temp.scratch values ('{mark}', {})", rows + 1))?;
    client.model.scratch = Some(rows + 1);
    let reply = client.ask(wire, "select owner, number from pg_temp.scratch order by number")?;
    client.are_own(&reply.rows, &(1..=rows + 1).collect::<Vec<_>>())
}

fn advisory_lock(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let key = i64::from(client.number) + 1;
    if client.model.locks == 0 || client.rng.below(2) == 0 {
        // The key is its own: the lock of an earlier life is the only other one, and goes with it.
        client.ask(wire, &format!("select pg_advisory_lock({key})"))?;
        client.model.locks += 1;
    } else {
        let reply = client.ask(wire, &format!("select pg_advisory_unlock({key})"))?;
        is(Kind::LostState, "unlock", reply.rows, vec![vec!["t".to_owned()]])?;
        client.model.locks -= 1;
    }
    client.probe(wire)
}

fn listen(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let (mark, number) = (client.mark.clone(), client.next());
    if !client.model.is_listening {
        client.ask(wire, &format!("listen {mark}"))?;
        client.model.is_listening = true;
    }
    client.ask(wire, &format!("select pg_notify('{mark}', '{mark}:{number}')"))?;
    let begun = std::time::Instant::now();
    let payload = format!("{mark}:{number}");
    while !wire.heard.iter().any(|(_, heard)| *heard == payload) {
        if begun.elapsed() > std::time::Duration::from_secs(20) {
            return Err((Kind::LostState, format!("the notification {payload} has not arrived")));
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
        wire.idle_messages().map_err(|text| (Kind::WrongCount, text))?;
    }
    if client.rng.below(3) == 0 {
        client.ask(wire, "unlisten *")?;
        client.model.is_listening = false;
    }
    Ok(())
}

fn held_cursor(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let mark = client.mark.clone();
    match client.model.held {
        None => {
            let text = format!("declare held cursor with hold for select '{mark}', n from generate_series(1, 5) n");
            client.ask(wire, &text)?;
            client.model.held = Some(1);
        }
        Some(next) if next <= 5 => {
            let reply = client.ask(wire, "fetch 1 from held")?;
            client.are_own(&reply.rows, &[next])?;
            client.model.held = Some(next + 1);
        }
        Some(_) => {
            client.ask(wire, "close held")?;
            client.model.held = None;
        }
    }
    idle(wire)
}

fn discard_all(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    client.ask(wire, "discard all")?;
    client.model = Default::default();
    client.probe(wire)
}

fn leave_in_block(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    client.ask(wire, "begin")?;
    let (name, value) = value(client);
    client.ask(wire, &statement_of(name, &value, false))?;
    let number = client.next();
    client.ask(wire, &format!("insert into public.marked values ('{}', {number})", client.mark))?;
    client.ask(wire, &format!("select pg_advisory_lock({})", client.number + 1))?;
    Ok(())
}

fn leave_in_copy(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    if begins_copy(client, wire)? {
        let (lines, _) = copied_lines(client, 30);
        wire.send(&lines).map_err(stuck)?;
    }
    Ok(())
}

fn leave_in_query(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let seconds = 1 + client.rng.below(2);
    wire.send(&wire::query(&format!("select '{}', pg_sleep({seconds})", client.mark))).map_err(stuck)
}

fn leave_in_message(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    let bytes = wire::query(&format!("select '{}', 1", client.mark));
    let cut = 1 + client.rng.below(bytes.len() as u64 - 2) as usize;
    wire.send(&bytes[..cut]).map_err(stuck)
}

fn leave_unread(client: &mut TortureClient<'_>, wire: &mut Wire) -> Result<(), Broken> {
    wire.send(&wire::query(&format!("select '{}', n from generate_series(1, 100000) n", client.mark))).map_err(stuck)
}
