//! Statements over `log_min_duration_statement`: a count, and a line in the log without a literal.

use weir_base::time::turn;
use weir_postgres_session::SlowStatement;
use weir_telemetry::log::{self, LogEvent};

use super::life::Life;

impl Life<'_> {
    /// Reports the statement that has just ended, if it took too long. One line a second is written per listener, with the number of those
    /// left out.
    #[inline]
    pub(super) fn report_slow(&mut self) {
        if let Some(slow) = self.client.session.take_slow() {
            self.log_slow(&slow);
        }
    }

    #[cold]
    fn log_slow(&self, slow: &SlowStatement) {
        self.client.metrics.slow.inc();
        let (sessions, handle) = (&self.connection.service.sessions, &self.connection.handle);
        let (at, identity) = (turn::now(), &self.client.identity);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        sessions.core().events.push(sessions.name(), log::SLOW_STATEMENT, at, |suppressed| {
            LogEvent::Slow(log::SlowStatement {
                at,
                listener: sessions.name().clone(),
                peer: handle.peer(),
                connection: handle.id(),
                user: text(&identity.user),
                database: text(&identity.database),
                class: slow.statement.map(|(_, class)| class.word()),
                fingerprint: slow.statement.map(|(fingerprint, _)| fingerprint),
                duration: slow.duration,
                suppressed,
            })
        });
    }
}
