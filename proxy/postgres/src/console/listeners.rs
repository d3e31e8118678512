//! SHOW LISTENERS: the connections that listen for all clients (`S`), and the clients that listen (`C`).

use std::sync::atomic::Ordering::Relaxed;

use weir_base::time::turn;
use weir_listener::Session as _;

use super::{
    Console,
    table::{Cell, Table},
};
use crate::listen::{LineView, views};

const COLUMNS: &[&str] = &["type", "id", "user", "database", "state", "channels", "gaps", "since"];
const TEXTS: &[&str] = &["type", "user", "database", "state", "since"];

impl Console<'_> {
    pub(super) fn listeners(&self) -> Table {
        let mut table = Table::new(COLUMNS, TEXTS);
        let now = turn::now();
        let upstreams = self.upstreams();
        let is_own = |name: &str| upstreams.iter().any(|upstream| *upstream.settings().name == *name);
        for view in views().iter().filter(|view| is_own(&view.key.upstream.name)) {
            let LineView { key, id, begun_at, is_up, channels, gaps } = &**view;
            table.row(vec![
                "S".into(),
                (*id).into(),
                key.pool.user_name().into(),
                key.pool.database_name().into(),
                if is_up.load(Relaxed) { "connected" } else { "down" }.into(),
                channels.load(Relaxed).into(),
                gaps.load(Relaxed).into(),
                format!("{}s ago", now.since(*begun_at).as_secs()).into(),
            ]);
        }
        for entry in self.connection.handle().table().entries() {
            let channels = entry.subscriptions.load(Relaxed);
            if entry.listener != *self.service.sessions.name() || channels == 0 {
                continue;
            }
            let details = entry.details().clone();
            table.row(vec![
                "C".into(),
                entry.id.into(),
                details.user.into(),
                details.database.into(),
                "listening".into(),
                channels.into(),
                Cell::Null,
                format!("{}s ago", now.since(entry.accepted_at).as_secs()).into(),
            ]);
        }
        table
    }
}
