//! A standby: a copy of a server that follows it by streaming.

use crate::deadline::{WAIT, until_true};
use crate::postgres::server::{Postgres, data, run};

impl Postgres {
    /// A hot standby of this server. It is streaming when this returns.
    ///
    /// # Panics
    /// If the copy fails or does not follow.
    #[must_use]
    pub fn standby(&self) -> Self {
        let folder = Self::new_folder();
        let mut words = vec![self.major.program("pg_basebackup").to_string_lossy().into_owned()];
        words.extend(["--pgdata".into(), data(&folder).to_string_lossy().into_owned()]);
        words.extend(["--host".into(), self.socket_folder().to_string_lossy().into_owned()]);
        words.extend(["--port".into(), self.port().to_string(), "--username=postgres".into()]);
        words.extend(
            ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"].map(str::to_owned),
        );
        run("pg_basebackup", &words);
        let standby = Self::over(self.major, self.options.clone(), folder);
        until_true("the standby to stream", || standby.sql("select status from pg_stat_wal_receiver") == "streaming");
        standby
    }

    /// Waits until this standby has replayed all that `primary` has written so far.
    ///
    /// # Panics
    /// If it does not.
    pub fn catch_up(&self, primary: &Self) {
        let position = primary.sql("select pg_current_wal_insert_lsn()");
        let question = format!("select pg_last_wal_replay_lsn() >= '{position}'");
        until_true("the standby to catch up", || self.sql(&question) == "t");
    }

    /// Makes this standby a primary.
    ///
    /// # Panics
    /// If it stays in recovery.
    pub fn promote(&self) {
        let seconds = WAIT.as_secs();
        assert_eq!(self.sql(&format!("select pg_promote(true, {seconds})")), "t", "the standby is promoted");
    }

    /// It is in recovery: a standby.
    #[must_use]
    pub fn is_standby(&self) -> bool {
        self.sql("select pg_is_in_recovery()") == "t"
    }
}
