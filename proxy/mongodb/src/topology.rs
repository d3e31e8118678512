//! The servers of an upstream as a whole: their roles, the members of their set, and what a listener can promise of them.
//!
//! Source: "Server Discovery and Monitoring" and "Server Selection" of the driver specifications. Facts in, choices out: no clock, no
//! socket.

use weir_engine::settings::Address;
use weir_mongodb_session::{
    ReadMode,
    face::WireVersions,
    server_hello::{ServerHello, ServerKind},
};

use crate::{preference::Preference, settings::MEMBERS_MAX, watch::Standing};

/// The place of a server among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Every command may go there: a standalone server, or a mongos.
    Any,
    /// The primary of the set.
    Primary,
    /// A secondary of the set.
    Secondary,
    /// None: it gives no reply, is of another set, has no data, or was a primary that another one has replaced.
    None,
}

/// The facts that a listener presents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    /// Versions that every server has.
    pub(crate) wire: WireVersions,
    /// The shortest life of a logical session, in minutes; `None`: a server has none.
    pub(crate) session_timeout_minutes: Option<i32>,
    /// The only server is one without a set.
    pub(crate) is_standalone: bool,
}

/// See above. Numbers of servers are those of the endpoints; a set has at most 64 of them.
#[derive(Debug)]
pub(crate) struct Topology {
    standings: Vec<Standing>,
    roles: Vec<Role>,
    primary: Option<usize>,
}

/// The order of elections. The id counts first: a primary keeps the highest version of the set's configuration over a rollback.
fn election(hello: &ServerHello) -> Option<([u8; 12], i64)> {
    hello.election.map(|(version, id)| (id, version))
}

fn is_member(hello: &ServerHello) -> bool {
    matches!(hello.kind, ServerKind::Primary | ServerKind::Secondary)
}

/// The facts of a server that clients may use, as far as it says itself.
fn usable<'s>(standing: &'s Standing, set_name: Option<&str>) -> Option<&'s ServerHello> {
    let hello = standing.hello.as_deref().filter(|_| standing.is_reachable)?;
    hello.wire.and_then(|wire| wire.common(WireVersions::KNOWN))?;
    let is_wanted = set_name.is_none_or(|name| hello.set_name.as_deref() == Some(name.as_bytes()));
    let is_used = match hello.kind {
        ServerKind::Primary | ServerKind::Secondary => hello.set_name.is_some(),
        ServerKind::Standalone | ServerKind::Mongos => true,
        ServerKind::Arbiter | ServerKind::Other | ServerKind::Ghost => false,
    };
    (is_wanted && is_used).then_some(hello)
}

impl Topology {
    /// The servers in the order of their endpoints. `set_name`: the set that they must be of.
    pub(crate) fn new(standings: Vec<Standing>, set_name: Option<&str>) -> Self {
        let is_primary =
            |standing: &&Standing| usable(standing, set_name).is_some_and(|hello| hello.kind == ServerKind::Primary);
        let newest =
            standings.iter().filter(is_primary).filter_map(|standing| election(usable(standing, set_name)?)).max();
        let is_set = standings.iter().filter_map(|standing| usable(standing, set_name)).any(is_member);
        let role = |standing: &Standing| match usable(standing, set_name) {
            None => Role::None,
            Some(hello) => match hello.kind {
                // A member that was started alone for its maintenance, beside the others of its set.
                ServerKind::Standalone if is_set => Role::None,
                ServerKind::Standalone | ServerKind::Mongos => Role::Any,
                ServerKind::Secondary => Role::Secondary,
                ServerKind::Primary if election(hello) == newest || election(hello).is_none() => Role::Primary,
                _ => Role::None,
            },
        };
        let roles: Vec<Role> = standings.iter().map(role).collect();
        let is_doubted = |number: usize| standings[number].is_doubted;
        let primary = (0..roles.len()).find(|number| roles[*number] == Role::Primary && !is_doubted(*number));
        Self { standings, roles, primary }
    }

    /// The roles, in the order of the endpoints.
    pub(crate) fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// The servers are a set, and none of them is its primary.
    pub(crate) fn lacks_primary(&self) -> bool {
        self.primary.is_none() && !self.roles.contains(&Role::Any)
    }

    fn bits(&self, is_in: impl Fn(usize) -> bool) -> u64 {
        (0..self.roles.len().min(64)).fold(0, |bits, number| bits | u64::from(is_in(number)) << number)
    }

    /// The servers that a command with this read preference may have, a bit for each.
    pub(crate) fn candidates(&self, mode: ReadMode, preference: &Preference<'_>) -> u64 {
        let any = self.bits(|number| self.roles[number] == Role::Any);
        if any != 0 {
            return any;
        }
        let primary = self.primary.map_or(0, |number| 1 << number);
        if mode == ReadMode::Primary {
            return primary;
        }
        let secondaries =
            self.bits(|number| self.roles[number] == Role::Secondary && !self.is_stale(number, preference));
        let or = |first: u64, second: u64| if first == 0 { second } else { first };
        let fitting = |among: u64| preference.narrow(among, |number| self.tags(number));
        match mode {
            ReadMode::Primary => primary,
            ReadMode::PrimaryPreferred => or(primary, fitting(secondaries)),
            ReadMode::Secondary => fitting(secondaries),
            ReadMode::SecondaryPreferred => or(fitting(secondaries), primary),
            ReadMode::Nearest => fitting(primary | secondaries),
        }
    }

    fn tags(&self, number: usize) -> &[weir_mongodb_session::server_hello::Tag] {
        self.standings[number].hello.as_deref().map_or(&[], |hello| &hello.tags)
    }

    /// A secondary is further behind than the preference permits. One that does not say when it last wrote is not.
    fn is_stale(&self, number: usize, preference: &Preference<'_>) -> bool {
        let Some(max_ms) = preference.staleness_max_ms else { return false };
        // When the server had what the clients have now: its own time of the last write, against when it said so.
        let written = |number: usize| {
            let standing = &self.standings[number];
            let seen_ms = (standing.seen_at.as_nanos() / 1_000_000) as i64;
            Some(standing.hello.as_deref()?.last_write_ms?.saturating_sub(seen_ms))
        };
        let latest = match self.primary {
            Some(primary) => written(primary),
            None => {
                (0..self.roles.len()).filter(|other| self.roles[*other] == Role::Secondary).filter_map(written).max()
            }
        };
        matches!((latest, written(number)), (Some(latest), Some(own)) if latest.saturating_sub(own) > max_ms)
    }

    /// The members of the set as it names them; `None`: no primary has named them.
    pub(crate) fn members(&self) -> Option<Vec<Address>> {
        let hello = |number: usize| self.standings[number].hello.as_deref();
        let hosts: Vec<&[u8]> = match (0..self.roles.len()).find(|number| self.roles[*number] == Role::Primary) {
            Some(primary) => hello(primary)?.hosts.iter().map(|host| &**host).collect(),
            // Without a primary more members are looked at, and none is given up.
            None => return None,
        };
        let address = |host: &&[u8]| std::str::from_utf8(host).ok()?.parse::<Address>().ok();
        let mut members: Vec<Address> = Vec::new();
        for member in hosts.iter().filter_map(address).take(MEMBERS_MAX) {
            if !members.contains(&member) {
                members.push(member);
            }
        }
        (!members.is_empty()).then_some(members)
    }

    /// Members that secondaries name while there is no primary.
    pub(crate) fn hearsay(&self) -> Vec<Address> {
        let secondaries = (0..self.roles.len()).filter(|number| self.roles[*number] == Role::Secondary);
        let hosts =
            secondaries.filter_map(|number| self.standings[number].hello.as_deref()).flat_map(|hello| &hello.hosts);
        let addresses = hosts.filter_map(|host| std::str::from_utf8(host).ok()?.parse().ok());
        addresses.take(MEMBERS_MAX).collect()
    }

    /// The promise that a listener can make; `None`: no server is of use.
    pub(crate) fn promise(&self) -> Option<Promise> {
        let used = || (0..self.roles.len()).filter(|number| self.roles[*number] != Role::None);
        let hellos = || used().filter_map(|number| self.standings[number].hello.as_deref());
        let mut wire = WireVersions::KNOWN;
        for hello in hellos() {
            wire = wire.common(hello.wire?)?;
        }
        let minutes: Vec<Option<i32>> = hellos().map(|hello| hello.session_timeout_minutes).collect();
        let session_timeout_minutes = minutes.iter().copied().min()?;
        let is_standalone = self.roles.len() == 1 && hellos().all(|hello| hello.kind == ServerKind::Standalone);
        Some(Promise { wire, session_timeout_minutes, is_standalone })
    }
}

#[cfg(test)]
mod tests;
