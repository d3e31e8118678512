//! SHOW STATS and its kin: counts of each database since the start, and averages of the last period of a minute.

use std::{sync::Arc, time::Duration};

use weir_base::time::turn;

use super::{
    Console,
    show::TEXTS,
    table::{Cell, Table},
};
use crate::{
    service::Service,
    shared::{AllTotals, Totals},
};

const STATS: [&str; 25] = [
    "database",
    "total_server_assignment_count",
    "total_xact_count",
    "total_query_count",
    "total_received",
    "total_sent",
    "total_xact_time",
    "total_query_time",
    "total_wait_time",
    "total_client_parse_count",
    "total_server_parse_count",
    "total_bind_count",
    "total_client_login_count",
    "avg_server_assignment_count",
    "avg_xact_count",
    "avg_query_count",
    "avg_recv",
    "avg_sent",
    "avg_xact_time",
    "avg_query_time",
    "avg_wait_time",
    "avg_client_parse_count",
    "avg_server_parse_count",
    "avg_bind_count",
    "avg_client_login_count",
];
/// The columns of SHOW STATS_TOTALS, and of SHOW STATS_AVERAGES besides four names.
const COUNTS: [&str; 13] = [
    "database",
    "server_assignment_count",
    "xact_count",
    "query_count",
    "bytes_received",
    "bytes_sent",
    "xact_time",
    "query_time",
    "wait_time",
    "client_parse_count",
    "server_parse_count",
    "bind_count",
    "client_login_count",
];
const AVERAGES: [&str; 4] =
    ["avg_client_parse_count", "avg_server_parse_count", "avg_bind_count", "avg_client_login_count"];
/// The names of SHOW TOTALS behind `total_` and `avg_`.
const NAMES: [&str; 12] = [
    "server_assignment_count",
    "xact_count",
    "query_count",
    "client_bytes",
    "server_bytes",
    "xact_time",
    "query_time",
    "wait_time",
    "ps_client_parse_count",
    "ps_server_parse_count",
    "ps_bind_count",
    "client_login_count",
];
/// Places of [`Totals`].
const TRANSACTIONS: usize = 1;
const QUERIES: usize = 2;
const TRANSACTION_TIME: usize = 5;
const QUERY_TIME: usize = 6;

/// The averages of a period: rates per second, and times of one transaction or query. As at PgBouncer, the time that clients waited for
/// servers is a rate too.
fn averages(grown: &Totals, length: Duration) -> Totals {
    std::array::from_fn(|place| {
        let each = match place {
            TRANSACTION_TIME => Some(grown[TRANSACTIONS]),
            QUERY_TIME => Some(grown[QUERIES]),
            _ => None,
        };
        match each {
            Some(count) => grown[place] / count.max(1),
            None => (grown[place] as f64 / length.as_secs_f64().max(1.0)) as u64,
        }
    })
}

impl Service {
    /// The counts of all databases.
    pub(crate) fn totals(&self) -> AllTotals {
        let labels = self.shared.labels().into_iter();
        labels.map(|label| (label.clone(), self.metrics.totals(&label))).collect()
    }
}

/// Counts of a database, and their averages.
type Row = (Arc<str>, Totals, Totals);

impl Console<'_> {
    fn figures(&self) -> Vec<Row> {
        let totals = self.service.totals();
        let (grown, length) = self.service.shared.last_period(turn::now(), &totals);
        let row = |(name, totals): (Arc<str>, Totals)| {
            let averages = grown.get(&name).map_or([0; 12], |grown| averages(grown, length));
            (name, totals, averages)
        };
        totals.into_iter().map(row).collect()
    }

    pub(super) fn stats(&self) -> Table {
        let mut table = Table::new(&STATS, TEXTS);
        for (name, totals, averages) in self.figures() {
            table.row(named(&name, totals.into_iter().chain(averages)));
        }
        table
    }

    pub(super) fn stats_totals(&self) -> Table {
        let mut table = Table::new(&COUNTS, TEXTS);
        for (name, totals, _) in self.figures() {
            table.row(named(&name, totals));
        }
        table
    }

    pub(super) fn stats_averages(&self) -> Table {
        let mut columns = COUNTS;
        columns[9..].copy_from_slice(&AVERAGES);
        let mut table = Table::new(&columns, TEXTS);
        for (name, _, averages) in self.figures() {
            table.row(named(&name, averages));
        }
        table
    }

    /// All databases together, one figure a row.
    pub(super) fn totals(&self) -> Table {
        let mut table = Table::new(&["name", "value"], &["name"]);
        let mut sums = ([0; 12], [0; 12]);
        for (_, totals, averages) in self.figures() {
            for place in 0..12 {
                sums.0[place] += totals[place];
                sums.1[place] += averages[place];
            }
        }
        for (prefix, sums) in [("total_", sums.0), ("avg_", sums.1)] {
            for (name, sum) in NAMES.iter().zip(sums) {
                table.row(vec![format!("{prefix}{name}").into(), sum.into()]);
            }
        }
        table
    }
}

fn named(name: &str, figures: impl IntoIterator<Item = u64>) -> Vec<Cell> {
    std::iter::once(name.into()).chain(figures.into_iter().map(Cell::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_rates_and_times_of_one() {
        let grown = [120, 120, 240, 6_000, 12_000, 1_200, 480, 600, 0, 0, 60, 6];
        let averages = averages(&grown, Duration::from_secs(60));
        assert_eq!(averages, [2, 2, 4, 100, 200, 10, 2, 10, 0, 0, 1, 0]);
    }
}
