//! The decision whether a server may serve another client. A server goes back to its pool only if it is provably clean.

use weir_postgres_codec::TransactionStatus;

/// Everything that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// Every request has its reply, and none was begun without a Sync.
    pub is_quiet: bool,
    /// The byte of the last ReadyForQuery.
    pub status: TransactionStatus,
    /// A COPY is under way, or it is not certain how many replies are to come.
    pub is_copying: bool,
    /// The first part of a message has gone to the server, and the rest has not.
    pub is_half_sent: bool,
    /// The first part of a message has come from the server, and the rest has not.
    pub is_half_received: bool,
    /// The client has state at the server that it still needs.
    pub is_pinned: bool,
    /// State at the server would reach the next client.
    pub is_dirty: bool,
    /// The server has said that it ends, or it broke a rule.
    pub is_doomed: bool,
}

/// The permitted uses of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its client keeps it.
    Keep,
    /// Another client may have it.
    Clean,
    /// Replies are to come first.
    Drain,
    /// Its transaction has to be rolled back first.
    Rollback,
    /// Its state has to be reset first.
    Reset,
    /// No client may have it.
    Close,
}

impl ServerFacts {
    fn is_between_messages(&self) -> bool {
        !self.is_half_sent && !self.is_half_received
    }

    /// After a reply, with the client there.
    pub fn after_reply(&self) -> Verdict {
        let may_leave = self.is_quiet
            && self.status == TransactionStatus::Idle
            && !self.is_copying
            && self.is_between_messages()
            && !self.is_pinned;
        match () {
            () if !may_leave => Verdict::Keep,
            () if self.is_doomed => Verdict::Close,
            () if self.is_dirty => Verdict::Reset,
            () => Verdict::Clean,
        }
    }

    /// After the client is gone.
    pub fn without_client(&self) -> Verdict {
        match () {
            // The rest of the message is lost with the client.
            () if self.is_doomed || self.is_half_sent => Verdict::Close,
            () if !self.is_quiet || self.is_copying || !self.is_between_messages() => Verdict::Drain,
            () if self.status != TransactionStatus::Idle => Verdict::Rollback,
            () if self.is_dirty || self.is_pinned => Verdict::Reset,
            () => Verdict::Clean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUSES: [TransactionStatus; 3] =
        [TransactionStatus::Idle, TransactionStatus::InBlock, TransactionStatus::Failed];

    fn every_server() -> impl Iterator<Item = ServerFacts> {
        (0..1_u32 << 7).flat_map(|bits| {
            let bit = move |place: u32| bits >> place & 1 == 1;
            STATUSES.into_iter().map(move |status| ServerFacts {
                is_quiet: bit(0),
                status,
                is_copying: bit(1),
                is_half_sent: bit(2),
                is_half_received: bit(3),
                is_pinned: bit(4),
                is_dirty: bit(5),
                is_doomed: bit(6),
            })
        })
    }

    /// Written apart from the machine, as the reference has it (2.3).
    fn is_provably_clean(server: &ServerFacts) -> bool {
        let ServerFacts {
            is_quiet,
            status,
            is_copying,
            is_half_sent,
            is_half_received,
            is_pinned,
            is_dirty,
            is_doomed,
        } = *server;
        let flaws = [is_copying, is_half_sent, is_half_received, is_pinned, is_dirty, is_doomed];
        is_quiet && status.byte() == b'I' && flaws.iter().all(|flaw| !flaw)
    }

    #[test]
    fn k5_a_server_is_clean_if_and_only_if_it_provably_is() {
        let mut clean = 0;
        for server in every_server() {
            assert_eq!(server.after_reply() == Verdict::Clean, is_provably_clean(&server), "{server:?}");
            assert_eq!(server.without_client() == Verdict::Clean, is_provably_clean(&server), "{server:?}");
            clean += usize::from(is_provably_clean(&server));
        }
        assert_eq!(clean, 1, "of all combinations");
    }

    /// The effect of each verdict on a server that obeys.
    fn apply(server: ServerFacts, verdict: Verdict) -> ServerFacts {
        match verdict {
            Verdict::Drain => ServerFacts { is_quiet: true, is_copying: false, is_half_received: false, ..server },
            Verdict::Rollback => ServerFacts { status: TransactionStatus::Idle, ..server },
            Verdict::Reset => ServerFacts { is_dirty: false, is_pinned: false, ..server },
            Verdict::Keep | Verdict::Clean | Verdict::Close => server,
        }
    }

    #[test]
    fn without_its_client_every_server_ends_clean_or_closed_within_three_steps() {
        for start in every_server() {
            let mut server = start;
            let mut steps = 0;
            let end = loop {
                match server.without_client() {
                    end @ (Verdict::Clean | Verdict::Close) => break end,
                    Verdict::Keep => panic!("no client keeps it: {start:?}"),
                    verdict => server = apply(server, verdict),
                }
                steps += 1;
                assert!(steps <= 3, "{start:?}");
            };
            assert_eq!(end == Verdict::Close, start.is_doomed || start.is_half_sent, "{start:?}");
        }
    }

    #[test]
    fn a_client_keeps_its_server_while_anything_binds_it() {
        for server in every_server() {
            let binds = server.is_pinned || !server.is_quiet || server.status != TransactionStatus::Idle;
            assert!(!binds || server.after_reply() == Verdict::Keep, "{server:?}");
        }
    }
}
