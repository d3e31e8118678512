//! The work of a worker for its pools besides its clients: it gives way to other workers, closes what is old, and keeps a least number.

use std::{rc::Rc, time::Duration};

use weir_base::{exchange::LossCause, time::turn};

use super::{
    PooledProtocol,
    connection::{Connection, Look},
    permit::PoolPermit,
    pool::Pool,
};

/// Interval of the looks at idle connections: old ones are closed, and those that the server has closed are dropped.
pub(super) const IDLE_LOOK: Duration = Duration::from_secs(1);

impl<P: PooledProtocol> Pool<P> {
    /// Gives idle connections to those that wait elsewhere, and closes those that may not be kept.
    pub(super) fn attend(self: &Rc<Self>) {
        for (number, member) in self.members.iter().enumerate() {
            if !member.any_idle(|connection| self.needs_look(member, connection)) {
                continue;
            }
            let mut idle = member.take_all();
            let mut kept = Vec::new();
            let mut is_over = false;
            // The one used last first: it is the least likely to need a check.
            while let Some(mut connection) = idle.pop() {
                match connection.look(&self.context.protocol) {
                    Look::Over(cause) => member.close(*connection, cause),
                    Look::Incomplete => kept.push(connection),
                    // One that no client waits for is a reason to keep the others of its generation, too.
                    Look::Fit
                        if !self.needs_look(member, &connection)
                            || (is_over && self.is_current(number, &connection)) =>
                    {
                        kept.push(connection);
                    }
                    Look::Fit => {
                        let offered = self.offer(number, connection);
                        is_over |= offered.is_some();
                        kept.extend(offered);
                    }
                }
            }
            // One that came meanwhile was used last.
            kept.into_iter().for_each(|connection| member.keep_last(connection));
        }
    }

    fn is_current(&self, number: usize, connection: &Connection<P>) -> bool {
        connection.facts.generation == self.members[number].share.signals.generation()
    }

    /// Closes what is too old and what the server has closed, and makes what is missing.
    pub(super) fn tidy(self: &Rc<Self>, has_clients: bool) {
        let (context, now) = (&self.context, turn::now());
        let settings = &context.settings;
        for (number, member) in self.members.iter().enumerate() {
            let mut idle = member.take_all();
            let mut spare = None;
            // One at a time: connections that were made together do not end together.
            let mut may_end = true;
            let is_idle_long = |connection: &Connection<P>| {
                !settings.server_idle_timeout.is_zero()
                    && now.since(connection.facts.idle_since) > settings.server_idle_timeout
            };
            let mut is_unfit = |connection: &mut Connection<P>| {
                let was_incomplete = connection.is_incomplete;
                match connection.look(&context.protocol) {
                    Look::Over(cause) => Some(cause),
                    Look::Incomplete if was_incomplete => Some(LossCause::Violation),
                    Look::Incomplete => None,
                    Look::Fit if may_end && now >= connection.facts.ends_at => {
                        may_end = false;
                        Some(LossCause::Retired)
                    }
                    Look::Fit if is_idle_long(connection) => {
                        let least = || member.share.ledger.with(|ledger| ledger.spare(self.key()));
                        let left = spare.get_or_insert_with(least);
                        let may_close = *left > 0;
                        *left = left.saturating_sub(1);
                        may_close.then_some(LossCause::Retired)
                    }
                    Look::Fit => None,
                }
            };
            let mut unfit = Vec::new();
            for mut connection in idle.drain(..) {
                match is_unfit(&mut connection) {
                    None => member.keep(connection),
                    Some(cause) => unfit.push((connection, cause)),
                }
            }
            // A permit that is returned may come straight back.
            unfit.into_iter().for_each(|(connection, cause)| member.close(*connection, cause));
            member.count_used(now, settings.server_check_delay);
            if has_clients && settings.min_pool_size > 0 && !self.is_unfit(number) {
                self.top_up(number);
            }
        }
    }

    fn top_up(self: &Rc<Self>, number: usize) {
        let share = &self.members[number].share;
        let may = share.ledger.with(|ledger| ledger.top_up(self.key(), turn::now()));
        if may {
            self.log_in(number, PoolPermit::for_login(share.clone(), None));
        }
    }

    /// Closes what is idle: no further client comes.
    pub(super) fn close_idle(&self) {
        for member in &self.members {
            member.take_all().into_iter().for_each(|connection| member.close(*connection, LossCause::Retired));
        }
    }
}
